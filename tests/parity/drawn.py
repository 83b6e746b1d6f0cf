"""Weights and inputs that need no file: each array is drawn from the frozen stream of its own name."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CHOICES = 4  # actions


def _stream(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))  # the only stream that never changes


def numbers(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Normal, of a size that keeps what a layer gives near 1; short numbers, so that every dtype holds them."""
    inputs = int(np.prod(shape[1:])) if len(shape) > 1 and "emb" not in name.split(".")[0] else 4
    drawn = _stream(name).standard_normal(shape) * inputs**-0.5
    if len(shape) == 1 and name.endswith("weight"):  # of a norm
        drawn = 1.0 + 0.2 * drawn
    return drawn.astype(np.float16).astype(np.float32)


def whole(name: str, shape: tuple[int, ...], below: int) -> NDArray[np.int64]:
    """Whole numbers from 0 to below `below`."""
    return _stream(name).randint(below, size=shape, dtype=np.int64)


def atari_windows(steps: int) -> dict[str, Tensor]:
    """Three windows of stacks of 4 frames, 84x84 uint8, with Discrete actions."""
    parts = {
        "frames": whole("frames", (3, steps, 4, 84, 84), 256).astype(np.uint8),
        "actions": whole("actions", (3, steps), CHOICES),
        "returns_to_go": numbers("returns_to_go", (3, steps)),
        "timesteps": np.arange(steps)[None] + np.array([[0], [5], [9]]),
    }
    return {name: torch.from_numpy(values) for name, values in parts.items()}
