"""Rotary positions: queries and keys are rotated by angles proportional to their token's position in the window.

A score then depends on the distance of two tokens only. Padding on the right changes nothing.

Source: Su et al. 2021, arXiv:2104.09864. GPT-J turns neighbouring pairs of numbers, Llama pairs a head's first half
with its second.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from agentzoo.nn.constants import constant
from agentzoo.nn.tokens import Read

THETA = 10_000.0


class Rotary(NamedTuple):
    """How an architecture rotates its heads."""

    size: int  # how many numbers of each head are rotated; even
    theta: float = THETA
    halves: bool = False  # pairs are (i, i + size/2), as in Llama; else neighbours, as in GPT-J

    def turn(self, x: Tensor, length: int, read: Read | None = None) -> Tensor:
        """(B, H, Lq, D/H): rotated queries or keys.

        Args:
            x: queries or keys of the tokens at `read` in a window of `length` tokens.
            length: L.
            read: as in `CausalAttention.forward`.
        """
        table = rotation_table(self, length, x.dtype, x.device)
        if isinstance(read, slice):
            table = table[:, read]
        elif read is not None:
            table = table[:, read, None, None]  # (2, B, 1, 1, size)
        cosine, sine = table
        if self.size == x.shape[-1]:
            turned: Tensor = x * cosine + self._quarter(x) * sine
            return turned
        turning, still = x[..., : self.size], x[..., self.size :]
        return torch.cat((turning * cosine + self._quarter(turning) * sine, still), dim=-1)

    def _quarter(self, x: Tensor) -> Tensor:
        """Every pair (a, b) rotated by 90 degrees: (-b, a)."""
        if self.halves:
            first, second = x.chunk(2, dim=-1)
            return torch.cat((-second, first), dim=-1)
        return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)

    def matrix(self, distance: int, head_size: int) -> Tensor:
        """(D/H, D/H) float64 R: q R kᵀ is the score of a query and the key `distance` tokens before it."""
        rows = torch.eye(head_size, dtype=torch.float64)[None, :, None]  # a head for each unit vector
        zeros = torch.zeros_like(rows).expand(-1, -1, distance, -1)
        return self.turn(torch.cat((zeros, rows), dim=2), distance + 1)[0, :, -1]  # R_d e for each unit vector e


@constant
def rotation_table(rotary: Rotary, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(2, L, size): cosine and sine of each token's angle, every frequency twice."""
    exponents = torch.arange(0, rotary.size, 2, device=device, dtype=torch.float32) / rotary.size
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    angles = torch.arange(length, device=device, dtype=exact)[:, None] * rotary.theta ** -exponents.to(exact)
    both = torch.stack((angles.cos(), angles.sin()))  # (2, L, size/2)
    wide = torch.cat((both, both), dim=-1) if rotary.halves else both.repeat_interleave(2, dim=-1)
    return wide.to(dtype)
