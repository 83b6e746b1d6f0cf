"""Causal attention's weights and GELU in training, each in one pass over memory: `nn/native/fused.c`, on a CPU.

PyTorch goes over the scores of attention six times (scale, mask, softmax, and three for dropout), and takes 2 ns for
every GELU in bfloat16. In a training step of a GPT2-DT on a CPU with bfloat16 that is a quarter of the time. Both run
in C with float32 inside, whatever the tensors are, and are differentiable once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from agentzoo.nn.native.compiled import address, compiles, library, share

KINDS = (torch.float32, torch.bfloat16)
_RANGE = 1 << 32  # of the hash in fused.c
_WORTH_A_THREAD = 1 << 16  # numbers; fewer are done before a thread has started


def fuses(*tensors: Tensor) -> bool:
    """Whether `fused.c` takes these tensors: float32 or bfloat16 on a CPU, with a C compiler.

    C sees no numbers inside the transforms of `torch.func`, nor in a batch of gradients taken at once.
    """
    return torch._C._functorch.peek_interpreter_stack() is None and compiles(*tensors, dtypes=KINDS)


def is_bfloat16(tensor: Tensor | None) -> ctypes.c_int:
    """The `_half` of fused.c."""
    return ctypes.c_int(tensor is not None and tensor.dtype == torch.bfloat16)


def chance(p: float, seed: int) -> tuple[ctypes.c_uint64, ctypes.c_uint32, ctypes.c_float]:
    """Seed, threshold and scale of dropout with probability `p` < 1."""
    dropped = min(round(p * _RANGE), _RANGE - 1)
    return ctypes.c_uint64(seed), ctypes.c_uint32(dropped), ctypes.c_float(_RANGE / (_RANGE - dropped))


def draw_seed() -> int:
    """64 bits of PyTorch's default generator, so that `manual_seed` and a run's saved state decide."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(-(1 << 63), None))


def causal_weights(scores: Tensor, factor: float, p: float, read: tuple[int, int, int] | None = None) -> Tensor:
    """`dropout(softmax(factor · scores + causal mask))`.

    Args:
        scores: (..., Lq, L), of tensors that `fuses`.
        p: of dropout, below 1.
        read: (start, stop, step) of the querying tokens; by default all L.

    Raises:
        ValueError: these are not Lq of L tokens; C would write behind a tensor.
    """
    queries, length = scores.shape[-2:]
    asking = range(*(read or (0, length, 1)))
    if len(asking) != queries or any(not 0 <= one < length for one in (*asking[:1], *asking[-1:])):
        raise ValueError(f"scores {tuple(scores.shape)} do not fit queries at {asking}.")
    start, step = asking.start, asking.step
    weights: Tensor = _CausalWeights.apply(scores, factor, p, draw_seed(), start, step)  # type: ignore[no-untyped-call]
    return weights


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by tanh, as `torch.nn.functional.gelu(x, approximate="tanh")`; `x` is one that `fuses`."""
    out: Tensor = _GELU.apply(x)  # type: ignore[no-untyped-call]
    return out


class _CausalWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, factor: float, p: float, seed: int, start: int, step: int) -> Tensor:
        scores = scores.contiguous()
        shares, weights = torch.empty_like(scores), torch.empty_like(scores)
        ctx.numbers = factor, p, seed, start, step
        _rows("causal_weights", ctx.numbers, scores, shares, weights)
        ctx.save_for_backward(shares)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (shares,) = ctx.saved_tensors
        out = torch.empty_like(shares)
        _rows("causal_weights_back", ctx.numbers, grads[0].contiguous(), shares, out)
        return out, None, None, None, None, None


class _GELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        _each("gelu", x, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        _each("gelu_back", x, grads[0].contiguous(), out)
        return out


def _rows(name: str, numbers: tuple[float, float, int, int, int], *tensors: Tensor) -> None:
    """Call a function of rows of attention scores (..., Lq, L)."""
    factor, p, seed, start, step = numbers
    queries, length = tensors[0].shape[-2:]
    flat = [tensor.view(-1, length) for tensor in tensors]
    function = getattr(library(), name)

    def run(rows: slice) -> None:
        counts = (ctypes.c_int64(rows.start), ctypes.c_int64(rows.stop - rows.start))
        geometry = (*(ctypes.c_int(number) for number in (queries, length, start, step)), ctypes.c_float(factor))
        pointers = (address(tensor[rows]) for tensor in flat)
        if function(*counts, *geometry, *chance(p, seed), *pointers, is_bfloat16(flat[0])):
            raise MemoryError(f"{name} found no memory for {length} tokens.")

    _share(flat[0], run)


def _each(name: str, *tensors: Tensor) -> None:
    """Call a function of single numbers."""
    flat = [tensor.view(-1) for tensor in tensors]
    function = getattr(library(), name)

    def run(part: slice) -> None:
        pointers = (address(tensor[part]) for tensor in flat)
        function(ctypes.c_int64(part.stop - part.start), *pointers, is_bfloat16(flat[0]))

    _share(flat[0], run)


def _share(like: Tensor, run: Callable[[slice], None]) -> None:
    if like.numel():
        share(len(like), like.numel() // _WORTH_A_THREAD, run)
