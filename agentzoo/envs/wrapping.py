"""What wrappers around an environment do to what an agent sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym


class Normalizer(NamedTuple):
    """A wrapper that normalizes observations, and what to do instead."""

    name: str
    instead: str


def observation_normalizer(env: Any) -> Normalizer | None:
    """The wrapper, at any depth, of a gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv.

    Inside a gymnasium AsyncVectorEnv nothing can be seen.
    """
    if getattr(env, "norm_obs", False):  # an SB3 VecEnvWrapper hands on the attributes of those inside
        return Normalizer("VecNormalize", "pass VecNormalize(..., norm_obs=False)")
    wrapper = gym.wrappers.NormalizeObservation
    found = Normalizer(wrapper.__name__, "leave that wrapper away")
    if hasattr(env, "env_is_wrapped"):
        return found if any(env.env_is_wrapped(wrapper)) else None
    while env is not None:
        if isinstance(env, wrapper | gym.wrappers.vector.NormalizeObservation):
            return found
        if isinstance(env, gym.vector.SyncVectorEnv):
            return next(filter(None, map(observation_normalizer, env.envs)), None)
        env = getattr(env, "env", None)
    return None
