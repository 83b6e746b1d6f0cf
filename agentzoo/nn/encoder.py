"""A bidirectional post-LayerNorm transformer layer: PyTorch's parameters and numbers, with dropout that is cheap."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import linear

from agentzoo.nn.dropout import Dropout


class EncoderLayer(nn.TransformerEncoderLayer):
    """`nn.TransformerEncoderLayer(batch_first=True)` without masks; the same weights give the same output.

    Where there is no dropout to draw, PyTorch's own path is taken.
    """

    def __init__(self, dim: int, n_heads: int, ffn_dim: int, dropout: float) -> None:
        super().__init__(dim, n_heads, ffn_dim, dropout, batch_first=True)
        self.n_heads = n_heads
        self.cheap_dropout = Dropout(dropout)

    def forward(self, src: Tensor) -> Tensor:  # type: ignore[override]  # no masks
        """(B, K, D) -> (B, K, D)."""
        if not self.training or self.cheap_dropout.p == 0.0:
            out: Tensor = super().forward(src)
            return out
        drop = self.cheap_dropout
        x = self.norm1(drop.add(src, self._attend(src)))
        widened: Tensor = drop(self.linear1(x).relu_())
        normed: Tensor = self.norm2(drop.add(x, self.linear2(widened)))
        return normed

    def _attend(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        attn = self.self_attn
        qkv = linear(x, attn.in_proj_weight, attn.in_proj_bias).view(batch, length, 3, self.n_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # (B, H, K, D/H) each
        weights = self.cheap_dropout((q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(dim=-1))
        out: Tensor = attn.out_proj((weights @ v).transpose(1, 2).reshape(batch, length, dim))
        return out
