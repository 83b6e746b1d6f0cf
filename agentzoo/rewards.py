"""Where the reward of the last step comes from when the caller's code does not pass it (stock SB3 code does not).

A bound environment is asked: SB3's `Monitor` keeps the raw rewards of the running episode, gymnasium's
`RecordEpisodeStatistics` and SB3's `VecMonitor` keep its return so far. All see the environment's own reward, before
`VecNormalize` scales it. All also count the steps of that episode, which tells whether it is the one being played.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Kept(NamedTuple):
    """What N environments keep of their running episodes.

    rewards: (N,) of the newest step, or the return so far if `cumulative`. steps: (N,) taken in the episode.
    """

    rewards: NDArray[np.float64]
    steps: NDArray[np.int64]
    cumulative: bool


Reader = Callable[[], Kept]


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


def _newest(rewards: Sequence[Sequence[float]]) -> Kept:
    """Of Monitors, each with the list of its episode's rewards."""
    newest = np.array([float(one[-1]) if len(one) else 0.0 for one in rewards])
    return Kept(newest, np.array([len(one) for one in rewards]), cumulative=False)


def _so_far(keeper: Any) -> Kept:
    """Of whoever keeps the returns and lengths of its episodes: one of each, or (N,)."""
    returns = np.asarray(keeper.episode_returns, dtype=np.float64).reshape(-1)
    return Kept(returns, np.asarray(keeper.episode_lengths, dtype=np.int64).reshape(-1), cumulative=True)


def _vec_env_reader(env: Any) -> Reader | None:
    # asked before it is got: an AttributeError would end a SubprocVecEnv's workers
    if env.has_attr("rewards") and all(isinstance(rewards, list) for rewards in env.get_attr("rewards")):
        return lambda: _newest(env.get_attr("rewards"))
    if isinstance(getattr(env, "episode_returns", None), np.ndarray):  # VecMonitor, at any depth of wrappers
        return lambda: _so_far(env)
    return None


def _vector_env_reader(env: Any) -> Reader | None:
    inner = env
    while inner is not None:
        if hasattr(inner, "episode_returns"):
            keeper = inner
            return lambda: _so_far(keeper)
        inner = getattr(inner, "env", None)
    return None


def _env_reader(env: Any) -> Reader | None:
    inner = env
    while inner is not None:
        own = vars(inner)
        if isinstance(own.get("rewards"), list):  # SB3 Monitor
            monitor = inner
            return lambda: _newest([monitor.rewards])
        if "episode_returns" in own:  # gymnasium RecordEpisodeStatistics
            keeper = inner
            return lambda: _so_far(keeper)
        inner = getattr(inner, "env", None)
    return None
