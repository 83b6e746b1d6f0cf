"""Weights as the C files of this folder read them, and what points to them."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from agentzoo.nn.native.compiled import address

PANEL = 16  # columns of a weight that lie together, in products.h
Pointer = ctypes.c_void_p


class Map(ctypes.Structure):
    """`map` of products.h."""

    _fields_ = [("X", ctypes.c_int), ("Y", ctypes.c_int), ("weight", Pointer), ("bias", Pointer)]


class Scale(ctypes.Structure):
    """`scale` of products.h."""

    _fields_ = [("weight", Pointer), ("eps", ctypes.c_float)]


class Packer:
    """Makes them, and keeps the tensors that they point to for as long as it lives."""

    def __init__(self) -> None:
        self._kept: list[Tensor] = []

    def pointer(self, tensor: Tensor) -> ctypes.c_void_p:
        """To a copy of its numbers in float32, one after the other: weights of before and after are never mixed."""
        self._kept.append(tensor.detach().to(torch.float32, copy=True).contiguous())
        return address(self._kept[-1])

    def map(self, weight: Tensor, bias: Tensor | None = None) -> Map:
        """A weight (Y, X), panel after panel: (ceil(Y / 16), X, 16), and a bias (Y,), both zero beyond row Y."""
        rows, columns = weight.shape
        bias = weight.new_zeros(rows) if bias is None else bias
        wider = (0, -rows % PANEL)
        panels = pad(weight.t(), wider).unflatten(1, (-1, PANEL)).transpose(0, 1)  # type: ignore[no-untyped-call]
        return Map(columns, rows, self.pointer(panels), self.pointer(pad(bias, wider)))

    def scale(self, norm: Any) -> Scale:
        """RMSNorm, or a LayerNorm of what has mean 0, before its bias: x · weight / sqrt(mean(x²) + eps)."""
        channels = len(norm.weight)
        return Scale(self.pointer(norm.weight * math.sqrt(channels)), norm.eps * channels)
