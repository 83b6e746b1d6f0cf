"""Compare the options of an environment with those of its registration and of an agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from agentzoo.envs.options import MOST_STEPS
from agentzoo.types import RENDERING

UNUSED = {*RENDERING, "seed"}  # options that do not change the task
VECTORS = {"num_envs", "vectorization_mode", "vector_kwargs", "wrappers"}  # of `gym.make_vec`
LIMIT = "max_episode_steps"


def other_options(spec: EnvSpec, options: Mapping[str, Any] | None = None) -> list[str]:
    """Names of options in which an environment differs from the registered one with `options`.

    Rendering and the seed do not count, nor does a limit of at least `MOST_STEPS`. Empty if its id is not registered.
    """
    registered = gym.registry.get(spec.id)
    if registered is None:
        return []
    wanted, found = _options_of(registered, options or {}), _options_of(spec, {})
    names = [name for name in {**wanted, **found} if name not in UNUSED | VECTORS]
    return [name for name in names if name not in wanted or name not in found or wanted[name] != found[name]]


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON holds them: tuples as lists."""
    found: dict[str, Any] = json.loads(json.dumps(dict(options), default=repr))
    return found


def _options_of(spec: EnvSpec, more: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a spec with `more`, and its limit of steps."""
    options = {LIMIT: spec.max_episode_steps, **plain(spec.kwargs), **more}
    limit = options[LIMIT]
    ends = isinstance(limit, int | float) and 0 < limit < MOST_STEPS
    return {**options, LIMIT: limit if ends else MOST_STEPS}
