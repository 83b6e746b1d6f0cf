"""Mixture of Attention: a dense softmax gate over the heads of one attention layer, for every token.

Source: Zhao et al., ICML 2025 (arXiv:2409.06985 is its first version): `g = softmax(e W + b)`, head i counts
`s · g_i`, where e is the LayerNormed token, the input of queries, keys and values. All heads always contribute.
Differs: the text has s = 1, which damps every head N times at the start; our default s = N starts exactly as the
network without gates. The text does not mention a bias or initial values; here there is a bias, and all start at zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class Gate(nn.Module):
    """Weights of N heads, always computed in float32."""

    def __init__(self, dim: int, n_heads: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_heads, dim))
        self.bias = nn.Parameter(torch.zeros(n_heads))
        self.scale = scale  # s
        self.keeps = False  # whether `kept` collects the weights, one entry per forward pass
        self.kept: list[Tensor] = []

    def weights(self, tokens: Tensor) -> Tensor:
        """(..., D) -> (..., N): positive, sum 1."""
        with torch.autocast(tokens.device.type, enabled=False):
            return linear(tokens.float(), self.weight.float(), self.bias.float()).softmax(dim=-1)

    def forward(self, heads: Tensor, tokens: Tensor) -> Tensor:
        """Outputs of the heads (B, N, Lq, D/N) and the querying tokens (B, Lq, D) -> (B, N, Lq, D/N)."""
        weights = self.weights(tokens)
        if self.keeps:
            self.kept.append(weights)
        return heads * (self.scale * weights).to(heads.dtype).transpose(1, 2).unsqueeze(-1)
