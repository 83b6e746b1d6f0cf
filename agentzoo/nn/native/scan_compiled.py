"""The selective scan of `nn/native/scan.py` in C, for float32 on a CPU; `compiled.library()` must not be None.

The tensors are those of `nn/native/scan.py`, and `base` (N, I) is `decay_base` of A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor

from agentzoo.nn.native.compiled import address, library, share

T = TypeVar("T")
_WORTH_A_THREAD = 1 << 16  # numbers of x; with fewer, starting a thread takes longer than the work


def forward(
    x: Tensor,
    delta: Tensor,
    base: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    z: Tensor,
    bias: Tensor,
    *,
    keep: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """y (B, L, I) and, if `keep`, the states that `backward` starts from, (B, chunks, N, I); without gradients.

    Raises:
        ValueError: shapes that do not fit together; C would read beyond the end of a tensor.
    """
    _require_shapes(x, base, (delta, z), (B, C), (D, bias))
    x, delta, base, B, C, D, z, bias = (t.contiguous() for t in (x, delta, base, B, C, D, z, bias))
    y, kept = torch.empty_like(x), None
    if keep:
        kept = x.new_empty(len(x), library().scan_chunks(x.shape[1]), *base.shape)  # type: ignore[union-attr]

    def run(rows: slice) -> None:
        tensors = (x[rows], delta[rows], base, B[rows], C[rows], D, z[rows], bias, y[rows])
        _call("scan_forward", len(base), *tensors, None if kept is None else kept[rows])

    _share(x, run)
    return y, kept


def backward(
    grad: Tensor,
    A: Tensor,
    x: Tensor,
    delta: Tensor,
    base: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    z: Tensor,
    bias: Tensor,
    *,
    kept: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients of x, delta, A, B, C, D, z and bias, given `grad` (B, L, I), that of y, and what `forward` has kept.

    Raises:
        ValueError: as `forward`.
    """
    _require_shapes(x, base, (delta, z, grad), (B, C), (D, bias))
    x, delta, base, B, C, D, z, bias = (t.contiguous() for t in (x, delta, base, B, C, D, z, bias))
    grad, slopes = grad.contiguous(), A.transpose(0, 1).contiguous()
    gx, gdelta, gB, gC, gz = (torch.empty_like(tensor) for tensor in (x, delta, B, C, z))

    def run(rows: slice) -> tuple[Tensor, ...]:
        gA, gD, gbias = (torch.zeros_like(tensor) for tensor in (slopes, D, bias))
        inputs = (x[rows], delta[rows], base, slopes, B[rows], C[rows], D, z[rows], bias, kept[rows], grad[rows])
        gradients = (gx[rows], gdelta[rows], gA, gB[rows], gC[rows], gD, gz[rows], gbias)
        _call("scan_backward", len(base), *inputs, *gradients)
        return gA, gD, gbias

    gA, gD, gbias = (torch.stack(parts).sum(0) for parts in zip(*_share(x, run), strict=True))
    return gx, gdelta, gA.transpose(0, 1), gB, gC, gD, gz, gbias


def _require_shapes(
    x: Tensor, base: Tensor, long: Iterable[Tensor], narrow: Iterable[Tensor], wide: Iterable[Tensor]
) -> None:
    windows, length, width = x.shape
    groups = ((long, (windows, length, width)), (narrow, (windows, length, len(base))), (wide, (width,)))
    wrong = [(tuple(t.shape), shape) for tensors, shape in groups for t in tensors if tuple(t.shape) != shape]
    if wrong or tuple(base.shape) != (len(base), width):
        raise ValueError(f"the compiled scan of x {tuple(x.shape)} got (found, expected) shapes {wrong or base.shape}.")


def _call(name: str, states: int, x: Tensor, *others: Tensor | None) -> None:
    function = getattr(library(), name)
    if function(*x.shape, states, *(None if tensor is None else address(tensor) for tensor in (x, *others))):
        raise MemoryError(f"{name} found no memory for windows of {x.shape[1]} tokens.")


def _share(x: Tensor, run: Callable[[slice], T]) -> list[T]:
    """`run` on slices of the windows of x (B, L, I); what they returned, in order."""
    return share(len(x), x.numel() // _WORTH_A_THREAD, run)
