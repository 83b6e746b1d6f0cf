"""Gymnasium spaces to the flat vectors networks read, and the checks that two sides fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from agentzoo.errors import SpaceError
from agentzoo.types import ActionSpec, M, ObservationSpec, explain

REWARD_KEY = "reward"  # of a Dict observation: the last reward, not something to observe
GOAL_KEY = "goal"  # of a Dict observation: what a masked agent is to observe at the end of its window


def without_goal(space: gym.Space[Any], keys: tuple[str, ...] | None) -> gym.Space[Any]:
    """What is observed where a Dict also holds a goal: its part "observation", unless an agent reads it by `keys`."""
    if keys is None and isinstance(space, gym.spaces.Dict) and {GOAL_KEY, "observation"} <= space.spaces.keys():
        return space.spaces["observation"]
    return space


def observation_spec(space: gym.Space[Any], keys: tuple[str, ...] | None = None) -> ObservationSpec:
    """How to flatten `space`: a Box, or a Dict of Boxes by `keys` (default: all but "reward", sorted).

    Raises:
        SpaceError: another kind of space, a key that is not there, or more numbers than a network reads.
    """
    if isinstance(space, gym.spaces.Box):
        if keys is not None:
            raise SpaceError(f"obs_keys {list(keys)} need a Dict observation; this space is {space}.")
        shape = tuple(int(n) for n in space.shape)
        return _checked(ObservationSpec, space, size=int(np.prod(shape)), shapes=(shape,))
    if not isinstance(space, gym.spaces.Dict):
        raise SpaceError(f"observations must be a Box or a Dict of Boxes, this space is {space}.")
    names = keys if keys is not None else tuple(sorted(k for k in space.spaces if k != REWARD_KEY))
    shapes: list[tuple[int, ...]] = []
    for name in names:
        part = space.spaces.get(name)
        if not isinstance(part, gym.spaces.Box):
            raise SpaceError(f"observation key {name!r} must be a Box, it is {part}; keys: {sorted(space.spaces)}.")
        shapes.append(tuple(int(n) for n in part.shape))
    if not names:
        raise SpaceError(f"the Dict observation {space} has no key to observe.")
    size = sum(int(np.prod(shape)) for shape in shapes)
    return _checked(ObservationSpec, space, size=size, keys=names, shapes=tuple(shapes))


def _checked(spec: type[M], space: gym.Space[Any], **fields: Any) -> M:
    try:
        return spec(**fields)
    except ValidationError as error:
        raise SpaceError(f"no network is made for {space}: {explain(error)}.") from None


def action_spec(space: gym.Space[Any]) -> ActionSpec:
    """The action side of `space`: a one-dimensional Box (bounded on all sides or on none) or a Discrete.

    Raises:
        SpaceError: another kind of space, a side whose bounds are one number, or more numbers than a network gives.
    """
    if isinstance(space, gym.spaces.Discrete):
        size, start = int(space.n), int(space.start)
        return _checked(ActionSpec, space, kind="discrete", size=size, start=start, dtype="int64")
    if isinstance(space, gym.spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        size, dtype = int(space.shape[0]), "float64" if space.dtype == np.float64 else "float32"
        if bounded.all():
            low, high = (tuple(float(x) for x in bound) for bound in (space.low, space.high))
            return _checked(ActionSpec, space, kind="box", size=size, low=low, high=high, dtype=dtype)
        if not bounded.any():
            return _checked(ActionSpec, space, kind="box", size=size, dtype=dtype)
        raise SpaceError(f"a Box of actions must be bounded on every side or on none, this one is {space}.")
    raise SpaceError(f"actions must be a one-dimensional float Box or Discrete, this space is {space}.")


def observation_space(spec: ObservationSpec) -> gym.spaces.Box | gym.spaces.Dict:
    """Inverse of `observation_spec`; bounds are not kept, so they are infinite."""
    boxes = [gym.spaces.Box(-np.inf, np.inf, shape, np.float32) for shape in spec.shapes]
    return boxes[0] if spec.keys is None else gym.spaces.Dict(dict(zip(spec.keys, boxes, strict=True)))


def action_space(spec: ActionSpec) -> gym.spaces.Box | gym.spaces.Discrete:
    """Inverse of `action_spec`."""
    if spec.kind == "discrete":
        return gym.spaces.Discrete(spec.size, start=spec.start)
    dtype: Any = np.dtype(spec.dtype).type
    low = np.array(spec.low if spec.low is not None else [-np.inf] * spec.size, dtype=dtype)
    high = np.array(spec.high if spec.high is not None else [np.inf] * spec.size, dtype=dtype)
    return gym.spaces.Box(low, high, dtype=dtype)


def flatten_observations(values: Any, spec: ObservationSpec) -> NDArray[np.float32]:
    """(L, ...) array, or a mapping of them, -> (L, S) float32 in the order of `spec`."""
    if spec.keys is None:
        parts = [np.asarray(values)]
    else:
        assert isinstance(values, Mapping)
        parts = [np.asarray(values[key]) for key in spec.keys]
    flat = [part.reshape(len(part), -1) for part in parts]
    return (flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)).astype(np.float32)


def describe_misfit(
    observation: ObservationSpec, action: ActionSpec, observed: gym.Space[Any], acted: gym.Space[Any]
) -> str:
    """In words what of an environment's two spaces is not as expected; nothing if all fits. Dtypes may differ.

    Raises:
        SpaceError: a space no network is made for.
    """
    found = action_spec(acted)
    sides = []
    if observation.keys is not None and not isinstance(observed, gym.spaces.Dict):
        sides.append(f"observations differ: {_shapes(observation)} is expected, this is {observed}")
    elif (seen := observation_spec(observed, observation.keys)) != observation:
        sides.append(f"observations differ: {_shapes(observation)} is expected, this is {_shapes(seen)}")
    if _as_float32(found) != _as_float32(action):
        bounds = _first_other_bounds(action, found)
        what = [_choices(spec) if bounds is None else _bounded(spec, bounds) for spec in (action, found)]
        sides.append(f"actions differ: {what[0]} is expected, this is {what[1]}")
    return "; ".join(sides)


def _shapes(spec: ObservationSpec) -> str:
    if spec.keys is None:
        return f"Box{spec.shapes[0]}"
    return f"Dict({', '.join(f'{key}: {shape}' for key, shape in zip(spec.keys, spec.shapes, strict=True))})"


def _as_float32(spec: ActionSpec) -> ActionSpec:
    """0.1 is another number in float64: bounds that are written alike shall be equal."""
    rounded = {
        side: None if bounds is None else tuple(float(np.float32(x)) for x in bounds)
        for side, bounds in (("low", spec.low), ("high", spec.high))
    }
    return spec.model_copy(update={"dtype": "float32", **rounded})


def _first_other_bounds(a: ActionSpec, b: ActionSpec) -> int | None:
    """The first number whose bounds differ, of two bounded boxes of one size."""
    if a.size != b.size or None in (a.low, a.high, b.low, b.high):
        return None
    sides = [np.array((spec.low, spec.high), dtype=np.float32) for spec in (a, b)]
    return int(np.argmax((sides[0] != sides[1]).any(axis=0)))


def _bounded(spec: ActionSpec, i: int) -> str:
    assert spec.low is not None
    assert spec.high is not None
    return f"Box({spec.size}) whose number {i} lies in [{spec.low[i]:g}, {spec.high[i]:g}]"


def _choices(spec: ActionSpec) -> str:
    if spec.kind == "discrete":
        return f"Discrete({spec.size}{f', start={spec.start}' if spec.start else ''})"
    return f"{'an unbounded ' if spec.low is None else ''}Box({spec.size})"
