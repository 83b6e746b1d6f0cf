"""What wrappers around an environment do to what an agent sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

# the last one of each kind of environment is the base of all a user writes
_REWARDS = (gym.wrappers.NormalizeReward, gym.wrappers.ClipReward, gym.wrappers.TransformReward, gym.RewardWrapper)
_VECTOR_REWARDS = (gym.wrappers.vector.NormalizeReward, gym.vector.VectorRewardWrapper)


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
    for layer in layers(env):
        if isinstance(layer, wrapper | gym.wrappers.vector.NormalizeObservation):
            return found
        if isinstance(layer, gym.vector.SyncVectorEnv):
            return next(filter(None, map(observation_normalizer, layer.envs)), None)
    return None


def layers(env: Any) -> Iterator[Any]:
    """A gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv and what it wraps, from outside in."""
    while env is not None:
        yield env
        env = getattr(env, "venv" if hasattr(env, "env_is_wrapped") else "env", None)


def resets_late(env: gym.vector.VectorEnv[Any, Any, Any]) -> bool:
    """Whether a VectorEnv returns the first observation of an episode a step after the end of the one before.

    It is Gymnasium's default; an environment that does not say its mode is taken to do so.
    """
    late = gym.vector.AutoresetMode.NEXT_STEP
    return bool(gym.vector.AutoresetMode(env.metadata.get("autoreset_mode", late)) == late)


def spec_of(env: Any) -> EnvSpec | None:
    """Gymnasium's spec of an environment, or of the first one of a vector of them; None where it was not registered."""
    spec = getattr(env, "spec", None)
    return env.get_attr("spec")[0] if spec is None and hasattr(env, "get_attr") else spec


def reward_changer(env: Any) -> str | None:
    """The outermost wrapper that changes rewards of a gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv, by its name.

    What `gymnasium.make` made is the environment itself, whatever lies inside. Not seen: what lies inside a gymnasium
    AsyncVectorEnv, and a `step` that changes rewards without being a reward wrapper.
    """
    for layer in layers(env):
        own = vars(layer)
        if isinstance(layer, (*_REWARDS, *_VECTOR_REWARDS)):
            return type(layer).__name__
        if own.get("norm_reward"):
            return "VecNormalize"
        if isinstance(layer, gym.wrappers.OrderEnforcing):  # which `gymnasium.make` puts around what it makes
            return None
        if "num_envs" in own and "envs" in own:  # a SyncVectorEnv or DummyVecEnv
            return next(filter(None, map(reward_changer, layer.envs)), None)
        if hasattr(layer, "env_is_wrapped") and "venv" not in own:  # a SubprocVecEnv
            return next((kind.__name__ for kind in _REWARDS if any(layer.env_is_wrapped(kind))), None)
    return None


class _ScaledMonitor(type):
    def __instancecheck__(cls, env: Any) -> bool:
        return isinstance(vars(env).get("rewards"), list) and reward_changer(env) is not None


class ScaledMonitor(metaclass=_ScaledMonitor):
    """`isinstance(env, ScaledMonitor)`: whether it is SB3's Monitor around a wrapper that changes rewards.

    A class, because that is what SB3's `env_is_wrapped` can ask environments in other processes about.
    """
