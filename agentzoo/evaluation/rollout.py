"""Run an agent in several environments with one forward pass per step; episodes have their own seeds if possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.acting.binding import OBSERVATION_KEY
from agentzoo.acting.history import AgentState, rows
from agentzoo.acting.modes import MemoryState
from agentzoo.agent import Agent
from agentzoo.data.spaces import GOAL_KEY, REWARD_KEY
from agentzoo.envs.wrapping import autoreset_mode, reward_changer
from agentzoo.errors import ConfigError, ObservationError
from agentzoo.evaluation.environments import env_of, open_envs, require_playable, require_positive
from agentzoo.evaluation.seeds import episode_seed, require_seed

OnEpisode = Callable[["EpisodeResult"], None]
OnState = Callable[[AgentState | MemoryState], None]
SUCCESS = ("success", "is_success")  # keys in `info`; the second is SB3's


@dataclass(frozen=True)
class EpisodeResult:
    """One finished episode, in units of the environment's reward.

    Raises:
        ObservationError: NaN or infinite rewards.
    """

    seed: int | None  # None if a vector environment resets itself
    total_reward: float
    length: int
    terminated: bool
    success: bool | None = None  # from `info`; None if it has no such key

    def __post_init__(self) -> None:
        if not math.isfinite(self.total_reward):
            which = "an episode" if self.seed is None else f"the episode of seed {self.seed}"
            raise ObservationError(
                f"{which} has the return {self.total_reward}: a reward of its environment is not finite."
            )


def make_vec_env(
    agent: Agent | str | Path,
    n_envs: int = 1,
    seed: int | None = None,
    *,
    trust_env_module: bool = False,
    **options: Any,
) -> Any:
    """Create `n_envs` copies of the agent's environment as an SB3 DummyVecEnv of Monitors, and bind it to the agent.

    With it, `stable_baselines3`'s `evaluate_policy(agent, make_vec_env(agent, 8, seed=0))` uses the same task as the
    zoo, with the options the agent was trained with.

    Args:
        agent: an agent, or an id or folder of one, which only says what environment to make.
        seed: seed of the first environment; the next ones get seed + 1, seed + 2, ...
        options: keyword arguments of `gym.make` in addition to the agent's, e.g. `render_mode="rgb_array"`.

    Raises:
        ConfigError: the agent names no environment, `n_envs` is below 1, or `seed` is no whole number. Otherwise as
            `env_of`.
    """
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    require_positive(n_envs=n_envs)
    require_seed(0 if seed is None else seed)
    if not isinstance(agent, Agent):
        agent = Agent.from_pretrained(agent, device="cpu", trust_env_module=trust_env_module)
    with ExitStack() as opened:  # closes those that exist if one cannot be created
        made = []
        for _ in range(n_envs):
            made.append(Monitor(env_of(agent, None, trust_env_module=trust_env_module, **options)))
            opened.callback(made[-1].close)
        env = DummyVecEnv([partial(_itself, one) for one in made])
        env.seed(seed)
        agent.set_env(env)
        opened.pop_all()
    return env


def _itself(env: Any) -> Any:
    return env


def rollout(
    agent: Agent,
    env: str | gym.Env[Any, Any] | Any,
    episodes: int,
    *,
    seed: int = 0,
    n_envs: int = 20,
    deterministic: bool | None = None,
    trust_env_module: bool = False,
    on_episode: OnEpisode = lambda _: None,
) -> list[EpisodeResult]:
    """Run `episodes` episodes.

    Args:
        agent: acts with its `target_return`.
        env: an environment id: `n_envs` environments are created, and episode e is seeded with `episode_seed(seed, e)`,
            so results do not depend on `n_envs`, except for rounding and sampled actions. Or a gymnasium.Env, seeded
            the same way. Or an SB3 VecEnv or gymnasium VectorEnv, which resets itself; each of its environments plays
            a number of episodes that is fixed in advance, equal up to one, so that short episodes are not favoured.
            SB3's VecNormalize is undone; no other wrapper may change observations or rewards.
        deterministic: whether actions are the most likely ones, or sampled. By default as the agent's recipe says.
        on_episode: called with each finished episode.

    Raises:
        SpaceError: the environment does not fit the agent. ConfigError: `episodes` or `n_envs` below 1, `seed` below 0,
            an agent with a target or goal per environment, or an environment whose rewards a wrapper changes.
            ObservationError: a reward is not finite.
    """
    require_playable(agent, episodes, n_envs)
    deterministic = is_deterministic(agent) if deterministic is None else deterministic
    if not deterministic:
        agent.set_random_seed(seed)
    if isinstance(env, str):
        with open_envs(agent, env, min(n_envs, episodes), trust_env_module=trust_env_module) as made:
            return run_seeded(agent, made, episodes, seed, deterministic, on_episode)
    agent.check_env(env, scaled=True)
    changer = reward_changer(
        env.unwrapped if hasattr(env, "env_is_wrapped") else env
    )  # the rewards before VecNormalize
    if changer is not None:
        raise ConfigError(
            f"{changer} changes the rewards, but returns are sums of the environment's rewards; remove that wrapper. "
            "If it belongs to the task, register the environment with the wrapper and pass its id."
        )
    if isinstance(env, gym.Env):
        return run_seeded(agent, [env], episodes, seed, deterministic, on_episode)
    steps = _vector_steps(env, seed) if isinstance(env, gym.vector.VectorEnv) else _vec_env_steps(env, seed)
    return _shared_out(agent, steps, env.num_envs, episodes, deterministic, on_episode)


def is_deterministic(agent: Agent) -> bool:
    """Whether its recipe evaluates it without sampling."""
    return agent.recipe is None or not agent.recipe.eval.sampled


def run_episode(
    agent: Agent, env: gym.Env[Any, Any], seed: int, before_step: Callable[[int], None] = lambda _: None
) -> EpisodeResult:
    """Play one episode of one environment; `before_step` is called with the number of the next step, e.g. to render."""
    observation, _ = env.reset(seed=seed)
    state, reward, total, length = None, 0.0, 0.0, 0
    deterministic = is_deterministic(agent)
    if not deterministic:
        agent.set_random_seed(seed)
    while True:
        before_step(length)
        start = np.array([length == 0])
        action, state = agent.predict(observation, state, start, deterministic, reward=reward)
        observation, step_reward, terminated, truncated, info = env.step(action[()])  # a Discrete action as a number
        reward = float(step_reward)
        total, length = total + reward, length + 1
        if terminated or truncated:
            return EpisodeResult(seed, total, length, bool(terminated), _success(info))


def _success(info: dict[str, Any]) -> bool | None:
    success = next((info[key] for key in SUCCESS if key in info), None)
    return None if success is None else bool(success)


def run_seeded(
    agent: Agent,
    envs: Sequence[gym.Env[Any, Any]],
    episodes: int,
    seed: int = 0,
    deterministic: bool = True,
    on_episode: OnEpisode = lambda _: None,
    on_state: OnState = lambda _: None,
    numbers: Sequence[int] | None = None,
) -> list[EpisodeResult]:
    """Play episodes 0..`episodes`-1, each with its own seed, on equal environments stepped in parallel.

    An environment starts the next episode as soon as it is free, and leaves the batch when no episode is left. At most
    `episodes` environments are used.

    Args:
        on_state: called with the agent's state after each action, one row per environment in use.
        numbers: numbers of the episodes to play, instead of 0..`episodes`-1.

    Raises:
        SpaceError: the environments do not fit the agent.
    """
    agent.check_spaces(envs[0].observation_space, envs[0].action_space)
    envs = envs[:episodes]
    found: list[EpisodeResult | None] = [None] * episodes
    live = list(envs)  # environments with a running episode; next its number, return and length
    seeds = [episode_seed(seed, e) for e in (range(episodes) if numbers is None else numbers)]
    number = list(range(len(envs)))
    total, length, upcoming = np.zeros(len(envs)), np.zeros(len(envs), dtype=int), len(envs)
    observations = [env.reset(seed=seeds[e])[0] for env, e in zip(live, number, strict=True)]
    read = {OBSERVATION_KEY, GOAL_KEY, REWARD_KEY, *(agent.config.io.observation.keys or ())}
    starts, rewards, state = np.ones(len(envs), dtype=bool), np.zeros(len(envs)), None
    while live:
        actions, state = agent.predict(_stack(observations, read), state, starts, deterministic, reward=rewards)
        on_state(state)
        starts = np.zeros(len(live), dtype=bool)
        kept = np.ones(len(live), dtype=bool)
        for i, env in enumerate(live):
            observations[i], reward, terminated, truncated, info = env.step(actions[i])
            rewards[i] = float(reward)
            total[i] += rewards[i]
            length[i] += 1
            if not (terminated or truncated):
                continue
            result = EpisodeResult(seeds[number[i]], float(total[i]), int(length[i]), bool(terminated), _success(info))
            found[number[i]] = result
            on_episode(result)
            if upcoming < episodes:
                number[i], total[i], length[i], starts[i] = upcoming, 0.0, 0, True
                observations[i] = env.reset(seed=seeds[upcoming])[0]
                upcoming += 1
            else:
                kept[i] = False
        if not kept.all():
            chosen = np.flatnonzero(kept)
            live, number = [live[i] for i in chosen], [number[i] for i in chosen]
            observations = [observations[i] for i in chosen]
            total, length, starts, rewards = total[chosen], length[chosen], starts[chosen], rewards[chosen]
            state = rows(state, chosen)
    return [result for result in found if result is not None]


def _stack(observations: list[Any], read: Collection[str] | None = None) -> Any:
    """The observations of all environments as one; of a Dict only the keys in `read`, or all if None.

    An agent passes over other keys, whose values may have no common shape.
    """
    first = observations[0]
    if isinstance(first, Mapping):
        names = [name for name in first if read is None or name in read]
        return {name: _stack([one[name] for one in observations]) for name in names}
    return np.stack(observations)


@dataclass
class _Step:
    """The output of a self-resetting environment after each step; `send` passes the actions.

    Observations, rewards of the step, which episodes ended and how, and which observations begin an episode.
    """

    observations: Any
    rewards: NDArray[np.float64]
    ended: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    starts: NDArray[np.bool_]
    counts: NDArray[np.bool_]  # False where the step only reset the environment
    successes: list[bool | None]  # of the ended episodes


def _vec_env_steps(env: Any, seed: int) -> Any:
    env.seed(episode_seed(seed, 0))
    observations, n = env.reset(), env.num_envs
    normalized = bool(getattr(env, "norm_obs", False))
    actions = yield _first(env.get_original_obs() if normalized else observations, n)
    while True:
        observations, rewards, dones, infos = env.step(actions)
        # VecNormalize scales rewards and observations; the agent needs the original ones
        own = env.get_original_reward() if hasattr(env, "get_original_reward") else rewards
        raw = np.asarray(own, dtype=np.float64)
        cut = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        dones = np.asarray(dones, dtype=bool)
        seen = env.get_original_obs() if normalized else observations
        successes = [_success(info) for info in infos]
        actions = yield _Step(seen, raw, dones, dones & ~cut, dones, np.ones(n, dtype=bool), successes)


def _vector_steps(env: gym.vector.VectorEnv[Any, Any, Any], seed: int) -> Any:
    mode = autoreset_mode(env)
    observations, _ = env.reset(seed=episode_seed(seed, 0))
    n = env.num_envs
    actions = yield _first(observations, n)
    resetting = np.zeros(n, dtype=bool)
    while True:
        observations, rewards, terminations, truncations, infos = env.step(actions)
        ended = np.asarray(terminations | truncations) & ~resetting
        starts = resetting
        if mode == gym.vector.AutoresetMode.SAME_STEP:
            starts = ended
        elif mode == gym.vector.AutoresetMode.DISABLED and ended.any():
            observations, _ = env.reset(options={"reset_mask": ended})
            starts = ended
        counts = ~resetting
        own, successes = np.asarray(rewards, dtype=np.float64), _successes(infos, n)
        actions = yield _Step(observations, own, ended, np.asarray(terminations), starts, counts, successes)
        resetting = ended if mode == gym.vector.AutoresetMode.NEXT_STEP else np.zeros(n, dtype=bool)


def _successes(infos: dict[str, Any] | list[dict[str, Any]], n: int) -> list[bool | None]:
    """Successes from a gymnasium VectorEnv's infos, in which `_key` says which environments set `key`.

    Gymnasium's wrapper DictInfoToList returns one info for each environment instead.
    """
    if isinstance(infos, list):
        return [_success(info.get("final_info") or info) for info in infos]
    ended = infos.get("final_info", infos)  # with same-step autoreset
    for key in SUCCESS:
        if key in ended:
            reported = ended.get(f"_{key}", np.ones(n, dtype=bool))
            return [bool(value) if known else None for value, known in zip(ended[key], reported, strict=True)]
    return [None] * n


def _first(observations: Any, n: int) -> _Step:
    no, yes = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    return _Step(observations, np.zeros(n), no, no, yes, no, [None] * n)


def _shared_out(
    agent: Agent, steps: Iterator[_Step], n: int, episodes: int, deterministic: bool, on_episode: OnEpisode
) -> list[EpisodeResult]:
    quota = np.array([(episodes + i) // n for i in range(n)])
    total, length = np.zeros(n), np.zeros(n, dtype=int)
    found: list[EpisodeResult] = []
    state = None
    step = next(steps)
    while (quota > 0).any():
        actions, state = agent.predict(step.observations, state, step.starts, deterministic, reward=step.rewards)
        step = steps.send(actions)  # type: ignore[attr-defined]
        total += np.where(step.counts, step.rewards, 0.0)
        length += step.counts
        for i in np.flatnonzero(step.ended):
            if quota[i] > 0:
                quota[i] -= 1
                terminated, success = bool(step.terminated[i]), step.successes[i]
                result = EpisodeResult(None, float(total[i]), int(length[i]), terminated, success)
                found.append(result)
                on_episode(result)
            total[i], length[i] = 0.0, 0
    return found
