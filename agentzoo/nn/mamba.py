"""The Mamba-1 block, for training over windows and for acting token by token.

Source: Gu and Dao, arXiv:2312.00752, section 3.4; parameters carry `mamba_ssm`'s names, so its checkpoints and those of
transformers' `MambaMixer` load as they are. The gate may be read from another tensor than the input (Decision Mamba).

Symbols: D width, E expansion, I = E·D inner width, N states per channel, R rank of the step size, W taps of the
convolution, L tokens. Δ, A, B, C and the skip weight D as in `nn/native/scan.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import silu

from agentzoo.nn.native.scan import (
    ScanInputs,
    continue_scan,
    differentiable_backward,
    selective_scan,
)
from agentzoo.nn.plain import is_exporting, is_plain, linear_rows, side_by_side

StateCount = Annotated[int, Field(ge=1, le=1024)]
_ROWS = 16  # windows at a time, so that the next operation finds them in the cache


class Mamba(nn.Module):
    """in_proj -> causal depthwise convolution -> SiLU -> selective scan -> gate -> out_proj."""

    def __init__(self, dim: int, states: int = 16, expand: int = 2, conv_width: int = 4) -> None:
        super().__init__()
        inner, rank = expand * dim, math.ceil(dim / 16)
        self.inner, self.states, self.rank, self.conv_width = inner, states, rank, conv_width
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, conv_width, groups=inner, padding=conv_width - 1)
        self.x_proj = nn.Linear(inner, rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, states))
        # on the CPU, for the reason in `nn.sizes_only`; so is `step`
        self.A_log.data.copy_(torch.arange(1.0, states + 1, device="cpu").log())
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, dim, bias=False)
        nn.init.zeros_(self.conv1d.bias)  # type: ignore[arg-type]
        nn.init.uniform_(self.dt_proj.weight, -(rank**-0.5), rank**-0.5)
        step = torch.empty(inner, device="cpu").uniform_(math.log(1e-3), math.log(1e-1)).exp_().clamp_(min=1e-4)
        with torch.no_grad():
            self.dt_proj.bias.copy_(step + torch.log(-torch.expm1(-step)))  # softplus of it is `step`

    def forward(self, x: Tensor, gate: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, L, D).

        Args:
            x: the tokens that are convolved and scanned.
            gate: (B, L, D) the input of the gate; `x` by default.
            mask: (B, L, 1), 0 where a token must have no effect; the caller has already zeroed `x` there. Tokens
                after the last one that is read need no mask: nothing flows backwards.
        """
        inputs, z = self._project(x, gate)
        convolved = self._convolve(inputs)
        y = selective_scan(self._scan_inputs(convolved if mask is None else convolved * mask, z))
        out: Tensor = self.out_proj(y)
        return out

    def _project(self, x: Tensor, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """The input of the convolution and scan, and the input of the gate, (B, L, I) each."""
        # Two products even from one tensor: splitting one result would copy both parts in the backward pass.
        inputs = linear_rows(self.in_proj, x, slice(0, self.inner))
        return inputs, linear_rows(self.in_proj, x if gate is None else gate, slice(self.inner, None))

    def _convolve(self, x: Tensor) -> Tensor:
        if not is_plain(self.conv1d) or self.conv1d.bias is None:
            return self._run_conv(x)
        return causal_conv_silu(x, self.conv1d.weight.squeeze(1), self.conv1d.bias)

    def _run_conv(self, x: Tensor) -> Tensor:
        """(B, L, I) -> (B, L, I) by calling the module, which pads W-1 zeros on both sides, and SiLU."""
        return silu(self.conv1d(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))

    def _scan_inputs(self, convolved: Tensor, z: Tensor) -> ScanInputs:
        selected = self.x_proj(convolved)  # (B, L, R + 2N)
        low_rank, B, C = selected.split((self.rank, self.states, self.states), dim=-1)
        delta = self.dt_proj(low_rank)  # with its bias, so the scan adds none
        return ScanInputs(convolved, delta, -torch.exp(self.A_log), B, C, self.D, z, torch.zeros_like(self.D))


def advance(
    blocks: Sequence[Mamba],
    x: Sequence[Tensor],
    gate: Tensor,
    mask: Tensor | None,
    conv_state: Tensor,
    ssm_state: Tensor,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """`Mamba.forward` of G blocks over the next tokens of sequences, given the states that hold their past.

    The blocks have equal sizes and run side by side: one operation serves all of them. Linear layers run one by one,
    except in a graph.

    Args:
        x: (B, L, D) for each block, usually one to three tokens. gate: (B, L, D) for all blocks.
        mask: (B, L, 1) or None, as in `Mamba.forward`.
        conv_state: (B, W-1, G·I) the last inputs of the convolutions. ssm_state: (B, G, N, I). Zeros at the start.

    Returns:
        (B, L, D) for each block, and both states after these tokens.
    """
    first, tokens = blocks[0], gate.shape[1]
    inner, shape = first.inner, (len(blocks), first.inner)
    projected = [block._project(own, gate) for block, own in zip(blocks, x, strict=True)]
    inputs, z = (torch.cat(parts, dim=-1) for parts in zip(*projected, strict=True))  # (B, L, G·I) each
    taped = torch.cat((conv_state, inputs), dim=1)  # (B, W-1+L, G·I)
    convolved = _continue_conv(blocks, taped)
    if mask is not None:
        convolved = convolved * mask
    each = torch.unflatten(convolved, -1, shape)  # (B, L, G, I)
    selected = side_by_side([block.x_proj for block in blocks], each)
    low_rank, B, C = torch.split(selected, [first.rank, first.states, first.states], dim=-1)
    y, ssm_state = continue_scan(
        ssm_state,
        ScanInputs(
            x=each,
            delta=side_by_side([block.dt_proj for block in blocks], low_rank),  # with its bias, so the scan adds none
            A=-torch.exp(torch.stack([block.A_log for block in blocks])),
            B=B,
            C=C,
            D=torch.stack([block.D for block in blocks]),
            z=torch.unflatten(z, -1, shape),
            delta_bias=gate.new_zeros(()),
        ),
    )
    parts = torch.split(y.flatten(2), inner, dim=-1)
    out = [block.out_proj(part) for block, part in zip(blocks, parts, strict=True)]
    return out, taped[:, tokens:], ssm_state


def _continue_conv(blocks: Sequence[Mamba], taped: Tensor) -> Tensor:
    """(B, W-1+L, G·I) -> (B, L, G·I): the convolution of each block and SiLU, from the W-th token on."""
    width, convs = blocks[0].conv_width, [block.conv1d for block in blocks]
    if is_exporting() and all(is_plain(conv) and conv.bias is not None for conv in convs):
        # ONNX Runtime is slow at convolutions of single channels.
        weight = torch.cat([conv.weight.squeeze(1).t() for conv in convs], dim=1)  # (W, G·I)
        bias = torch.cat([conv.bias for conv in convs])  # type: ignore[misc]
        read = torch.arange(taped.shape[1] - width + 1).unsqueeze(1) + torch.arange(width)
        taps = torch.unflatten(taped.index_select(1, read.flatten()), 1, (-1, width))  # (B, L, W, G·I)
        return silu((taps * weight).sum(2) + bias)
    parts = zip(blocks, torch.split(taped, blocks[0].inner, dim=-1), strict=True)
    return torch.cat([block._run_conv(part)[:, width - 1 :] for block, part in parts], dim=-1)


def causal_conv_silu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """silu(bias + Σ_k weight[:, k] x[l - W + 1 + k]) for each channel, with zeros before the first token.

    x: (B, L, I). weight: (I, W), its last tap on the token itself. bias: (I,).
    On a CPU `nn.Conv1d` with groups loses most of its time in the backward pass; this does not. On other devices each
    operation costs a launch, so PyTorch's convolution runs there.
    """
    if is_exporting() or x.device.type != "cpu":
        return _conv_reference(x, weight.to(x.dtype), bias.to(x.dtype))
    out: Tensor = _ConvSilu.apply(x, weight.to(x.dtype), bias.to(x.dtype))  # type: ignore[no-untyped-call]
    return out


def _taps(weight: Tensor) -> tuple[Tensor, ...]:
    """W contiguous (I,) tensors, the newest token's first: a strided factor would keep `addcmul` from vectorizing."""
    return weight.t().flip(0).contiguous().unbind(0)


def _convolve(x: Tensor, taps: tuple[Tensor, ...], bias: Tensor) -> Tensor:
    out = torch.addcmul(bias, x, taps[0])
    for back in range(1, min(len(taps), x.shape[1])):
        out[:, back:].addcmul_(x[:, :-back], taps[back])
    return out


def _conv_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    padded = nn.functional.pad(x.transpose(1, 2), (weight.shape[1] - 1, 0))
    return silu(nn.functional.conv1d(padded, weight.unsqueeze(1), bias, groups=len(weight))).transpose(1, 2)


class _ConvSilu(torch.autograd.Function):
    """Keeps only its input; the values before SiLU are computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        taps = _taps(weight)
        for rows, part in zip(torch.split(x, _ROWS), torch.split(out, _ROWS), strict=True):
            torch.ops.aten.silu(_convolve(rows, taps, bias), out=part)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            return differentiable_backward(_conv_reference, ctx, grads[0])
        x, weight, bias = ctx.saved_tensors
        gx = torch.empty_like(x, memory_format=torch.contiguous_format)
        taps, gbias = _taps(weight), torch.zeros_like(bias)
        gtaps = [torch.zeros_like(bias) for _ in taps]
        for rows, grad, part in zip(*(torch.split(t, _ROWS) for t in (x, grads[0], gx)), strict=True):
            g = torch.ops.aten.silu_backward(grad, _convolve(rows, taps, bias))
            torch.mul(g, taps[0], out=part)
            gbias += g.sum((0, 1))
            gtaps[0] += (g * rows).sum((0, 1))
            for back in range(1, min(len(taps), x.shape[1])):
                part[:, :-back].addcmul_(g[:, back:], taps[back])
                gtaps[back] += (g[:, back:] * rows[:, :-back]).sum((0, 1))
        return gx, torch.stack(gtaps[::-1], dim=1), gbias


class RMSNorm(nn.Module):
    """x · weight / sqrt(mean(x²) + eps) over the last axis."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        if is_exporting():  # the form that ONNX Runtime makes one operation of
            return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
        if not torch.is_grad_enabled():
            return x * _inverse_rms(x, self.eps) * self.weight
        out: Tensor = _RMSNorm.apply(x, self.weight.to(x.dtype), self.eps)  # type: ignore[no-untyped-call]
        return out


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return (x * _inverse_rms(x, eps)).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """With r the inverse root mean square and g' = g · weight:  gx = r g' - x r³ mean(g' x).

        Written without in-place steps, so that it is differentiable itself.
        """
        (x, weight), grad = ctx.saved_tensors, grads[0]
        r = _inverse_rms(x, ctx.eps)
        scaled = grad * weight
        x = x.to(scaled.dtype)  # under autocast on a GPU x is bfloat16 and its gradient float32
        mean = torch.linalg.vecdot(scaled, x).unsqueeze(-1) / x.shape[-1]
        gx = torch.addcmul(scaled * r, x, r**3 * mean, value=-1.0)
        gweight = (grad * x * r).flatten(0, -2).sum(0)
        return gx, gweight, None


def _inverse_rms(x: Tensor, eps: float) -> Tensor:
    """(..., 1)."""
    return torch.rsqrt(torch.linalg.vecdot(x, x).unsqueeze(-1) / x.shape[-1] + eps)
