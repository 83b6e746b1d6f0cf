"""Markov matrices and Markov heads: do a head's weights alone make it attend to tokens like the querying one?

Source: Zhao et al., ICML 2025, definitions 4.1 and 4.2. Head i of a layer is Markov if `A = W_q W_kᵀ` (d, d) has a
positive diagonal and `ratio(A) = mean |A_ii| / mean_{i≠j} |A_ij|` above r. The second mean is over d² - d entries; the
ICML text prints d, with which no head could reach any r above 1. Biases and LayerNorm gains are left out.

Scale of the ratio: independent Gaussian W_q and W_k give 1, W_q = W_k gives sqrt(π h / 2) for heads of h numbers, which
is 10.03 for h = 64; the paper's rule for r is ln(d - 1) + 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

THRESHOLD = 8.0  # any r in (7.63, 23.44) gives the published heads 1, 5 and 10 of GPT-2


class MarkovStatistics(NamedTuple):
    """Statistics of a square matrix."""

    positive_share: float  # of the diagonal
    ratio: float  # of the mean absolute diagonal to the mean absolute rest

    @property
    def positive(self) -> bool:
        """Whether every diagonal entry is positive: condition (i)."""
        return self.positive_share == 1.0

    def is_markov(self, threshold: float = THRESHOLD) -> bool:
        """Whether this is a Markov head: condition (i), and (ii) the ratio above `threshold`."""
        return self.positive and self.ratio > threshold


def head_matrix(qkv: Tensor, n_heads: int, head: int, turn: Tensor | None = None) -> Tensor:
    """(D + 2 Dk, D) fused weight as `nn.Linear` has it -> (D, D) float64 `W_q R W_kᵀ` of one head.

    Where keys are fewer (Dk < D) heads share them in groups.

    Args:
        qkv: rows of queries, keys and values, in this order.
        n_heads: of queries.
        head: which of them.
        turn: (D/N, D/N) float64 R, the rotation of rotary positions at one distance; None: distance 0.
    """
    dim = qkv.shape[1]
    size, shared = dim // n_heads, (len(qkv) - dim) // 2
    group = dim // shared
    queries, keys, _ = torch.split(qkv.detach().double(), [dim, shared, shared])
    queries, keys = (part[one * size : (one + 1) * size] for part, one in ((queries, head), (keys, head // group)))
    found: Tensor = queries.T @ (keys if turn is None else turn.to(keys.device) @ keys)
    return found


def markov_statistics(matrix: Tensor) -> MarkovStatistics:
    """The statistics of a (d, d) matrix, d at least 2; the ratio of a zero matrix is 0."""
    d = len(matrix)
    diagonal = matrix.diagonal()
    beside = matrix.abs().sum() - diagonal.abs().sum()
    middle, rest = float(diagonal.abs().mean()), float(beside / (d * d - d))
    ratio = middle / rest if rest > 0.0 else math.inf if middle > 0.0 else 0.0
    return MarkovStatistics(float((diagonal > 0).double().mean()), ratio)


def layer_statistics(qkv: Tensor, n_heads: int) -> list[MarkovStatistics]:
    """The statistics of every head of a layer."""
    with torch.no_grad():
        return [markov_statistics(head_matrix(qkv, n_heads, head)) for head in range(n_heads)]


def rule_threshold(dim: int) -> float:
    """The smallest r the paper derives for matrices of this size."""
    return math.log(dim - 1) + 1
