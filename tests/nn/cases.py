"""Inputs of the scan."""

from __future__ import annotations

import torch
from torch import Tensor

from agentzoo.nn.native.scan import ScanInputs


def random_inputs(
    batch: int, length: int, width: int, states: int, dtype: torch.dtype = torch.float64, grad: bool = False
) -> ScanInputs:
    g = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype, generator=g)

    long, narrow = (batch, length, width), (batch, length, states)
    A = -torch.exp(draw(width, states))
    values = (draw(*long), draw(*long), A, draw(*narrow), draw(*narrow), draw(width), draw(*long), draw(width))
    return ScanInputs(*(value.requires_grad_(grad) for value in values))
