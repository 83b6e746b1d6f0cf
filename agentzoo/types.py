"""Types that all modules share: `Batch`, action and observation specs, and the letters for shapes.

Shapes: `B` windows, `K` context (env steps), `N` envs, `S` obs size, `A` action size, `D` embedding,
`H` heads, `L` steps in an episode, `T` steps in a dataset. Of an image, `C, H, W`: channels, rows, columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from torch import Tensor

from agentzoo.record import Config as Config
from agentzoo.record import M as M
from agentzoo.record import explain as explain

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
Losses = dict[str, Tensor]
Average = Literal["steps", "windows", "pairs"]  # "pairs": of a valid step and the next one

MAX_SIZE = 65_536  # largest dimension in a config: absurd values are rejected before anything is built
SizeInt = Annotated[int, Field(ge=1, le=MAX_SIZE)]
WHITE = 255.0  # largest value of a pixel
MAX_PIXELS = 1_048_576  # numbers of an image, its channels included
MAX_WINDOW = 16_777_216  # numbers that one environment's window of observations holds: 64 MB
MAX_TARGET = 1e9  # largest absolute target return
# options of an environment that do not change the task
RENDERING = {"render_mode", "width", "height", "camera_id", "camera_name", "default_camera_config"}
TargetReturn = Annotated[float, Field(ge=-MAX_TARGET, le=MAX_TARGET)]  # raw env units
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # SHA-256


class ActionSpec(Config):
    """The action space for the network: a Box of `size` numbers or `size` discrete choices.

    `low` and `high` bound each of the A numbers of a Box; both are None for an unbounded Box.
    """

    kind: Literal["box", "discrete"]
    size: SizeInt
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    start: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0  # of a Discrete space: its first action
    dtype: Literal["float16", "float32", "float64", "int64"] = "float32"  # of what `predict` returns

    @model_validator(mode="after")
    def _bounds_fit(self) -> ActionSpec:
        if (self.low is None) != (self.high is None):
            raise ValueError("low and high must be set together")
        if self.low is not None and self.high is not None:
            if self.kind == "discrete":
                raise ValueError("a discrete action space has no bounds")
            if not len(self.low) == len(self.high) == self.size:
                raise ValueError(f"low and high need {self.size} numbers each")
            if any(low >= high for low, high in zip(self.low, self.high, strict=True)):
                raise ValueError("each low must be below its high")
        return self


def _each_once(keys: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ValueError(f"{', '.join(map(repr, twice))} more than once; name each key once")
    return keys


Keys = Annotated[tuple[str, ...], AfterValidator(_each_once)]  # of a Dict observation


class ObservationSpec(Config):
    """The observation as one flat vector (a Box, or the named Boxes of a Dict in this order), or as an image.

    An image is a Box of uint8, alone or by its one key. `shapes` then holds its (C, H, W), whatever order the
    environment has, and `channels` says which order that is: (C, H, W) "first", (H, W, C) "last", (H, W) "none".
    """

    size: Annotated[int, Field(ge=1, le=MAX_PIXELS)]
    keys: Keys | None = None  # None: the space is a plain Box
    shapes: tuple[tuple[int, ...], ...] = ()  # of the Box, or of each key's Box
    dtype: Literal["float32", "uint8"] = "float32"  # of the network's input
    channels: Literal["first", "last", "none"] | None = None  # None: no image

    @property
    def image(self) -> tuple[int, int, int] | None:
        """(C, H, W), or None for a vector."""
        if self.channels is None:
            return None
        channels, height, width = self.shapes[0]
        return channels, height, width

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of one observation in the network's input: (C, H, W), or (S,)."""
        return self.image or (self.size,)

    @model_serializer(mode="wrap")
    def _omit_image_fields_of_a_vector(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        return found if self.channels is not None else {k: found[k] for k in found if k not in ("dtype", "channels")}

    @model_validator(mode="after")
    def _images_fit(self) -> ObservationSpec:
        if (self.dtype == "uint8") != (self.channels is not None):
            raise ValueError("an image has dtype 'uint8' and an order of channels; a vector has neither")
        if self.channels is not None and (len(self.shapes) != 1 or len(self.shapes[0]) != 3):
            raise ValueError("an image has one shape (channels, height, width)")
        if self.channels == "none" and self.shapes[0][0] != 1:
            raise ValueError("an image without an axis of channels has one channel")
        if self.channels is None and self.size > MAX_SIZE:
            raise ValueError(f"size: a vector of {self.size} numbers; {MAX_SIZE} is the most a network reads")
        return self

    @model_validator(mode="after")
    def _sizes_add_up(self) -> ObservationSpec:
        if len(self.shapes) != (1 if self.keys is None else len(self.keys)):
            raise ValueError("shapes needs one entry for a Box, or one entry per key")
        total = 0
        for shape in self.shapes:
            size = 1
            for side in shape:
                if not 1 <= side <= MAX_SIZE:
                    raise ValueError(f"a side of {shape} is out of range")
                size *= side
            total += size
        if total != self.size:
            raise ValueError(f"shapes hold {total} numbers, size says {self.size}")
        return self


class IOSpec(Config):
    """Sizes of the environment, from which a family builds its network."""

    observation: ObservationSpec
    action: ActionSpec
    context: Annotated[int, Field(ge=1, le=8192)]  # K, env steps

    @model_validator(mode="after")
    def _window_fits_memory(self) -> IOSpec:
        numbers = self.context * (self.observation.size + (self.action.size if self.action.kind == "box" else 1))
        if numbers > MAX_WINDOW:
            raise ValueError(
                f"a window of {self.context} steps holds {numbers:,} numbers for each environment, at most "
                f"{MAX_WINDOW:,} are allowed: lower the context"
            )
        return self


class ActionDistribution(Protocol):
    """A distribution over B Box actions, which `SequenceModel.act` may return."""

    def mode(self) -> Tensor:
        """(B, A) the action for deterministic acting, in env units."""

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, A) actions drawn at random, in env units; `generator` is on the CPU."""


@dataclass(frozen=True)
class Batch:
    """B windows of K consecutive env steps, padded on the right where `valid` is False.

    observations: (B, K, S) float32, raw units (the network normalizes with its own buffers), or (B, K, C, H, W) uint8,
        which the network's forward pass makes float on its device.
    actions: (B, K, A) float32 in the environment's range, or (B, K) int64 counted from 0 for Discrete.
    returns_to_go: (B, K) float32, already divided by `rtg_scale`.
    timesteps: (B, K) int64, 0-based env step. valid: (B, K) bool. Padding holds zeros.
    rewards: (B, K) float32, raw env units, the reward of each step's action; None when acting, where it is not known.
    """

    observations: Tensor
    actions: Tensor
    returns_to_go: Tensor
    timesteps: Tensor
    valid: Tensor
    rewards: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """A batch with `change` applied to each tensor."""
        parts = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        changed: dict[str, Any] = {name: None if part is None else change(part) for name, part in parts}
        return Batch(**changed)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device`."""
        return self.map(lambda part: part.to(device))

    @property
    def shape(self) -> tuple[int, int]:
        """(B, K)."""
        return self.valid.shape[0], self.valid.shape[1]
