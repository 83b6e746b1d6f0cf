"""Inspect the wrappers of an environment: which of them change observations or rewards."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from agentzoo.errors import ConfigError

# the last class of each list is the base of user-written wrappers
_REWARDS = (gym.wrappers.NormalizeReward, gym.wrappers.ClipReward, gym.wrappers.TransformReward, gym.RewardWrapper)
_VECTOR_REWARDS = (gym.wrappers.vector.NormalizeReward, gym.vector.VectorRewardWrapper)

# a spec of these, in these wrappers, holds no functions
PLAIN_PACKAGES = ("gymnasium.", "gymnasium_robotics.", "ale_py.", "agentzoo.")
PLAIN_WRAPPERS = {
    *("TimeLimit", "OrderEnforcing", "PassiveEnvChecker", "RecordEpisodeStatistics"),
    *("AtariPreprocessing", "FrameStackObservation"),
}


class Normalizer(NamedTuple):
    """A wrapper that normalizes observations, and what to do instead."""

    name: str
    instead: str


def observation_normalizer(env: Any) -> Normalizer | None:
    """The wrapper that normalizes observations, at any depth of a gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv.

    In a gymnasium AsyncVectorEnv it misses a subclass of `NormalizeObservation`.
    """
    if getattr(env, "norm_obs", False):  # an SB3 VecEnvWrapper forwards attributes of the wrappers inside
        return Normalizer("VecNormalize", "pass VecNormalize(..., norm_obs=False)")
    wrapper = gym.wrappers.NormalizeObservation
    found = Normalizer(wrapper.__name__, "remove that wrapper")
    if hasattr(env, "env_is_wrapped"):
        return found if any_wrapped(env, wrapper) else None
    for layer in layers(env):
        if isinstance(layer, wrapper | gym.wrappers.vector.NormalizeObservation):
            return found
        if isinstance(layer, gym.vector.SyncVectorEnv):
            return next(filter(None, map(observation_normalizer, layer.envs)), None)
        if any(wrapper.__name__ in names for names in _names_inside(layer)):
            return found
    return None


def _names_inside(layer: Any) -> list[list[str]]:
    """Class names of the wrappers, from the outside in, of each environment of a gymnasium AsyncVectorEnv.

    Empty for another layer, and for one that is closed or busy.
    """
    shown = _shown_inside(layer) if isinstance(layer, gym.vector.AsyncVectorEnv) else []
    return [re.findall(r"<(\w+)", one) for one in shown]


def _shown_inside(env: Any) -> list[str]:
    """The environments in other processes as text, "<NormalizeReward<TimeLimit<OrderEnforcing<...>>>".

    Empty for a gymnasium AsyncVectorEnv that is closed or busy.
    """
    try:
        return list(env.env_method("__str__") if hasattr(env, "env_method") else env.call("__str__"))
    except (gym.error.ClosedEnvironmentError, gym.error.AlreadyPendingCallError):
        return []


def any_wrapped(env: Any, kind: type) -> bool:
    """Whether one environment of an SB3 VecEnv has this wrapper; False if the VecEnv cannot tell."""
    return any(_wrapped(env, kind))


def all_wrapped(env: Any, kind: type) -> bool:
    """Whether every environment of an SB3 VecEnv has this wrapper; False if the VecEnv cannot tell."""
    found = _wrapped(env, kind)
    return bool(found) and all(found)


def _wrapped(env: Any, kind: type) -> list[bool]:
    try:
        return list(env.env_is_wrapped(kind))
    except NotImplementedError:  # some simulators that step many worlds at once
        return []
    except (OSError, EOFError) as error:
        raise ConfigError(
            f"the processes of this {type(env).__name__} have ended: it is closed, or one failed. Create it again."
        ) from error


def layers(env: Any) -> Iterator[Any]:
    """A gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv and all environments that it wraps, from the outside in."""
    while env is not None:
        yield env
        inside = getattr(env, "venv" if hasattr(env, "env_is_wrapped") else "env", None)
        is_env = isinstance(inside, gym.Env | gym.vector.VectorEnv) or hasattr(inside, "env_is_wrapped")
        env = inside if is_env else None  # an environment may call something else `env`, such as a dict of settings


def all_layers(env: Any) -> Iterator[Any]:
    """`layers`, and those of the first environment of a DummyVecEnv or SyncVectorEnv."""
    for layer in layers(env):
        yield layer
        if "num_envs" in vars(layer) and "envs" in vars(layer):
            yield from layers(layer.envs[0])


def is_monitor(layer: Any) -> bool:
    """Whether it is SB3's Monitor. A wrapper of another kind may keep `rewards` of its own."""
    return _is_of_sb3(layer, "stable_baselines3.common.monitor", "Monitor")


def keeps_returns(layer: Any) -> bool:
    """Whether it is gymnasium's RecordEpisodeStatistics, of one environment or of many, or SB3's VecMonitor."""
    kinds = gym.wrappers.RecordEpisodeStatistics | gym.wrappers.vector.RecordEpisodeStatistics
    return isinstance(layer, kinds) or _is_of_sb3(layer, "stable_baselines3.common.vec_env.vec_monitor", "VecMonitor")


def _is_of_sb3(layer: Any, module: str, name: str) -> bool:
    """`isinstance` without the import, which takes seconds."""
    return any((kind.__module__, kind.__name__) == (module, name) for kind in type(layer).__mro__)


def spaces_of(env: Any) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Spaces of one observation and of one action, also of a vector environment."""
    observation = getattr(env, "single_observation_space", env.observation_space)
    return observation, getattr(env, "single_action_space", env.action_space)


def autoreset_mode(env: gym.vector.VectorEnv[Any, Any, Any]) -> gym.vector.AutoresetMode:
    """Who resets an environment whose episode has ended, and when; next-step if the VectorEnv does not state it."""
    stated = env.metadata.get("autoreset_mode", gym.vector.AutoresetMode.NEXT_STEP)
    # before gymnasium 1.4, all vector environments of one class share their metadata: the last one made states its mode
    return gym.vector.AutoresetMode(getattr(env.unwrapped, "autoreset_mode", stated))


def spec_of(env: Any) -> EnvSpec | None:
    """Gymnasium's spec of an environment, or of the first one of a vector environment; None if not registered.

    An environment in another process cannot send a spec that holds a lambda, of a wrapper or an option: the attempt
    would end that process. The spec then has an id and no entry point.
    """
    for layer in layers(env):
        spec: EnvSpec | None = getattr(layer, "spec", None)
        if spec is not None:
            return spec
        if "num_envs" in vars(layer) and "envs" in vars(layer):  # a SyncVectorEnv or DummyVecEnv
            return spec_of(layer.envs[0])
        if isinstance(layer, gym.vector.AsyncVectorEnv) or (hasattr(layer, "env_method") and "venv" not in vars(layer)):
            return _spec_inside(layer)
    return None


def _spec_inside(env: Any) -> EnvSpec | None:
    """`spec_of` a gymnasium AsyncVectorEnv or an SB3 VecEnv without wrappers."""
    is_async = isinstance(env, gym.vector.AsyncVectorEnv)
    if is_async or any_wrapped(env, KeepsItsSpec):
        shown = (_shown_inside(env) or [""])[0]
        name = _id_shown(shown)
        if name is None:
            return None
        if not (is_async and _is_plain(shown, name)):
            return EnvSpec(name)
    try:
        sent: EnvSpec | None = env.get_attr("spec")[0]
    except (AttributeError, NotImplementedError):  # of a VecEnv that is one simulator and not a row of environments
        return None
    return sent


def _id_shown(shown: str) -> str | None:
    """The id in an environment as text, "<TimeLimit<OrderEnforcing<HopperEnv<Hopper-v5>>>>"."""
    found = re.search(r"<\w+<([\w:./-]+)>>", shown)
    return None if found is None else found[1]


def _is_plain(shown: str, env_id: str) -> bool:
    """Whether an environment, as text, is one of Gymnasium's or ours in wrappers that take no functions."""
    registered = gym.registry.get(env_id)
    known = registered is not None and str(registered.entry_point).startswith(PLAIN_PACKAGES)
    return known and set(re.findall(r"<(\w+)(?=<\w+<)", shown)) <= PLAIN_WRAPPERS


def reward_changer(env: Any) -> str | None:
    """The name of the outermost reward-changing wrapper of a gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv.

    The result of `gymnasium.make` counts as the environment itself, with the wrappers of its registration. It cannot
    detect a `step` method that changes rewards in a wrapper of a different kind, nor a user-written wrapper in a
    gymnasium AsyncVectorEnv.
    """
    chain = list(layers(env))
    for layer in chain[: _made_from([type(one).__name__ for one in chain], lambda at: chain[at].spec)]:
        own = vars(layer)
        if isinstance(layer, (*_REWARDS, *_VECTOR_REWARDS)):
            return type(layer).__name__
        if own.get("norm_reward"):
            return "VecNormalize"
        if "num_envs" in own and "envs" in own:  # a SyncVectorEnv or DummyVecEnv
            return next(filter(None, map(reward_changer, layer.envs)), None)
        shown = _shown_inside(layer) if isinstance(layer, gym.vector.AsyncVectorEnv) else []
        if changer := next(filter(None, map(_changer_shown, shown)), None):
            return changer
        if hasattr(layer, "env_is_wrapped") and "venv" not in own:  # a SubprocVecEnv
            made = all_wrapped(layer, gym.wrappers.OrderEnforcing)
            if made and not any_wrapped(layer, ChangedOutside):
                return None
            return next((kind.__name__ for kind in _REWARDS if any_wrapped(layer, kind)), None)
    return None


def _changer_shown(shown: str) -> str | None:
    """`reward_changer` of one environment as text."""
    names = re.findall(r"<(\w+)", shown)
    own = names[: _made_from(names, lambda _: gym.registry.get(_id_shown(shown) or ""))]
    return next((name for name in own if name in {kind.__name__ for kind in _REWARDS}), None)


def _made_from(names: list[str], spec_at: Callable[[int], EnvSpec | None]) -> int:
    """Where in the names of wrappers, from the outside in, the result of `gymnasium.make` begins.

    It adds OrderEnforcing, around that TimeLimit, and around that the wrappers of the registration.

    Args:
        spec_at: the spec of the environment with this place among the names.
    """
    if gym.wrappers.OrderEnforcing.__name__ not in names:
        return len(names)
    at = names.index(gym.wrappers.OrderEnforcing.__name__)
    spec = spec_at(at)
    registered = None if spec is None else gym.registry.get(spec.id)
    added = [] if registered is None else [one.entry_point for one in registered.additional_wrappers]
    for name in (gym.wrappers.TimeLimit.__name__, *(entry.rpartition(":")[2] for entry in added)):
        at -= at > 0 and names[at - 1] == name
    return at


# SB3's `env_is_wrapped` checks environments in other processes by class, so these questions are classes


class _ChangedOutside(type):
    def __instancecheck__(cls, env: Any) -> bool:
        made = any(isinstance(layer, gym.wrappers.OrderEnforcing) for layer in layers(env))
        return made and reward_changer(env) is not None


class ChangedOutside(metaclass=_ChangedOutside):
    """`isinstance(env, ChangedOutside)`: whether `env` changes the rewards of what `gymnasium.make` returned."""


class _ScaledMonitor(type):
    def __instancecheck__(cls, env: Any) -> bool:
        return is_monitor(env) and reward_changer(env) is not None


class ScaledMonitor(metaclass=_ScaledMonitor):
    """`isinstance(env, ScaledMonitor)`: whether `env` is SB3's Monitor around a wrapper that changes rewards."""


class _KeepsItsSpec(type):
    def __instancecheck__(cls, env: Any) -> bool:
        try:
            pickle.dumps(env.spec)
        except Exception:  # pickling raises many types
            return True
        return False


class KeepsItsSpec(metaclass=_KeepsItsSpec):
    """`isinstance(env, KeepsItsSpec)`: whether the spec of `env` cannot be sent to another process."""
