"""What an environment returned, checked and flattened for the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.data.spaces import REWARD_KEY, flatten_observations
from agentzoo.errors import ObservationError, ShapeError
from agentzoo.types import ObservationSpec


class Observed(NamedTuple):
    """flat: (N, S). single: there was no leading N."""

    flat: NDArray[np.float32]
    single: bool


def read_observation(observation: Any, spec: ObservationSpec, name: str) -> Observed:
    """An observation, or a batch of N, as an agent called `name` reads it.

    Raises:
        ShapeError: another structure or shape. ObservationError: NaN or infinity.
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
        raise ShapeError(f"{name} misses {missing} in the observation; it holds {sorted(parts)}.")
    arrays, singles = {}, set()
    for key, shape in zip(keys, spec.shapes, strict=True):
        values = as_numbers(parts[key], _called(key))
        if values.shape == shape:
            values, single = values[None], True
        elif values.shape[1:] == shape and values.ndim == len(shape) + 1 and len(values):
            single = False
        elif values.shape == (0, *shape):
            raise ShapeError(f"{_called(key)} is a batch of no observation, shape {values.shape}; {name} needs one.")
        else:
            raise ShapeError(
                f"{_called(key)} has shape {values.shape}; {name} expects {shape} or (N, "
                f"{', '.join(map(str, shape))}). If this is the tuple from env.reset(), unpack it: "
                "obs, info = env.reset()."
            )
        singles.add((single, len(values)))
        arrays[key] = values
    if len(singles) > 1:
        raise ShapeError(f"the parts of the observation disagree on the number of environments: {sorted(singles)}.")
    flat = flatten_observations(arrays if spec.keys is not None else arrays[""], spec)
    if not np.isfinite(flat).all():
        row, column = np.argwhere(~np.isfinite(flat))[0]
        raise ObservationError(f"obs holds {flat[row, column]} at environment {row}, number {column}.")
    return Observed(flat, next(iter(singles))[0])


def reward_beside(observation: Any, spec: ObservationSpec) -> NDArray[np.float64] | None:
    """(N,) rewards in a Dict observation, if the agent does not observe them itself.

    Raises:
        ShapeError: no numbers.
    """
    if not isinstance(observation, Mapping) or REWARD_KEY not in observation or REWARD_KEY in (spec.keys or ()):
        return None
    return as_numbers(observation[REWARD_KEY], _called(REWARD_KEY)).astype(np.float64).reshape(-1)


def _called(key: str) -> str:
    return f"obs[{key!r}]" if key else "obs"


def as_numbers(values: Any, called: str) -> NDArray[Any]:
    """`values` as an array of numbers of their own kind.

    Raises:
        ShapeError: ragged, no numbers, or a tensor that NumPy cannot read; it names them as `called`.
    """
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # torch raises the last two: a GPU's, one with grad
        raise ShapeError(f"{called} is no array of numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"{called} must hold numbers, it has dtype {array.dtype}.")
    return array


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 0 on."""
    return isinstance(value, int | np.integer) and bool(value >= 0)
