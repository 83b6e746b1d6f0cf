"""Play an episode and cut a window out of it, for inference with a masked agent."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.evaluation.environments import open_envs
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.masked.question import Window, read_window


def run_window(agent: Agent, seed: int = 0, start: int = 0, *, trust_env_module: bool = False) -> Window:
    """A window of steps `start`, `start + 1`, ... of an episode that the agent plays, at most K steps, all known.

    `seed` seeds the environment and the sampling of Discrete actions.

    Raises:
        ConfigError: the episode has fewer than two steps from `start` on.
    """
    context = agent.config.io.context
    agent.set_random_seed(seed)
    seen: list[Any] = []
    taken: list[Any] = []
    asked: list[float] = []  # the returns-to-go that the agent reads, which may differ from the rewards that follow
    state, reward, ended = None, 0.0, False
    with open_envs(agent, None, 1, trust_env_module=trust_env_module) as (env,):
        observation, _ = env.reset(seed=episode_seed(seed, 0))
        while not ended and len(taken) < start + context:
            action, state = agent.predict(observation, state, reward=reward)
            seen.append(deepcopy(observation))  # some environments return the same array every time
            taken.append(action)
            asked.append(float(state.newest_return_to_go()[0]))
            observation, gained, terminated, truncated, _ = env.step(action[()])
            reward = float(gained)
            ended = bool(terminated or truncated)
    if len(taken) < start + 2:
        raise ConfigError(
            f"the episode of seed {seed} has {len(taken)} steps; a window from step {start} on needs two. Choose an "
            "earlier --start or another --seed."
        )
    keys = agent.config.io.observation.keys
    chosen = seen[start:]
    observations = np.stack(chosen) if keys is None else {key: np.stack([o[key] for o in chosen]) for key in keys}
    window, _ = read_window(agent.config, observations, np.stack(taken[start:]), None, start)
    return replace(window, returns=np.array([asked[start]]), mask=window.mask._replace(returns=np.array([True])))
