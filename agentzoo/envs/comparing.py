"""Compare the options of an environment with those of its registration and of an agent."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from agentzoo.envs.env_options import MAX_STEPS
from agentzoo.types import RENDERING

UNUSED = {*RENDERING, "seed"}  # options that do not change the task
VECTORS = {"num_envs", "vectorization_mode", "vector_kwargs", "wrappers"}  # of `gym.make_vec`
LIMIT = "max_episode_steps"
UNKNOWN = "unknown"


def other_options(spec: EnvSpec, options: Mapping[str, Any] | None = None) -> list[str]:
    """Names of options in which an environment differs from the registered one with `options`.

    Empty if its id is not registered; "unknown" if the spec holds no more than its id (`wrapping.spec_of`).
    """
    registered = gym.registry.get(spec.id)
    if registered is None:
        return []
    if spec.entry_point is None:
        return [UNKNOWN]
    wanted = task_options({LIMIT: _limit(registered, spec), **registered.kwargs, **(options or {})})
    found = task_options({LIMIT: spec.max_episode_steps, **spec.kwargs})
    return differing(wanted, found, registered)


def differing(wanted: Mapping[str, Any], found: Mapping[str, Any], registered: EnvSpec | None) -> list[str]:
    """Names of the options (as of `task_options`) with other values; one that is not set has its default value."""
    names = [name for name in {**wanted, **found} if _differs(name, wanted, found)]
    if not names or registered is None:
        return names
    defaults = _defaults(registered)
    return [name for name in names if _differs(name, {**defaults, **wanted}, {**defaults, **found})]


def _defaults(spec: EnvSpec) -> dict[str, Any]:
    """The defaults of an environment's options, from the signature of its entry point; empty if that cannot be read."""
    try:
        creator: Any = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
        parameters = inspect.signature(creator).parameters.values()
    except Exception:  # an import may raise anything
        return {}
    return task_options({one.name: one.default for one in parameters if one.default is not one.empty})


def _limit(registered: EnvSpec, found: EnvSpec) -> int | None:
    """The registered limit of steps; without one, that of an environment which the entry point wraps."""
    if registered.max_episode_steps is not None or found.max_episode_steps is None:
        return registered.max_episode_steps
    kwargs = {name: value for name, value in found.kwargs.items() if name not in UNUSED | VECTORS}
    try:
        with closing(gym.make(registered, **kwargs)) as made:
            return None if made.spec is None else made.spec.max_episode_steps
    except Exception:  # an environment may raise anything; it exists already, so this is no place to fail
        return None


def task_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that change the task, as JSON holds them: neither rendering nor the seed nor those of `gym.make_vec`.

    The limit of steps is always among them; without one, or with a longer one, it is `MAX_STEPS`.
    """
    kept = {name: _plain(value) for name, value in options.items() if name not in UNUSED | VECTORS}
    limit = kept.get(LIMIT)
    return {**kept, LIMIT: limit if type(limit) is int and 0 < limit < MAX_STEPS else MAX_STEPS}


def _plain(value: Any) -> Any:
    """A value of an option as JSON holds it. An object that JSON has no form for is its text, without its address."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))  # `gymnasium.make` copies an object, which moves it


def _differs(name: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether an option is set on one side only, or to different values."""
    return name not in left or name not in right or bool(left[name] != right[name])
