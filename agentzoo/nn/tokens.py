"""(return-to-go, observation, action) triples as one token sequence, and where to read it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

TOKENS_PER_STEP = 3
STATE_TOKENS = slice(1, None, TOKENS_PER_STEP)  # the observation's token of every step
Read = slice | Tensor  # tokens of all windows by a slice, or one token of each window by its index, (B,) int64


def interleave(rtg: Tensor, obs: Tensor, actions: Tensor) -> Tensor:
    """Three (B, K, D) -> (B, 3K, D) in the order R_0, s_0, a_0, R_1, ...; token of (t, kind) is 3t + kind."""
    batch, steps, dim = obs.shape
    return torch.stack((rtg, obs, actions), dim=2).view(batch, TOKENS_PER_STEP * steps, dim)


def newest_state_token(valid: Tensor) -> Tensor:
    """(B,) the index of the newest observation's token in each right-padded window; `valid` is (B, K)."""
    return TOKENS_PER_STEP * valid.sum(dim=1) - 2


def read_tokens(tokens: Tensor, read: Read | None) -> Tensor:
    """(B, L, D) -> (B, Lq, D): the tokens at `read`, all by default."""
    if read is None:
        return tokens
    if isinstance(read, slice):
        return tokens[:, read]
    return tokens.gather(1, read.view(-1, 1, 1).expand(-1, 1, tokens.shape[2]))


def last_valid(values: Tensor, valid: Tensor) -> Tensor:
    """(B, K, ...) -> (B, ...): the newest real step of each right-padded window."""
    newest = valid.sum(dim=1) - 1  # (B,)
    return values[torch.arange(values.shape[0], device=values.device), newest]  # len() would be fixed in a graph


def timestep_table(rows: int, dim: int, rank: int | None = None, std: float = 1.0) -> nn.Module:
    """(...) whole numbers below `rows` -> (..., D), elements N(0, std²); of rank r as (rows, r) · (r, D)."""
    table = nn.Embedding(rows, rank or dim)
    nn.init.normal_(table.weight, std=std)
    if rank is None:
        return table
    spread = nn.Linear(rank, dim, bias=False)
    nn.init.normal_(spread.weight, std=rank**-0.5)
    return nn.Sequential(table, spread)


class ResidualMLP(nn.Module):
    """h = W1 x + b1, out = W2 gelu(h) + b2 + h: the input maps of LaMo and Decision Mamba."""

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(size, dim)
        self.mix = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., size) -> (..., D)."""
        h = self.up(x)
        out: Tensor = self.mix(nn.functional.gelu(h)) + h
        return out
