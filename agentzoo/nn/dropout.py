"""Dropout with random bits that are cheap on a CPU.

PyTorch draws one Bernoulli number an element on a CPU, about 13 ns each: 40 ms of a 200 ms Decision Transformer step.
In C it is one pass over memory, and the backward pass computes again what was kept instead of storing it. Without a C
compiler four 16-bit fields come from one 64-bit draw, so the keep probability is exact to 1/65536.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from agentzoo.nn.native.compiled import address, library
from agentzoo.nn.native.fused import chance, draw_seed, fuses, is_bfloat16

_LEVELS = 1 << 16
_INT64_MIN = -(1 << 63)


def keep_scale(shape: torch.Size, p: float, like: Tensor) -> Tensor:
    """A tensor of `shape`: 0 with probability `p`, else 1/(1-p), drawn from the default generator."""
    count = shape.numel()
    dropped = round(p * _LEVELS)
    if dropped == _LEVELS:  # 16 bits cannot express it
        return torch.zeros(shape, dtype=like.dtype, device="cpu")
    bits = torch.empty((count + 3) // 4, dtype=torch.int64, device="cpu").random_(_INT64_MIN, None)
    keep = bits.view(torch.int16)[:count] >= dropped - _LEVELS // 2
    return keep.to(like.dtype).mul_(_LEVELS / (_LEVELS - dropped)).view(shape)


class _CompiledDropout(torch.autograd.Function):
    """`residual + dropout(x)`, or without a residual, as `dtype`; differentiable any number of times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, p: float, seed: int, dtype: torch.dtype) -> Tensor:
        ctx.p, ctx.seed, ctx.dtype = p, seed, x.dtype
        x = x.contiguous()
        added = None if residual is None else residual.contiguous()
        out = torch.empty_like(x, dtype=dtype)
        summand = None if added is None else address(added)
        pointers = (address(x), is_bfloat16(x), summand, is_bfloat16(added), address(out))
        library().dropout(ctypes.c_int64(x.numel()), *chance(p, seed), *pointers, is_bfloat16(out))  # type: ignore[union-attr]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        passed = _CompiledDropout.apply(grads[0], None, ctx.p, ctx.seed, ctx.dtype)  # type: ignore[no-untyped-call]
        return passed, grads[0] if ctx.needs_input_grad[1] else None, None, None, None


class Dropout(nn.Module):
    """`nn.Dropout`, many times as fast on a CPU."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`; the identity when not training or `p` is 0."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        if self.fuses(x):
            return self._compiled(x, None)
        return x * keep_scale(x.shape, self.p, x)

    def add(self, residual: Tensor, branch: Tensor) -> Tensor:
        """`residual + dropout(branch)` in one pass over memory."""
        if not self.training or self.p == 0.0:
            return residual + branch
        if residual.device.type != "cpu":
            return residual + nn.functional.dropout(branch, self.p)
        if residual.shape == branch.shape and self.fuses(residual, branch):
            return self._compiled(branch, residual)
        return torch.addcmul(residual, branch, keep_scale(branch.shape, self.p, branch))

    def fuses(self, *tensors: Tensor) -> bool:
        """Whether C does it for these tensors. With `p` = 1 there is no scale that C could use."""
        return self.p < 1.0 and fuses(*tensors)

    def _compiled(self, x: Tensor, residual: Tensor | None) -> Tensor:
        dtype = x.dtype if residual is None else torch.promote_types(x.dtype, residual.dtype)
        out: Tensor = _CompiledDropout.apply(x, residual, self.p, draw_seed(), dtype)  # type: ignore[no-untyped-call]
        return out
