"""Causal self-attention of all language models here, which differ only in head counts and rotary positions.

Grouped queries: several heads of queries may share one head of keys and values. Queries of one group are stacked along
the length axis, so that keys and values are never copied.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from agentzoo.nn.attention import CausalAttention, attention_bias
from agentzoo.nn.gate import Gate
from agentzoo.nn.language.block_sizes import LoRASizes
from agentzoo.nn.language.lora import LoRALinear
from agentzoo.nn.language.rotary import Rotary
from agentzoo.nn.plain import per_token
from agentzoo.nn.tokens import Read, read_tokens


class LanguageAttention(CausalAttention):
    """Attention with optional low-rank updates, gated heads, grouped queries and rotary positions."""

    gate: Gate | None  # set by the Mixture-of-Attention families

    def __init__(
        self,
        dim: int,
        n_heads: int,
        n_kv_heads: int,
        *,
        bias: bool,
        dropout: float,
        rotary: Rotary | None,
        lora: LoRASizes | None,
    ) -> None:
        super().__init__(dim, n_heads, dropout)
        self.n_kv_heads = n_kv_heads
        shared = dim // n_heads * n_kv_heads
        rows = (dim, shared, shared)
        self.parts = {"qkv": rows}  # of queries, keys and values
        self.qkv = nn.Linear(dim, sum(rows), bias) if lora is None else LoRALinear(dim, rows, *lora, bias)
        self.proj = nn.Linear(dim, dim, bias)
        self.rotary = rotary
        self.gate = None

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D), the tokens at `read` (all by default)."""
        q, k, v = self._projected(x, read, self.parts["qkv"])
        q, k, v = self._heads(q, self.n_heads), self._heads(k), self._heads(v)  # (B, H, L, D/H)
        if self.rotary is not None:
            q, k = self.rotary.turn(q, x.shape[1], read), self.rotary.turn(k, x.shape[1])
        heads = self._mix(q, k, v, read)
        if self.gate is not None:
            heads = self.gate(heads, read_tokens(x, read))
        return per_token(self.proj, heads.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor, count: int | None = None) -> Tensor:
        return x.view(x.shape[0], x.shape[1], count or self.n_kv_heads, -1).transpose(1, 2)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, read: Read | None) -> Tensor:
        """(B, H, Lq, D/H) queries, (B, Hk, L, D/H) keys and values -> (B, H, Lq, D/H)."""
        if self.n_kv_heads == self.n_heads:
            return super()._mix(q, k, v, read)
        length, grouped = k.shape[2], q.reshape(q.shape[0], self.n_kv_heads, -1, q.shape[3])  # (B, Hk, G Lq, D/H)
        if self._writes_out(q):
            scores = (grouped @ k.transpose(-1, -2)).view(*q.shape[:3], length)
            weights = self._weights(scores, q.shape[-1] ** -0.5, read)
            return (weights.view(*grouped.shape[:3], length) @ v).view(q.shape)
        bias = attention_bias(length, slice(None) if read is None else read, q.dtype, q.device)
        if bias.ndim == 2:
            bias = bias.repeat(self.n_heads // self.n_kv_heads, 1)  # every query of a group has the same mask
        dropout = self.attn_dropout.p if self.training else 0.0
        out = scaled_dot_product_attention(grouped, k, v, attn_mask=bias, dropout_p=dropout)
        return out.reshape(q.shape)  # on CUDA the kernel returns heads and length transposed
