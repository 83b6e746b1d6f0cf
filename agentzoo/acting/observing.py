"""Check an environment's observations and flatten them for the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.data.images import as_image, image_misfit, image_order
from agentzoo.data.spaces import REWARD_KEY, flatten_observations
from agentzoo.errors import BEYOND_FLOAT32, ObservationError, ShapeError
from agentzoo.text import counted
from agentzoo.types import ObservationSpec


class Observed(NamedTuple):
    """flat: (N, S) float32, or (N, C, H, W) uint8. single: the observation had no leading N."""

    flat: NDArray[Any]
    single: bool


def read_observation(observation: Any, spec: ObservationSpec, name: str) -> Observed:
    """An observation or a batch of N, checked and flattened; `name` is the agent's, for messages.

    Raises:
        ShapeError: a different structure or shape. ObservationError: NaN or infinity.
    """
    if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
        raise ShapeError(
            f"{name} got a tuple as observation. If it is what env.reset() returned, unpack it: "
            "obs, info = env.reset()."
        )
    if (spec.keys is not None) != isinstance(observation, Mapping):
        want = f"a dict with {', '.join(spec.keys)}" if spec.keys is not None else f"an array {spec.shapes[0]}"
        raise ShapeError(f"{name} expects {want}, got {type(observation).__name__}.")
    parts = observation if spec.keys is not None else {"": observation}
    keys = spec.keys if spec.keys is not None else ("",)
    missing = [key for key in keys if key not in parts]
    if missing:
        raise ShapeError(f"{name} needs {missing} in the observation; it holds {sorted(parts)}.")
    if spec.image is not None:
        return _read_image(as_numbers(parts[keys[0]], _called(keys[0])), spec, _called(keys[0]), name)
    arrays, singles = {}, {}
    for key, shape in zip(keys, spec.shapes, strict=True):
        values = as_numbers(parts[key], _called(key))
        if values.shape == shape:
            values, single = values[None], True
        elif values.shape[1:] == shape and values.ndim == len(shape) + 1 and len(values):
            single = False
        elif values.shape == (0, *shape):
            raise ShapeError(f"{_called(key)} is an empty batch, shape {values.shape}; {name} needs an observation.")
        else:
            raise ShapeError(
                f"{_called(key)} has shape {values.shape}; {name} expects {shape} or (N, {', '.join(map(str, shape))})."
            )
        singles[key] = (single, len(values))
        arrays[key] = values
    if len(set(singles.values())) > 1:
        sizes = {key: "is a single one" if one else f"has {counted(n, 'row')}" for key, (one, n) in singles.items()}
        held = ", ".join(f"{key!r} {size}" for key, size in sizes.items())
        raise ShapeError(f"the parts of the observation disagree on the number of environments: {held}.")
    with np.errstate(over="ignore"):  # it becomes infinity, which is refused
        flat = flatten_observations(arrays if spec.keys is not None else arrays[""], spec)
    if not np.isfinite(flat).all():
        row, column = np.argwhere(~np.isfinite(flat))[0]
        beyond = f" ({BEYOND_FLOAT32})" if np.isinf(flat[row, column]) else ""
        raise ObservationError(f"obs holds {flat[row, column]} at environment {row}, number {column}{beyond}.")
    return Observed(flat, single)


def _read_image(values: NDArray[Any], spec: ObservationSpec, called: str, name: str) -> Observed:
    """Pixels in any order of axes that fits, as (N, C, H, W)."""
    found = image_order(values.shape, spec)
    if found is None or not len(values):
        raise ShapeError(f"{called} does not fit {name}: {image_misfit(spec, values.shape)}.")
    if values.dtype != np.uint8:
        whole = values.dtype.kind in "iu" and values.min() >= 0 and values.max() <= 255
        if not whole:
            raise ShapeError(
                f"{called} has dtype {values.dtype}; {name} reads pixels, whole numbers from 0 to 255 (uint8). Omit "
                "the scaling (AtariPreprocessing(scale_obs=False), no NormalizeObservation): the network does it."
            )
        values = values.astype(np.uint8)
    order, single = found
    image = as_image(values[None] if single else values, spec, order)
    return Observed(np.require(image, requirements=["C", "W"]), single)  # PyTorch reads no flipped or read-only arrays


def reward_beside(observation: Any, spec: ObservationSpec) -> NDArray[np.float64] | None:
    """(N,) rewards from a Dict observation, unless the agent itself observes them.

    Raises:
        ShapeError: not numbers.
    """
    if not isinstance(observation, Mapping) or REWARD_KEY not in observation or REWARD_KEY in (spec.keys or ()):
        return None
    return as_numbers(observation[REWARD_KEY], _called(REWARD_KEY)).astype(np.float64).reshape(-1)


def _called(key: str) -> str:
    return f"obs[{key!r}]" if key else "obs"


def as_numbers(values: Any, called: str) -> NDArray[Any]:
    """`values` as an array of numbers, dtype unchanged.

    Raises:
        ShapeError: ragged, not numbers, or a tensor that NumPy cannot read; `called` is their name in the message.
    """
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # torch raises the last two: tensors on a GPU or with grad
        raise ShapeError(f"{called} is not an array of numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"{called} must hold numbers, but has dtype {array.dtype}.")
    return array


def is_count(value: Any) -> bool:
    """Whether `value` is a whole number from 0 on, below 2^31."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(0 <= value < 2**31)
