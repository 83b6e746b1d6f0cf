"""The selective scan of `nn/native/scan.py` in PyTorch operations: for tests, for acting and for exported graphs.

Formulas and shapes are those of `nn/native/scan.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus


class ScanInputs(NamedTuple):
    """The tensors of the scan's formulas; before softplus, `delta` has no bias yet."""

    x: Tensor  # (B, L, I)
    delta: Tensor  # (B, L, I)
    A: Tensor  # (I, N)
    B: Tensor  # (B, L, N)
    C: Tensor  # (B, L, N)
    D: Tensor  # (I,)
    z: Tensor  # (B, L, I)
    delta_bias: Tensor  # (I,)


def continue_scan(state: Tensor, inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """The scan from `state` (B, N, I) instead of zero: y (B, L, I) and the state after token L-1.

    This is the recurrence of acting, for L of a few tokens, and of graphs of short windows: constant work and memory a
    token. Where x is 0 for a row whose state is 0, the state stays 0: such a row skips the token. G scans run side by
    side: state (B, G, N, I), x (B, L, G, I), A (G, I, N), D (G, I), the others alike.
    """
    x, delta, A, B, C, D, z, delta_bias = inputs
    step = softplus(delta + delta_bias)
    decay = torch.exp(step.unsqueeze(-2) * A.transpose(-1, -2))  # (B, L, N, I)
    added = B.unsqueeze(-1) * (step * x).unsqueeze(-2)
    state, states = state.unsqueeze(1), []
    for kept, new in zip(torch.split(decay, 1, dim=1), torch.split(added, 1, dim=1), strict=True):
        state = torch.addcmul(new, kept, state)
        states.append(state)
    read = (C.unsqueeze(-2) @ torch.cat(states, dim=1)).squeeze(-2)  # (B, L, I)
    return (read + D * x) * silu(z), state.squeeze(1)


def loop_scan(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, z: Tensor, delta_bias: Tensor
) -> Tensor:
    """The formulas written out token by token in differentiable operations: the yardstick, and second derivatives."""
    step = softplus(delta + delta_bias)
    transposed = A.transpose(0, 1)
    state = torch.zeros_like(x[:, 0, None] * transposed)
    outputs = []
    for token in range(x.shape[1]):
        decay = torch.exp(step[:, token, None] * transposed)  # (B, N, I)
        state = decay * state + B[:, token, :, None] * (step[:, token] * x[:, token])[:, None]
        outputs.append((C[:, token, :, None] * state).sum(1))
    return (torch.stack(outputs, 1) + D * x) * silu(z)


def doubling_scan(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, z: Tensor, delta_bias: Tensor
) -> Tensor:
    """The same in log2(L) steps over whole (B, L, N, I) tensors, for graphs of long windows: each doubles its reach."""
    step = softplus(delta + delta_bias)
    decay = torch.exp(step.unsqueeze(2) * A.transpose(0, 1))  # (B, L, N, I)
    state = B.unsqueeze(-1) * (step * x).unsqueeze(2)
    apart = 1
    while apart < x.shape[1]:
        state = torch.cat((state[:, :apart], state[:, apart:] + decay[:, apart:] * state[:, :-apart]), dim=1)
        decay = torch.cat((decay[:, :apart], decay[:, apart:] * decay[:, :-apart]), dim=1)
        apart *= 2
    return ((C.unsqueeze(-1) * state).sum(2) + D * x) * silu(z)
