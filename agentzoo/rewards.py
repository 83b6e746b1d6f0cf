"""Where the reward of the last step comes from when the caller's code does not pass it (stock SB3 code does not).

A bound environment is asked: SB3's `Monitor` keeps the raw rewards of the running episode, gymnasium's
`RecordEpisodeStatistics` and SB3's `VecMonitor` keep its return so far. All see the environment's own reward, before
`VecNormalize` scales it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reader = Callable[[], tuple[NDArray[np.float64], bool]]  # (N,) rewards, False; or (N,) returns so far, True


def reader_of(env: Any) -> Reader | None:
    """How to read the rewards of a gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv; None if nobody keeps them."""
    if hasattr(env, "env_method") and hasattr(env, "num_envs"):
        return _vec_env_reader(env)
    import gymnasium as gym

    if isinstance(env, gym.vector.VectorEnv):
        return _vector_env_reader(env)
    if isinstance(env, gym.Env):
        return _env_reader(env)
    return None


def _newest(rewards: Sequence[float]) -> float:
    return float(rewards[-1]) if len(rewards) else 0.0


def _vec_env_reader(env: Any) -> Reader | None:
    try:
        kept = env.get_attr("rewards")
    except AttributeError:
        kept = None
    if kept is not None and all(isinstance(rewards, list) for rewards in kept):
        return lambda: (np.array([_newest(r) for r in env.get_attr("rewards")]), False)
    if isinstance(getattr(env, "episode_returns", None), np.ndarray):  # VecMonitor, at any depth of wrappers
        return lambda: (np.asarray(env.episode_returns, dtype=np.float64), True)
    return None


def _vector_env_reader(env: Any) -> Reader | None:
    inner = env
    while inner is not None:
        if hasattr(inner, "episode_returns"):
            keeper = inner
            return lambda: (np.asarray(keeper.episode_returns, dtype=np.float64), True)
        inner = getattr(inner, "env", None)
    return None


def _env_reader(env: Any) -> Reader | None:
    inner = env
    while inner is not None:
        own = vars(inner)
        if isinstance(own.get("rewards"), list):  # SB3 Monitor
            monitor = inner
            return lambda: (np.array([_newest(monitor.rewards)]), False)
        if "episode_returns" in own:  # gymnasium RecordEpisodeStatistics
            keeper = inner
            return lambda: (np.array([float(keeper.episode_returns)]), True)
        inner = getattr(inner, "env", None)
    return None
