"""Image observations for the drawing of windows: each distinct frame is stored once, compressed.

A frame is one plane of pixels (H, W). An observation (C, H, W) is stored as the numbers of its C frames, so a stack of
the last four frames costs four numbers per step. Equal frames of an episode are stored once, so stacks made by the
environment take no more room than single frames.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentzoo.errors import DataError, printable
from agentzoo.types import MAX_PIXELS, IntArray, ObservationSpec

LEVEL = 3  # of zlib: a frame of Pong takes 100 bytes, a busy one 900
DIGEST = 16  # bytes
MAX_STACKED = 64
STACK, PADDING = "frame_stack", "frame_stack_padding"  # in a dataset's metadata
ON_DEVICE = 0.5  # share of a device's free memory that unpacked frames may take


class Stack(NamedTuple):
    """How many frames an observation has. An episode's start is padded with its first frame ("reset") or with zeros."""

    frames: int
    padding: str


def stack_of(metadata: Mapping[str, Any]) -> Stack | None:
    """The stacks that a dataset's metadata asks for; None: observations are used as stored.

    Raises:
        DataError: the number of frames or the padding is not valid.
    """
    if metadata.get(STACK) is None:
        return None
    frames, padding = metadata[STACK], metadata.get(PADDING, "reset")
    if type(frames) is not int or not 1 <= frames <= MAX_STACKED or padding not in ("reset", "zero"):
        raise DataError(
            f"the metadata has {STACK}={printable(repr(frames), 60)} and {PADDING}={printable(repr(padding), 60)}; "
            f"expected a whole number from 1 to {MAX_STACKED}, and 'reset' or 'zero'."
        )
    return Stack(frames, padding)


def stacked_spec(spec: ObservationSpec, stack: Stack) -> ObservationSpec:
    """The spec of the network's observation, if `spec` is that of one frame.

    Raises:
        DataError: it is not an image, or the stack is too large.
    """
    if spec.image is None:
        raise DataError(f"the metadata has {STACK}={stack.frames}, but the observations are not images.")
    channels, height, width = spec.image
    order = "first" if spec.channels == "none" else spec.channels
    shape = (channels * stack.frames, height, width)
    size = int(np.prod(shape))
    if size > MAX_PIXELS:
        raise DataError(
            f"the metadata has {STACK}={stack.frames}: a stack of images {spec.image} has {size:,} numbers; at most "
            f"{MAX_PIXELS:,} are allowed. Store fewer frames per stack or smaller images."
        )
    return ObservationSpec(size=size, keys=spec.keys, shapes=(shape,), dtype="uint8", channels=order)


@dataclass(frozen=True)
class Frames:
    """T observations of C frames each: an array (T, C, H, W) uint8 that unpacks only the requested steps.

    packed: (bytes,) uint8, the compressed frames one after another. ends: (F,) int64, where each of them ends.
    digests: (F, 16) uint8, of their pixels. stacks: (T, C) int32, the frames of each step. sides: (H, W).
    """

    packed: NDArray[np.uint8]
    ends: IntArray
    digests: NDArray[np.uint8]
    stacks: NDArray[np.int32]
    sides: tuple[int, int]

    dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(T, C, H, W)."""
        return (*self.stacks.shape, *self.sides)

    def __len__(self) -> int:
        return len(self.stacks)

    def __getitem__(self, steps: Any) -> NDArray[np.uint8]:
        """Pixels of these steps: any index of the first axis, (..., C, H, W)."""
        wanted = self.stacks[steps]
        distinct, where = np.unique(wanted, return_inverse=True)
        return np.asarray(self.unpack(distinct)[where.reshape(wanted.shape)])

    def unpack(self, frames: NDArray[Any]) -> NDArray[np.uint8]:
        """(n,) numbers of frames -> (n, H, W).

        Raises:
            DataError: the compressed bytes are broken.
        """
        height, width = self.sides
        pixels = np.empty((len(frames), height * width), dtype=np.uint8)
        content, size = memoryview(self.packed), height * width  # type: ignore[arg-type]
        ends = self.ends[frames].tolist()
        begins = np.where(frames > 0, self.ends[np.maximum(frames - 1, 0)], 0).tolist()
        try:
            for row, (begin, end) in enumerate(zip(begins, ends, strict=True)):
                pixels[row] = np.frombuffer(zlib.decompress(content[begin:end], bufsize=size), dtype=np.uint8)
        except (zlib.error, ValueError) as error:
            raise DataError(
                f"a frame cannot be unpacked: {error}. Delete the folder episodes/ in $AGENTZOO_CACHE (by default "
                "~/.cache/agentzoo); it is created again."
            ) from error
        return pixels.reshape(len(frames), height, width)

    def take(self, steps: NDArray[Any]) -> Frames:
        """These steps; the frames are shared."""
        return replace(self, stacks=self.stacks[steps])

    def update(self, digest: Any) -> None:
        """Feed a hash with all pixels, however they are compressed."""
        digest.update(repr(self.sides).encode())
        for step in range(0, len(self), 65_536):
            digest.update(np.ascontiguousarray(self.digests[self.stacks[step : step + 65_536]]).data)

    def on(self, device: torch.device | str) -> DeviceFrames | Frames:
        """On CUDA, all frames unpacked on the device if they fit in half of its free memory; otherwise unchanged."""
        place = torch.device(device)
        if place.type != "cuda":
            return self
        free, _ = torch.cuda.mem_get_info(place)
        height, width = self.sides
        if len(self.ends) * height * width > ON_DEVICE * free:
            return self
        planes = torch.empty((len(self.ends), height, width), dtype=torch.uint8, device=place)
        for first in range(0, len(self.ends), 4_096):
            numbers = np.arange(first, min(first + 4_096, len(self.ends)))
            planes[first : first + len(numbers)] = torch.from_numpy(self.unpack(numbers)).to(place)
        return DeviceFrames(planes, torch.from_numpy(np.ascontiguousarray(self.stacks)).to(place))


class DeviceFrames(NamedTuple):
    """All frames (F, H, W) uint8 and the stacks (T, C) int32 of `Frames`, on the device that trains."""

    planes: Tensor
    stacks: Tensor


def draw_images(frames: Frames | DeviceFrames, steps: Tensor, valid: Tensor) -> Tensor:
    """(B, K) steps -> (B, K, C, H, W) uint8 on their device, zeros where not `valid`."""
    if isinstance(frames, DeviceFrames):
        found = frames.planes[frames.stacks[steps].long()]
    else:
        found = torch.from_numpy(frames[steps.cpu().numpy()]).to(steps.device)
    found[~valid] = 0
    return found


class FrameWriter:
    """Collects episodes into `Frames`; one episode at a time is held uncompressed.

    Args:
        spec: one observation as it is added, before frames are stacked.
        stack: the stacks to build from the added frames; None stores observations as they are.
    """

    def __init__(self, spec: ObservationSpec, stack: Stack | None = None) -> None:
        assert spec.image is not None
        self.stack = stack
        self.sides = spec.image[1:]
        self._packed = bytearray()
        self._ends: list[int] = []
        self._digests = bytearray()
        self._stacks: list[NDArray[np.int32]] = []

    def add(self, observations: NDArray[np.uint8]) -> None:
        """Add one episode, (L, C, H, W)."""
        known: dict[bytes, int] = {}  # of this episode only, since frames of two episodes are rarely equal
        planes = np.ascontiguousarray(observations)
        numbers = np.array([[self._number(plane, known) for plane in step] for step in planes], dtype=np.int32)
        if self.stack is not None:
            blank = np.zeros(self.sides, dtype=np.uint8)
            first = [self._number(blank, known)] * numbers.shape[1] if self.stack.padding == "zero" else numbers[0]
            padded = np.concatenate([*([[first]] * (self.stack.frames - 1)), numbers]).astype(np.int32)
            numbers = np.concatenate([padded[i : i + len(numbers)] for i in range(self.stack.frames)], axis=1)
        self._stacks.append(numbers)

    def _number(self, plane: NDArray[np.uint8], known: dict[bytes, int]) -> int:
        digest = hashlib.blake2b(plane.data, digest_size=DIGEST).digest()
        found = known.get(digest)
        if found is None:
            found = known[digest] = len(self._ends)
            self._packed += zlib.compress(plane.data, LEVEL)
            self._ends.append(len(self._packed))
            self._digests += digest
        return found

    def finish(self) -> Frames:
        """The frames of all added episodes."""
        return Frames(
            packed=np.frombuffer(self._packed, dtype=np.uint8),
            ends=np.asarray(self._ends, dtype=np.int64),
            digests=np.frombuffer(self._digests, dtype=np.uint8).reshape(-1, DIGEST),
            stacks=np.concatenate(self._stacks),
            sides=self.sides,
        )
