"""A bidirectional post-LayerNorm transformer layer with PyTorch's parameter names and numbers."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from agentzoo.nn.dropout import Dropout
from agentzoo.nn.plain import is_exporting


class SelfAttention(nn.MultiheadAttention):
    """`nn.MultiheadAttention(batch_first=True)` of one tensor with itself, without masks."""

    def __init__(self, dim: int, n_heads: int, dropout: float) -> None:
        super().__init__(dim, n_heads, batch_first=True)
        self.cheap_dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]  # queries, keys and values are the same
        """(B, K, D) -> (B, K, D)."""
        qkv = linear(x, self.in_proj_weight, self.in_proj_bias).view(*x.shape[:2], 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # (B, H, K, D/H) each
        dropped = self.training and self.cheap_dropout.p > 0.0
        if dropped or is_exporting():  # the live page reads the weights from the graph
            weights = self.cheap_dropout((q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(dim=-1))
            mixed = weights @ v
        else:
            mixed = scaled_dot_product_attention(q, k, v)
        out: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return out


class EncoderLayer(nn.Module):
    """`nn.TransformerEncoderLayer(batch_first=True)` without masks: the same weights give the same output.

    Its dropout is faster in training. In acting it calls its modules one by one, so that wrapped layers and hooks take
    effect. PyTorch's layer skips them.
    """

    def __init__(self, dim: int, n_heads: int, ffn_dim: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = SelfAttention(dim, n_heads, dropout)
        self.linear1 = nn.Linear(dim, ffn_dim)
        self.linear2 = nn.Linear(ffn_dim, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, K, D) -> (B, K, D)."""
        x = self.norm1(self.dropout.add(x, self.self_attn(x)))
        inner: Tensor = self.dropout(self.linear1(x).relu())
        normed: Tensor = self.norm2(self.dropout.add(x, self.linear2(inner)))
        return normed
