"""Mamba's selective scan: a plain loop, a blocked and a compiled scan with their own backward, `mamba_ssm`'s kernel.

Source: Gu and Dao, arXiv:2312.00752, section 3 and algorithm 2. For every channel i and state n

    s_l[n, i] = exp(Δ_l[i] A[i, n]) s_{l-1}[n, i] + Δ_l[i] B_l[n] x_l[i],      s_{-1} = 0
    y_l[i]    = (Σ_n C_l[n] s_l[n, i] + D[i] x_l[i]) · silu(z_l[i]),           Δ = softplus(delta + delta_bias)

Shapes: x, delta, z, y (B, L, I); A (I, N), negative; B, C (B, L, N); D, delta_bias (I,). Here L counts tokens, I is the
inner width, N the state size, and a state is stored (B, N, I) so that the innermost numbers are consecutive channels.

All of them give the same numbers. The compiled scan (`scan_compiled.py`) is for float32 on a CPU, and twice as fast
there as the blocked scan. The blocked scan is for everything else and never holds a (B, L, N, I) tensor: it visits
blocks of a few windows by a few tokens that stay in the cache, keeps the state at the start of each block, and computes
the states of a block again in the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from agentzoo.nn.native import compiled, scan_compiled
from agentzoo.nn.native.scan_plain import ScanInputs, continue_scan, doubling_scan, loop_scan
from agentzoo.nn.plain import is_exporting

__all__ = ["ScanInputs", "ScanPath", "active_path", "continue_scan", "loop_scan", "selective_scan"]
ScanPath = Literal["auto", "compiled", "blocked", "loop", "doubling", "kernel"]

# Numbers in one token of a block and in a whole work array. On a CPU: steps of 256 KB, so that the overhead of an
# operator is small and two threads can share it, and three arrays of 2 MB, which fit a shared cache. Measured on
# 64 x 60 tokens, 256 channels, 16 states: a quarter of either is a third slower, four times as much is half slower.
_TOKEN_NUMBERS = 1 << 16
_BLOCK_NUMBERS = 1 << 19
_DEVICE_BLOCK_NUMBERS = 1 << 26  # on an accelerator: all windows at once
GRAPH_TOKENS = 64  # of a window that a graph scans token by token; more make it large and slow to export


def selective_scan(inputs: ScanInputs, path: ScanPath = "auto") -> Tensor:
    """y (B, L, I) of the formulas above, zero before the first token; differentiable any number of times.

    Half-precision inputs are computed in float32. `path` forces one way; `auto` takes the kernel for CUDA tensors
    where it can be imported, the compiled scan for float32 on a CPU where there is a C compiler, and the blocked scan
    everywhere else.

    Raises:
        ImportError: `path="kernel"` without `mamba_ssm`. RuntimeError: `path="compiled"` where it cannot run.
    """
    if path == "kernel" or (path == "auto" and inputs.x.is_cuda and kernel() is not None):
        return _kernel_scan(inputs)
    dtype = torch.promote_types(inputs.x.dtype, torch.float32)
    cast = ScanInputs(*(tensor.to(dtype) for tensor in inputs))
    with torch.autocast(cast.x.device.type, enabled=False):
        if path == "loop":
            y = loop_scan(*cast)
        elif path == "doubling":
            y = doubling_scan(*cast)
        elif is_exporting():  # one graph for any number of windows, so no blocks of a few
            y = _graph_scan(cast)
        else:
            differentiates = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in cast)
            if path == "compiled" or (path == "auto" and compiled.compiles(cast.x)):
                y = _compiled_scan(cast, differentiates)
            elif differentiates:
                y = _BlockedScan.apply(*cast)  # type: ignore[no-untyped-call]
            else:
                y = _forward(cast)
    return y.to(inputs.x.dtype)


def _graph_scan(inputs: ScanInputs) -> Tensor:
    """The scan as an ONNX graph: token by token for short windows, which takes ONNX Runtime a third of the time."""
    windows, tokens, inner = inputs.x.shape
    if tokens > GRAPH_TOKENS:
        return doubling_scan(*inputs)
    return continue_scan(inputs.x.new_zeros(windows, inputs.A.shape[1], inner), inputs)[0]


def decay_base(A: Tensor) -> Tensor:
    """(N, I): log2(e) A, so that exp(Δ A) = exp2(Δ · base). MKL's exp takes twice as long as exp2, on AMD at least."""
    return (A.transpose(0, 1) * math.log2(math.e)).contiguous()


@cache
def kernel() -> Any:
    """`mamba_ssm`'s `selective_scan_fn`, or None where it cannot be imported."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except Exception:  # built for another torch or CUDA, it raises more than ImportError
        return None
    return selective_scan_fn


def active_path(device: torch.device | str | None = None) -> str:
    """The scan that `auto` takes on `device` (default: the fastest device), in words for `agentzoo info`."""
    kind = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")).type
    if kind == "cuda" and kernel() is not None:
        return "mamba_ssm kernel (cuda)"
    if kind == "cpu" and compiled.library() is not None:
        return "compiled scan (cpu)"
    better = {"cuda": "; `pip install agentzoo[mamba]` adds the CUDA kernel", "cpu": "; a C compiler makes it faster"}
    return f"PyTorch blocked scan ({kind}{better.get(kind, '')})"


def _kernel_scan(inputs: ScanInputs) -> Tensor:
    scan = kernel()
    if scan is None:
        raise ImportError("mamba_ssm cannot be imported. Install agentzoo[mamba] on a machine with CUDA.")
    x, delta, A, B, C, D, z, bias = inputs
    u, step, gate, b, c = (tensor.transpose(1, 2).contiguous() for tensor in (x, delta, z, B, C))
    out: Tensor = scan(u, step, A.float(), b, c, D.float(), gate, bias.float(), delta_softplus=True)
    return out.transpose(1, 2)


def _compiled_scan(inputs: ScanInputs, differentiates: bool) -> Tensor:
    if not compiled.compiles(inputs.x):
        raise RuntimeError(
            f"the compiled scan needs float32 on a CPU and a C compiler; it got {inputs.x.dtype} on {inputs.x.device}."
        )
    if differentiates:
        y: Tensor = _CompiledScan.apply(*inputs)  # type: ignore[no-untyped-call]
        return y
    x, delta, A, *others = inputs
    return scan_compiled.forward(x, delta, decay_base(A), *others)[0]


class _CompiledScan(torch.autograd.Function):
    """The compiled scan; derivatives above the first go through `loop_scan`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        x, delta, A, *others = inputs
        y, ctx.kept = scan_compiled.forward(x, delta, decay_base(A), *others, keep=True)
        ctx.save_for_backward(*inputs)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            return differentiable_backward(loop_scan, ctx, grads[0])
        x, delta, A, *others = ctx.saved_tensors
        return scan_compiled.backward(grads[0], A, x, delta, decay_base(A), *others, kept=ctx.kept)


def differentiable_backward(reference: Callable[..., Tensor], ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The backward pass of a custom function under `create_graph=True`, through a slower twin of its forward.

    Inside a backward pass gradients are tracked only if they are differentiated again, so call this if
    `torch.is_grad_enabled()` is true there. `ctx` holds the inputs and nothing else.
    """
    needs = ctx.needs_input_grad
    wanted = [tensor for tensor, need in zip(ctx.saved_tensors, needs, strict=True) if need]
    found = iter(torch.autograd.grad(reference(*ctx.saved_tensors), wanted, grad, create_graph=True))
    return tuple(next(found) if need else None for need in needs)


class _Block:
    """Work arrays (b, T, N, I) for blocks of one shape, with a view of each token made once."""

    def __init__(self, arrays: Tensor, windows: int, tokens: int, states: int, width: int) -> None:
        size = windows * tokens * states * width
        self.arrays = [array[:size].view(windows, tokens, states, width) for array in arrays]
        self.flat = [array.view(windows * tokens, states, width) for array in self.arrays]
        self.tokens = [array.unbind(1) for array in self.arrays]  # T views (b, N, I) of each


class _Blocks:
    """Cuts (B, L) into blocks, which share `count` work arrays."""

    def __init__(self, x: Tensor, states: int, count: int) -> None:
        self.batch, self.length, self.width = x.shape
        self.states = states
        token = states * self.width
        if x.device.type == "cpu":
            self.windows, most = min(max(_TOKEN_NUMBERS // token, 1), self.batch), _BLOCK_NUMBERS
        else:
            self.windows, most = self.batch, _DEVICE_BLOCK_NUMBERS
        self.size = min(max(most // (self.windows * token), 1), self.length)
        numbers = self.windows * self.size * states * self.width
        self.memory = x.new_empty(count, numbers)
        self.made: dict[tuple[int, int], _Block] = {}

    def rows(self) -> Iterator[slice]:
        for start in range(0, self.batch, self.windows):
            yield slice(start, min(start + self.windows, self.batch))

    def columns(self) -> list[slice]:
        return [slice(start, min(start + self.size, self.length)) for start in range(0, self.length, self.size)]

    def block(self, rows: slice, columns: slice) -> _Block:
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        if shape not in self.made:
            self.made[shape] = _Block(self.memory, *shape, self.states, self.width)
        return self.made[shape]


def _fill_states(block: _Block, step: Tensor, dx: Tensor, base: Tensor, B: Tensor, start: Tensor) -> None:
    """Array 0 of `block` becomes exp(ΔA), array 1 the states after each token; `start` (b, N, I) comes before."""
    decay, states = block.arrays[0], block.arrays[1]
    torch.mul(step.unsqueeze(2), base, out=decay)
    torch.exp2(decay, out=decay)
    torch.mul(B.unsqueeze(3), dx.unsqueeze(2), out=states)
    before = start
    for decay_t, state_t in zip(block.tokens[0], block.tokens[1], strict=True):
        before = state_t.addcmul_(decay_t, before)


def _over_states(weights: Tensor, array: Tensor) -> Tensor:
    """Σ_n weights[b, t, n] array[bt, n, i], (b, T, I)."""
    windows, tokens, states = weights.shape
    return torch.bmm(weights.reshape(-1, 1, states), array).view(windows, tokens, -1)


def _over_width(weights: Tensor, array: Tensor) -> Tensor:
    """Σ_i weights[b, t, i] array[bt, n, i], (b, T, N)."""
    windows, tokens, width = weights.shape
    return torch.bmm(weights.reshape(-1, 1, width), array.transpose(1, 2)).view(windows, tokens, -1)


def _forward(inputs: ScanInputs, starts: list[Tensor] | None = None) -> Tensor:
    """y; `starts` receives the state before each block, in visiting order."""
    x, delta, A, B, C, D, z, delta_bias = inputs
    base = decay_base(A)
    blocks = _Blocks(x, A.shape[1], 2)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    for rows in blocks.rows():
        now, read = x[rows], y[rows]
        carry = x.new_zeros(now.shape[0], *base.shape)
        step = softplus(delta[rows] + delta_bias)
        dx = step * now
        for at in blocks.columns():
            block = blocks.block(rows, at)
            if starts is not None:
                starts.append(carry.clone())
            _fill_states(block, step[:, at], dx[:, at], base, B[rows, at], carry)
            read[:, at] = _over_states(C[rows, at], block.flat[1])
            carry.copy_(block.tokens[1][-1])  # the next block overwrites the array
        read.addcmul_(now, D).mul_(silu(z[rows]))
    return y


class _BlockedScan(torch.autograd.Function):
    """The blocked scan; its first derivative is written out below, further ones go through `loop_scan`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        ctx.starts = []
        y = _forward(ScanInputs(*inputs), ctx.starts)
        ctx.save_for_backward(*inputs)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            return differentiable_backward(loop_scan, ctx, grads[0])
        return _backward(grads[0], ctx.starts, ScanInputs(*ctx.saved_tensors))


def _backward(grad: Tensor, starts: list[Tensor], inputs: ScanInputs) -> tuple[Tensor, ...]:
    """Gradients of all eight inputs, blocks in reverse.

    With g_l the gradient of s_l, and w_l = exp(Δ_l A) g_l what it passes on to s_{l-1}:  g_l = C_l ⊗ gy_l + w_{l+1};
    p_l = w_l s_{l-1} is the gradient of the exponent Δ_l A.
    """
    x, delta, A, B, C, D, z, delta_bias = inputs
    At = A.transpose(0, 1).contiguous()
    base = decay_base(A)
    blocks = _Blocks(x, A.shape[1], 3)
    columns = blocks.columns()
    gx, gdelta, gz = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, delta, z))
    gB, gC = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (B, C))
    gA, gD, gbias = torch.zeros_like(At), torch.zeros_like(D), torch.zeros_like(delta_bias)
    for i, rows in enumerate(blocks.rows()):
        now, gate, raw = x[rows], z[rows], delta[rows] + delta_bias
        step = softplus(raw)
        dx = step * now
        gy = silu(gate).mul_(grad[rows])
        read, gdx, gstep = torch.empty_like(gy), gx[rows], gdelta[rows]
        message = gy.new_zeros(gy.shape[0], *At.shape)  # w of the token after the block
        gA_rows = torch.zeros_like(message)
        for j in reversed(range(len(columns))):
            at, start = columns[j], starts[i * len(columns) + j]
            block, steps = blocks.block(rows, at), step[:, at].unsqueeze(2).unbind(1)
            _fill_states(block, step[:, at], dx[:, at], base, B[rows, at], start)
            read[:, at] = _over_states(C[rows, at], block.flat[1])
            gC[rows, at] = _over_width(gy[:, at], block.flat[1])
            torch.mul(C[rows, at].unsqueeze(3), gy[:, at].unsqueeze(2), out=block.arrays[2])
            w, states, g = block.tokens
            for t in reversed(range(len(w))):
                message = w[t].mul_(g[t].add_(message))
            message = message.clone()  # the array will hold p
            gdx[:, at] = _over_states(B[rows, at], block.flat[2])
            gB[rows, at] = _over_width(dx[:, at], block.flat[2])
            for t in range(len(w)):
                gA_rows.addcmul_(w[t].mul_(states[t - 1] if t else start), steps[t])
            torch.sum(block.arrays[0].mul_(At), 2, out=gstep[:, at])
        gA += gA_rows.sum(0)
        gstep.addcmul_(gdx, now)
        torch.ops.aten.softplus_backward(gstep, raw, 1.0, 20.0, grad_input=gstep)
        gbias += gstep.sum((0, 1))
        read.addcmul_(now, D).mul_(grad[rows])
        torch.ops.aten.silu_backward(read, gate, grad_input=gz[rows])
        gdx.mul_(step).addcmul_(gy, D)
        gD += gy.mul_(now).sum((0, 1))
    return gx, gdelta, gA.transpose(0, 1), gB, gC, gD, gz, gbias
