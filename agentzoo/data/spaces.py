"""Convert Gymnasium spaces to flat vectors for networks, and compare the spaces of agent and environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from agentzoo.data.images import as_image, image_fields, image_misfit, is_image, plain_shape
from agentzoo.errors import SpaceError
from agentzoo.types import ActionSpec, M, ObservationSpec, explain

REWARD_KEY = "reward"  # key of a Dict observation that holds the last reward; agents do not observe it by default
UNBOUNDED = 1e9  # a bound of an action from which on it counts as infinite, as the largest float32 does
FLOATS = ("float16", "float32", "float64")  # dtypes of a Box of actions that `predict` returns
GOAL_KEY = "goal"  # key of a Dict observation: a masked agent's goal at the end of its window


def without_goal(space: gym.Space[Any], keys: tuple[str, ...] | None) -> gym.Space[Any]:
    """For a Dict of "observation" and "goal", the space of "observation", unless the agent reads it by `keys`."""
    if keys is None and isinstance(space, gym.spaces.Dict) and {GOAL_KEY, "observation"} <= space.spaces.keys():
        return space.spaces["observation"]
    return space


def observation_spec(space: gym.Space[Any], keys: tuple[str, ...] | None = None) -> ObservationSpec:
    """How to flatten `space`: a Box, or a Dict of Boxes by `keys` (default: all but "reward", sorted).

    A Box of uint8 with two or three axes is an image, as is one that is the only key. Beside other keys, its pixels are
    numbers of the vector.

    Raises:
        SpaceError: a different kind of space, an unknown key, more numbers than a network reads, or an image whose axis
            of channels is not clear.
    """
    if isinstance(space, gym.spaces.Box):
        if keys is not None:
            raise SpaceError(
                f"obs_keys {list(keys)} need a Dict observation; this space is {space}. Set data.obs_keys=null."
            )
        if is_image(space):
            return _checked(ObservationSpec, space, **image_fields(space))
        shape = tuple(int(n) for n in space.shape)
        return _checked(ObservationSpec, space, size=int(np.prod(shape)), shapes=(shape,))
    if not isinstance(space, gym.spaces.Dict):
        raise SpaceError(f"observations must be a Box or a Dict of Boxes, this space is {space}.{_flattened(space)}")
    names = keys if keys is not None else tuple(sorted(k for k in space.spaces if k != REWARD_KEY))
    shapes: list[tuple[int, ...]] = []
    for name in names:
        part = space.spaces.get(name)
        if not isinstance(part, gym.spaces.Box):
            boxes = [key for key, one in space.spaces.items() if isinstance(one, gym.spaces.Box) and key != REWARD_KEY]
            choose = f" Choose others with data.obs_keys={json.dumps(sorted(boxes))}." if boxes else _flattened(space)
            wrong = f"observation key {name!r} must be a Box, but is {part}" if part else f"no observation key {name!r}"
            raise SpaceError(f"{wrong}; keys: {sorted(space.spaces)}.{choose}")
        if 0 in part.shape:
            rest = json.dumps([key for key in names if key != name])
            raise SpaceError(
                f"observation key {name!r} has shape {part.shape}, without a number. Use data.obs_keys={rest}."
            )
        shapes.append(tuple(int(n) for n in part.shape))
    if not names:
        raise SpaceError(f"the Dict observation {space} has no key to observe.")
    if len(names) == 1 and is_image(only := space.spaces[names[0]]):
        return _checked(ObservationSpec, space, keys=names, **image_fields(only))
    size = sum(int(np.prod(shape)) for shape in shapes)
    return _checked(ObservationSpec, space, size=size, keys=names, shapes=tuple(shapes))


def _flattened(space: gym.Space[Any]) -> str:
    """Advice for a space that a wrapper of gymnasium turns into a Box; else empty."""
    return " gymnasium's wrapper FlattenObservation makes it a Box." if space.is_np_flattenable else ""


def _checked(spec: type[M], space: gym.Space[Any], **fields: Any) -> M:
    try:
        return spec(**fields)
    except ValidationError as error:
        raise SpaceError(f"no network supports {space}: {explain(error)}.") from None


def action_spec(space: gym.Space[Any]) -> ActionSpec:
    """The spec of an action space: a one-dimensional Box (bounded on all sides or on none) or a Discrete.

    Bounds of a billion or more are too wide to be meant, so they count as none.

    Raises:
        SpaceError: a different kind of space, equal lower and upper bounds, or more numbers than a network can output.
    """
    if isinstance(space, gym.spaces.Discrete):
        size, start = int(space.n), int(space.start)
        return _checked(ActionSpec, space, kind="discrete", size=size, start=start, dtype="int64")
    if isinstance(space, gym.spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):
        bounded = np.abs(np.array([space.low, space.high], dtype=np.float64)) < UNBOUNDED
        size, dtype = int(space.shape[0]), space.dtype.name if space.dtype.name in FLOATS else "float32"
        if bounded.all():
            low, high = (tuple(float(x) for x in bound) for bound in (space.low, space.high))
            return _checked(ActionSpec, space, kind="box", size=size, low=low, high=high, dtype=dtype)
        if not bounded.any():
            return _checked(ActionSpec, space, kind="box", size=size, dtype=dtype)
        wanted = "a Box of actions must be bounded on every side or on none"
    else:
        wanted = "actions must be a one-dimensional float Box or Discrete"
    raise SpaceError(
        f"{wanted}, this space is {space}. gymnasium's wrapper TransformAction gives an environment another one."
    )


def observation_space(spec: ObservationSpec) -> gym.spaces.Box | gym.spaces.Dict:
    """Inverse of `observation_spec`, with infinite bounds, since a spec has none."""
    boxes: list[gym.spaces.Box[Any]]
    if spec.image is not None:
        boxes = [gym.spaces.Box(0, 255, plain_shape(spec), np.uint8)]
    else:
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


def flatten_observations(values: Any, spec: ObservationSpec) -> NDArray[Any]:
    """(L, ...) array, or a mapping of them, -> (L, S) float32 in the order of `spec`, or (L, C, H, W) uint8."""
    if spec.image is not None:
        return as_image(np.asarray(values if spec.keys is None else values[spec.keys[0]]), spec)
    if spec.keys is None:
        parts = [np.asarray(values)]
    else:
        assert isinstance(values, Mapping)
        parts = [np.asarray(values[key]) for key in spec.keys]
    flat = [part.reshape(len(part), -1) for part in parts]
    return (flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)).astype(np.float32)


def observation_at(observations: Any, step: int) -> Any:
    """One observation of (L, ...) arrays, or of (nested) dicts of them as Minari stores Dict observations."""
    if isinstance(observations, dict):
        return {key: observation_at(values, step) for key, values in observations.items()}
    return observations[step]


def describe_misfit(
    observation: ObservationSpec, action: ActionSpec, observed: gym.Space[Any], acted: gym.Space[Any]
) -> str:
    """Describe how an environment's spaces differ from the agent's; empty if they match. Dtypes may differ.

    Raises:
        SpaceError: a space that no network supports.
    """
    sides = []
    if not set(observation.keys or ()) <= set(observed if isinstance(observed, gym.spaces.Dict) else ()):
        sides.append(f"observations differ: {_shapes(observation)} is expected, this is {observed}")
    elif (seen := observation_spec(observed, observation.keys)) != observation:
        if observation.image is not None and seen.image == observation.image:
            pass  # a different order of the axes, which acting corrects
        elif observation.image is not None:
            given: Any = observed
            one = given if observation.keys is None else given[observation.keys[0]]  # a Dict holds the key, see above
            sides.append(image_misfit(observation, one))
        else:
            sides.append(f"observations differ: {_shapes(observation)} is expected, this is {_shapes(seen)}")
    if differing := other_actions(action, action_spec(acted)):
        sides.append("actions differ: {} is expected, this is {}".format(*differing))
    return "; ".join(sides)


def other_actions(expected: ActionSpec, found: ActionSpec) -> tuple[str, str] | None:
    """Both action spaces in words, or None if they match. Dtypes may differ."""
    if _as_float32(found) == _as_float32(expected):
        return None
    bounds = _first_other_bounds(expected, found)
    first, second = (_choices(spec) if bounds is None else _bounded(spec, bounds) for spec in (expected, found))
    return first, second


def _shapes(spec: ObservationSpec) -> str:
    if spec.image is not None:
        return f"an image {spec.image}"
    if spec.keys is None:
        return f"Box{spec.shapes[0]}"
    return f"Dict({', '.join(f'{key}: {shape}' for key, shape in zip(spec.keys, spec.shapes, strict=True))})"


def _as_float32(spec: ActionSpec) -> ActionSpec:
    """The spec with bounds rounded to float32, so that 0.1 in float32 equals 0.1 in float64."""
    rounded = {
        side: None if bounds is None else tuple(float(np.float32(x)) for x in bounds)
        for side, bounds in (("low", spec.low), ("high", spec.high))
    }
    return spec.model_copy(update={"dtype": "float32", **rounded})


def _first_other_bounds(a: ActionSpec, b: ActionSpec) -> int | None:
    """The first index at which the bounds of two bounded boxes of equal size differ."""
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
