"""Causal self-attention and the pre-LayerNorm GPT-2 block.

Source: arXiv:2106.01345, appendix A; GPT-2's block as in kzl/decision-transformer@e2d82e6. No position table here:
order comes from the timestep embedding and the causal mask.

`read` asks a block for some of its output tokens. Keys and values still come from all tokens, so the numbers are the
same. In training the last block gives one token in three, in acting one token per window. That saves most of its work.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from agentzoo.nn.constants import constant
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.plain import is_exporting, is_plain, linear_rows, onnx_attention, per_token
from agentzoo.nn.tokens import Read, read_tokens

HeadCount = Annotated[int, Field(ge=1, le=256)]
LayerCount = Annotated[int, Field(ge=1, le=128)]
Activation = Literal["relu", "gelu"]


def require_whole_heads(embed_dim: int, n_heads: int) -> None:
    """Raise ValueError, which pydantic explains, unless the heads divide the width."""
    if embed_dim % n_heads:
        raise ValueError(f"n_heads {n_heads} must divide embed_dim {embed_dim}")


def with_whole_heads(config: Any) -> Any:
    """The config of a transformer, checked by `require_whole_heads`: a pydantic validator."""
    require_whole_heads(config.embed_dim, config.n_heads)
    return config


@constant
def causal_bias(length: int, read: tuple[int, int, int] | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(Lq, L) additive mask: 0 where the query at `read` (start, stop, step) may look, -inf at later tokens."""
    positions = torch.arange(length, device=device)
    queries = positions if read is None else positions[slice(*read)]
    bias = torch.zeros(len(queries), length, dtype=dtype, device=device)
    return bias.masked_fill_(positions[None, :] > queries[:, None], -math.inf)


def attention_bias(length: int, read: Read, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`causal_bias` for the tokens at `read`: (Lq, L) for a slice, (B, 1, 1, L) for one token per window."""
    if isinstance(read, slice):
        return causal_bias(length, read.indices(length), dtype, device)
    later = torch.arange(length, device=device) > read.unsqueeze(1)
    return torch.zeros(later.shape, dtype=dtype, device=device).masked_fill(later, -math.inf)[:, None, None]


class CausalAttention(nn.Module):
    """Multi-head attention with one fused projection; token i sees tokens 0..i."""

    def __init__(self, dim: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.attn_dropout = Dropout(dropout)

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D), the tokens at `read` (all by default)."""
        if isinstance(read, Tensor) and not self.training and is_plain(self.qkv):
            return self._newest(x, read)
        dim = x.shape[2]
        parts = self._projected(x, read, (dim, dim, dim))
        if read is None and is_exporting() and onnx_attention is not None:
            # One operation, for which ONNX Runtime needs a sixth less time than for its parts (90 tokens, 8 heads).
            heads = {"q_num_heads": self.n_heads, "kv_num_heads": self.n_heads}
            return per_token(self.proj, onnx_attention(*parts, is_causal=True, **heads)[0])
        q, k, v = (self._split(part) for part in parts)  # (B, H, L, D/H)
        return per_token(self.proj, self._mix(q, k, v, read).transpose(1, 2).flatten(2))

    def _newest(self, x: Tensor, read: Tensor) -> Tensor:
        """`forward` for one query per window, (B, 1, D).

        q·(W_k x) = (W_kᵀ q)·x: the query goes through W_k instead of all tokens, and their weighted mean through W_v.
        A bias of the keys adds the same number to all scores, so the softmax does not see it.
        """
        to_key, to_value = self.qkv.weight.view(3, self.n_heads, -1, x.shape[2])[1:]  # (H, D/H, D) each
        q = self._split(linear_rows(self.qkv, read_tokens(x, read), slice(0, x.shape[2])))  # (B, H, 1, D/H)
        scores = (q.squeeze(2).transpose(0, 1) @ to_key).transpose(0, 1) @ x.transpose(1, 2)  # (B, H, L)
        weights = self._weights(scores.unsqueeze(2), q.shape[-1] ** -0.5, read).squeeze(2)
        heads = ((weights @ x).transpose(0, 1) @ to_value.transpose(1, 2)).transpose(0, 1)  # (B, H, D/H)
        return per_token(self.proj, (heads.flatten(1) + self.qkv.bias[2 * x.shape[2] :]).unsqueeze(1))

    def _projected(self, x: Tensor, read: Read | None, rows: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of the tokens at `read`, keys and values of all tokens, from `rows` of the projection."""
        if read is None or self.training:  # in training two products cost more than the queries that nobody reads
            q, k, v = torch.split(per_token(self.qkv, x), list(rows), dim=-1)
            return read_tokens(q, read), k, v
        k, v = torch.split(linear_rows(self.qkv, x, slice(rows[0], None)), list(rows[1:]), dim=-1)
        return linear_rows(self.qkv, read_tokens(x, read), slice(0, rows[0])), k, v

    def _split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.n_heads, -1).transpose(1, 2)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, read: Read | None) -> Tensor:
        """(B, H, Lq, D/H): values, weighted by the softmax of the scores of queries and keys."""
        length, dropout = k.shape[2], self.attn_dropout.p if self.training else 0.0
        if self._writes_out(q):
            return self._weights(q @ k.transpose(-1, -2), q.shape[-1] ** -0.5, read) @ v
        if read is None:
            return scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        bias = attention_bias(length, read, q.dtype, q.device)
        return scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)

    def _writes_out(self, q: Tensor) -> bool:
        """Whether softmax and products run as separate operations: in training on a CPU, and in graphs that do not use
        ONNX's `Attention`.

        For such short windows torch's fused kernel takes 3 to 7 times as long in bfloat16, forward and backward. In
        float32 both take the same time. With dropout torch does not fuse, and draws its random numbers slowly.
        """
        return (self.training and q.device.type == "cpu") or is_exporting()

    def _weights(self, scores: Tensor, factor: float, read: Read | None) -> Tensor:
        """(..., Lq, L): the causal softmax of `factor` times the scores, after dropout."""
        length = scores.shape[-1]
        scores = scores * factor + attention_bias(
            length, slice(None) if read is None else read, scores.dtype, scores.device
        )
        weights: Tensor = self.attn_dropout(scores.softmax(dim=-1))
        return weights


def relu(x: Tensor) -> Tensor:
    """ReLU, in place if no gradient is needed. With a gradient autograd would copy `x`, which is part of a view."""
    return torch.relu(x) if x.requires_grad else torch.relu_(x)


class Block(nn.Module):
    """`x + attn(ln(x))`, then `x + mlp(ln(x))`, four times as wide inside; GPT-2's own activation is GELU."""

    def __init__(self, dim: int, n_heads: int, dropout: float, activation: Activation = "relu") -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = CausalAttention(dim, n_heads, dropout)
        self.ln_2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)
        self.dropout = Dropout(dropout)
        self.activate = relu if activation == "relu" else gelu

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D)."""
        mixed = self.attn(self.ln_1(x), read)
        x = self.dropout.add(read_tokens(x, read), mixed)
        return self.dropout.add(x, per_token(self._mlp, self.ln_2(x)))

    def _mlp(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.activate(self.up(x)))
        return out


def through(blocks: nn.ModuleList, x: Tensor, read: Read | None) -> Tensor:
    """(B, L, D) -> (B, Lq, D): `x` after all blocks, of which the last gives the tokens at `read`."""
    last = len(blocks) - 1
    for i, block in enumerate(blocks):
        x = block(x, read if i == last else None)
    return x


class Backbone(nn.Module):
    """`n_layers` blocks and a final LayerNorm, weights N(0, 0.02²), biases 0."""

    def __init__(self, dim: int, n_layers: int, n_heads: int, dropout: float, activation: Activation = "relu") -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, n_heads, dropout, activation) for _ in range(n_layers))
        self.ln_f = nn.LayerNorm(dim)
        self.n_heads = n_heads
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D): the final hidden tokens at `read` (all by default)."""
        out: Tensor = self.ln_f(through(self.blocks, x, read))
        return out
