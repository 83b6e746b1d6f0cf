"""Decision Transformer against transformers' `DecisionTransformerModel`, used as in the published code.

The peer draws windows one at a time in Python and pads each with numpy, as kzl/decision-transformer does; acts on one
environment with left-padded history; and evaluates episodes one after another, growing its history by concatenation.
Both hold the same random weights, read 20 steps, and play 200 steps of a Hopper that may fall.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.episodes import Episodes, returns_to_go
from agentzoo.data.windows import WindowSampler
from agentzoo.envs.making import make_configured
from agentzoo.evaluation.jobs import rollout_in_jobs
from agentzoo.evaluation.rollout import run_seeded
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.models.dt import DecisionTransformer
from agentzoo.recipe import load_recipe
from agentzoo.research.bench import PUBLISHED, ROW, Figure, compare
from agentzoo.research.bench_sizes import random_episodes
from agentzoo.research.peers import as_transformers_decision_transformer
from agentzoo.training.loop import build_model
from agentzoo.training.optim import make_optimizer

EPISODES = 20
OPTIONS = {"max_episode_steps": 200, "terminate_when_unhealthy": False}
AGENT_ID = "dt-hopper-medium"


def run(runs: int) -> list[Figure]:
    """`train_step`, timed `runs` times; `action`, timed ten times as often; `evaluate`, per environment step.

    Acting is timed in PyTorch and in ONNX Runtime against the same peer, an evaluation also in two jobs.
    """
    episodes = random_episodes(100, 500)
    recipe = load_recipe(AGENT_ID).override(PUBLISHED)
    model = build_model(recipe, episodes)
    assert isinstance(model, DecisionTransformer)
    peer_trained = as_transformers_decision_transformer(model).train()
    ours = _our_step(recipe, model.train(), episodes)
    figures = [compare("train_step", ours, _peer_step(recipe, peer_trained, episodes), runs)]
    config = AgentConfig.of(recipe, model.io).model_copy(update={"env_options": OPTIONS})
    agent = Agent(build_model(recipe, episodes), config, recipe)
    peer = _PeerAgent(agent)
    frozen = copy.deepcopy(agent).freeze("onnx")
    for name, one in (("action", agent), ("action, onnx", frozen)):
        figures.append(_actions(name, one, peer, episodes, 10 * runs))
    return [*figures, *_evaluations(agent, frozen, peer, max(runs // 10, 3))]


def _our_step(recipe: Any, model: Any, episodes: Episodes) -> Any:
    sampler = WindowSampler(episodes, recipe.data.context, recipe.data.rtg_scale)
    optimizer = make_optimizer(model, recipe.train)
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        terms = model.loss(sampler.sample(recipe.train.batch_size, generator))
        optimizer.zero_grad()
        torch.autograd.backward(torch.stack(list(terms.values())).sum())
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.train.clip)
        optimizer.step()

    return step


def _peer_step(recipe: Any, model: Any, episodes: Episodes) -> Any:
    context, scale = recipe.data.context, recipe.data.rtg_scale
    parts = [episodes.split(values) for values in (episodes.observations, episodes.actions, episodes.rewards)]
    mean, std = episodes.observations.mean(0), episodes.observations.std(0) + 1e-6
    weights = episodes.lengths / episodes.lengths.sum()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4)
    rng = np.random.default_rng(0)

    def one(episode: int) -> tuple[Any, ...]:
        obs, actions, rewards = (part[episode] for part in parts)
        start = int(rng.integers(len(rewards)))
        stop = min(start + context, len(rewards))
        pad = context - (stop - start)
        time = np.pad(np.arange(start, stop), (pad, 0))
        rtg = returns_to_go(rewards[start:])[: stop - start, None] / scale
        return (
            np.pad((obs[start:stop] - mean) / std, ((pad, 0), (0, 0))),
            np.pad(actions[start:stop], ((pad, 0), (0, 0)), constant_values=-10.0),
            np.pad(rtg, ((pad, 0), (0, 0))),
            time,
            np.pad(np.ones(stop - start), (pad, 0)),
        )

    def step() -> None:
        chosen = rng.choice(len(weights), recipe.train.batch_size, p=weights)
        obs, actions, rtg, time, mask = (np.stack(part) for part in zip(*map(one, chosen), strict=True))
        target = torch.from_numpy(actions).float()
        output = model(
            states=torch.from_numpy(obs).float(),
            actions=target,
            rewards=None,
            returns_to_go=torch.from_numpy(rtg).float(),
            timesteps=torch.from_numpy(time).long(),
            attention_mask=torch.from_numpy(mask).long(),
        )
        real = torch.from_numpy(mask) > 0
        loss = ((output.action_preds[real] - target[real]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()

    return step


class _PeerAgent:
    """One environment, history grown by concatenation, the last K steps padded on the left."""

    def __init__(self, agent: Agent) -> None:
        assert isinstance(agent.model, DecisionTransformer)
        self.model = as_transformers_decision_transformer(agent.model)
        self.mean, self.std = agent.model.obs_mean, agent.model.obs_std
        self.context, self.scale = agent.config.io.context, agent.config.rtg_scale
        self.target = agent.target_return

    @torch.no_grad()
    def action(self, obs: Any, actions: Any, rtg: Any, timesteps: Any) -> Any:
        """(T, S), (T, A), (T,), (T,) -> (A,)."""
        k = self.context
        obs, actions, rtg, timesteps = obs[-k:], actions[-k:], rtg[-k:], timesteps[-k:]
        pad = k - len(obs)
        mask = torch.cat([torch.zeros(pad), torch.ones(len(obs))]).long()
        left = torch.nn.functional.pad
        output = self.model(
            states=left((obs - self.mean) / self.std, (0, 0, pad, 0))[None],
            actions=left(actions, (0, 0, pad, 0))[None],
            rewards=None,
            returns_to_go=left(rtg[:, None], (0, 0, pad, 0))[None],
            timesteps=left(timesteps, (pad, 0))[None],
            attention_mask=mask[None],
        )
        return output.action_preds[0, -1]

    def episode(self, env: gym.Env[Any, Any], seed: int) -> int:
        """Play one episode; its length."""
        obs = torch.from_numpy(np.asarray(env.reset(seed=seed)[0])).float()[None]
        actions = torch.zeros(0, 3)
        rtg = torch.tensor([self.target / self.scale])
        timesteps = torch.zeros(1, dtype=torch.long)
        while True:
            actions = torch.cat([actions, torch.zeros(1, 3)])
            action = self.action(obs, actions, rtg, timesteps)
            actions[-1] = action
            found, reward, terminated, truncated, _ = env.step(action.numpy())
            if terminated or truncated:
                return len(obs)
            obs = torch.cat([obs, torch.from_numpy(np.asarray(found)).float()[None]])
            rtg = torch.cat([rtg, (rtg[-1] - float(reward) / self.scale)[None]])
            timesteps = torch.cat([timesteps, timesteps[-1:] + 1])


def _actions(name: str, agent: Agent, peer: _PeerAgent, episodes: Episodes, runs: int) -> Figure:
    """One action of one environment whose context is full."""
    context = agent.config.io.context
    observations = episodes.observations[: 2 * context]
    state: Any = None
    for obs in observations:
        _, state = agent.predict(obs, state, deterministic=True, reward=1.0)
    history = (
        torch.from_numpy(observations),
        torch.from_numpy(episodes.actions[: 2 * context]),
        torch.linspace(3.6, 3.5, 2 * context),
        torch.arange(2 * context),
    )
    newest = observations[-1]
    return compare(
        name,
        lambda: agent.predict(newest, state, deterministic=True, reward=1.0),
        lambda: peer.action(*history),
        runs,
        row=ROW,
    )


def _evaluations(agent: Agent, frozen: Agent, peer: _PeerAgent, runs: int) -> list[Figure]:
    """Twenty episodes, milliseconds an environment step. Two jobs make their environments each time."""
    env_id = agent.config.env
    assert env_id is not None
    envs = [make_configured(env_id, OPTIONS) for _ in range(EPISODES)]
    seeds = [episode_seed(0, episode) for episode in range(EPISODES)]
    steps = sum(one.length for one in run_seeded(agent, envs, EPISODES))
    ways = {
        "evaluate": lambda: run_seeded(agent, envs, EPISODES),
        "evaluate, onnx": lambda: run_seeded(frozen, envs, EPISODES),
        "evaluate, two jobs": lambda: rollout_in_jobs(agent, env_id, EPISODES, 2),
        "evaluate, onnx, two jobs": lambda: rollout_in_jobs(frozen, env_id, EPISODES, 2),
    }
    try:
        return [
            compare(name, way, lambda: [peer.episode(envs[0], seed) for seed in seeds], runs, scale=1.0 / steps)
            for name, way in ways.items()
        ]
    finally:
        for env in envs:
            env.close()
