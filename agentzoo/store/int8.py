"""Matrices as 8-bit integers: one scale for each row.

In a file `NAME` is int8 (R, C) and `NAME_scale` float32 (R, 1), the names and shapes of the library compressed-tensors
for a scale per output channel. The matrix is their product. An agent's network computes with the product, in float32:
only the file is smaller, by half of float16.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

LARGEST = 127
SCALE_BITS = 16  # of a scale's mantissa; the product with 127 is then exact in float32
LEAST = 2**15  # numbers; smaller matrices are not worth it. Those of observations and actions are among them


def scale_of(name: str) -> str:
    """The name of the scale of the int8 matrix `name`."""
    return f"{name}_scale"


def large(value: Tensor) -> bool:
    """Whether this tensor is a matrix that is worth 8 bits."""
    return value.ndim == 2 and value.numel() >= LEAST and value.is_floating_point()


def narrowed(name: str, matrix: Tensor) -> dict[str, Tensor]:
    """The int8 numbers of `matrix` (R, C) and their scale. Rounding moves a number by at most half of its row's scale.

    `widened` of the result, narrowed again, is the same result: an agent that is saved unchanged keeps its file.
    """
    mantissa, exponent = torch.frexp(matrix.float().abs().amax(dim=1, keepdim=True) / LARGEST)
    scale = torch.ldexp(torch.ceil(mantissa * 2**SCALE_BITS) / 2**SCALE_BITS, exponent)
    scale = torch.where(scale > 0.0, scale, torch.ones_like(scale))  # a row of zeros
    rounded = (matrix.float() / scale).round().clamp_(-LARGEST, LARGEST)  # scales of denormal numbers are rough
    return {name: rounded.to(torch.int8), scale_of(name): scale}


def widened(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file, int8 matrices as float32 and without their scales. Others do not change."""
    found = dict(tensors)
    for name in narrow_names({name: value.dtype for name, value in tensors.items()}, torch.int8):
        found[name] = tensors[name].float() * found.pop(scale_of(name))
    return found


def narrow_names(kinds: Mapping[str, object], int8: object) -> list[str]:
    """The names of the int8 matrices that have a scale. `kinds`: name -> type; `int8`: how this one is written."""
    return [name for name, kind in kinds.items() if kind == int8 and kinds.get(scale_of(name), int8) != int8]
