"""Images as observations: which Boxes are images, where their channels are, and which wrapper helps with a misfit.

Networks read (C, H, W). An environment may give (C, H, W), as gymnasium's FrameStackObservation and SB3's
VecTransposeImage do, (H, W, C), as SB3's VecFrameStack does, or (H, W). An agent accepts all of them.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.errors import SpaceError
from agentzoo.types import ObservationSpec


def is_image(space: gym.Space[Any]) -> bool:
    """Whether it is a Box of uint8 with two or three axes."""
    return isinstance(space, gym.spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def image_fields(space: gym.Space[Any]) -> dict[str, Any]:
    """Fields of the `ObservationSpec` of an image: its channels are the shortest axis, which must be first or last.

    Raises:
        SpaceError: the shortest axis is in the middle, or the first and the last have the same length.
    """
    shape = tuple(int(n) for n in space.shape or ())
    found: tuple[int, ...]
    if len(shape) == 2:
        channels, found = "none", (1, *shape)
    elif shape[0] < min(shape[1:]):
        channels, found = "first", shape
    elif shape[2] < min(shape[:2]):
        channels, found = "last", (shape[2], *shape[:2])
    else:
        raise SpaceError(
            f"in an image of shape {shape} the axis of channels is not clear: it must be the first or the last axis, "
            "and the shortest. Wrap the environment, for example with gymnasium's TransformObservation or "
            "ResizeObservation."
        )
    return {"size": int(np.prod(shape)), "shapes": (found,), "dtype": "uint8", "channels": channels}


def plain_shape(spec: ObservationSpec) -> tuple[int, ...]:
    """The shape of an image in its environment's own order."""
    return _orders(spec)[spec.channels or "first"]


def _orders(spec: ObservationSpec) -> dict[str, tuple[int, ...]]:
    """Order -> shape of the image of `spec` in that order; the environment's own order comes first."""
    assert spec.image is not None
    channels, height, width = spec.image
    found: dict[str, tuple[int, ...]] = {"first": (channels, height, width), "last": (height, width, channels)}
    if channels == 1:
        found["none"] = (height, width)
    own = spec.channels or "first"
    return {own: found.pop(own), **found}


def image_order(shape: tuple[int, ...], spec: ObservationSpec) -> tuple[str, bool] | None:
    """The order of the axes of an observation of this shape, and whether it is a single observation without leading N.

    The environment's own order is tried first, and a single observation before a batch. None: no order fits.
    """
    for order, one in _orders(spec).items():
        if shape == one:
            return order, True
        if shape[1:] == one:
            return order, False
    return None


def as_image(values: NDArray[Any], spec: ObservationSpec, order: str | None = None) -> NDArray[np.uint8]:
    """(L, ...) in this order (default: the environment's own) -> (L, C, H, W), as a view."""
    order = order or spec.channels
    if order == "last":
        return np.moveaxis(values, -1, 1)
    return values[:, None] if order == "none" else values


def image_misfit(spec: ObservationSpec, space: gym.Space[Any] | tuple[int, ...]) -> str:
    """A sentence: how an observation (its space or shape) differs from the image of `spec`, and which wrapper helps."""
    assert spec.image is not None
    channels, height, width = spec.image
    misfit = f"observations differ: an image {spec.image} (channels, height, width) is expected, this is {space}"
    shape = tuple(int(n) for n in (space if isinstance(space, tuple) else space.shape or ()))
    if not isinstance(space, tuple) and shape in _orders(spec).values():  # the shape fits, the dtype does not
        return (
            f"{misfit}; pixels are whole numbers from 0 to 255 (uint8): omit the scaling "
            "(AtariPreprocessing(scale_obs=False), no NormalizeObservation), the network does it"
        )
    frame = ((height, width), (height, width, 1), (1, height, width))
    if channels > 1 and (shape in frame or shape[1:] in frame):
        return (
            f"{misfit}; stack its frames: gymnasium's FrameStackObservation(env, {channels}), or SB3's "
            f"VecFrameStack(env, {channels}) where a frame is ({height}, {width}, 1)"
        )
    if shape in ((height, width * channels), (height * channels, width)) and channels > 1:
        return (
            f"{misfit}: frames lie side by side, since VecFrameStack needs an axis of channels. Before stacking, give "
            f"frames the shape ({height}, {width}, 1), as AtariPreprocessing(env, grayscale_newaxis=True) does"
        )
    if len(shape) == 4 and shape[-1] in (1, 3):
        return f"{misfit}; make frames grey before stacking, with AtariPreprocessing or GrayscaleObservation"
    if len(shape) == 3 and (height, width) in (shape[:2], shape[1:]):
        return (
            f"{misfit}: the frames have the right size, but there are not {channels} channels; the number of stacked "
            "frames and GrayscaleObservation or AtariPreprocessing change that"
        )
    return f"{misfit}; AtariPreprocessing and ResizeObservation change the size of a frame"
