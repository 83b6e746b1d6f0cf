"""Causal self-attention and the pre-LayerNorm GPT-2 block.

Source: arXiv:2106.01345, appendix A; GPT-2's block as in kzl/decision-transformer@e2d82e6. No position table here:
order comes from the timestep embedding and the causal mask.

`read` asks a block only for some of its output tokens. Keys and values still come from all tokens, so the numbers
are the same; a last block that is read at one token in three costs less than half. `newest` asks for the last token
alone, as acting does, and needs neither keys nor values: q·(W x) = (Wᵀq)·x, and a weighted sum of values is the value
of a weighted sum.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention

from agentzoo.nn.dropout import Dropout

HeadCount = Annotated[int, Field(ge=1, le=256)]
LayerCount = Annotated[int, Field(ge=1, le=128)]


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # it is kept, so it must not belong to the inference of whoever asked first
def causal_bias(length: int, read: tuple[int, int, int] | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(Lq, L) additive mask: 0 where the query at `read` (start, stop, step) may look, -inf at later tokens."""
    positions = torch.arange(length, device=device)
    queries = positions if read is None else positions[slice(*read)]
    bias = torch.zeros(len(queries), length, dtype=dtype, device=device)
    return bias.masked_fill_(positions[None, :] > queries[:, None], -math.inf)


class CausalAttention(nn.Module):
    """Multi-head attention with one fused projection; token i sees tokens 0..i."""

    def __init__(self, dim: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.attn_dropout = Dropout(dropout)

    def forward(self, x: Tensor, read: slice | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D), the tokens at `read` (all by default)."""
        batch, length, dim = x.shape
        if read is None:
            q, k, v = self.qkv(x).chunk(3, dim=-1)
        else:
            weight, bias = self.qkv.weight, self.qkv.bias
            q = linear(x[:, read], weight[:dim], bias[:dim])
            k, v = linear(x, weight[dim:], bias[dim:]).chunk(2, dim=-1)
        q, k, v = (self._split(part) for part in (q, k, v))  # (B, H, L, D/H)
        out: Tensor = self.proj(self._mix(q, k, v, length, read).transpose(1, 2).reshape(batch, -1, dim))
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.n_heads, -1).transpose(1, 2)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, length: int, read: slice | None) -> Tensor:
        chosen = None if read is None else read.indices(length)
        dropout = self.attn_dropout.p if self.training else 0.0
        if dropout > 0.0 and q.device.type == "cpu":
            # torch's CPU kernel leaves its fused path as soon as there is dropout, and then draws slowly
            scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5)
            scores = scores + causal_bias(length, chosen, q.dtype, q.device)
            weights: Tensor = self.attn_dropout(scores.softmax(dim=-1))
            return weights @ v
        if chosen is None:
            return scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        bias = causal_bias(length, chosen, q.dtype, q.device)
        return scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)


class Block(nn.Module):
    """`x + attn(ln(x))`, then `x + mlp(ln(x))`, ReLU, four times as wide inside."""

    def __init__(self, dim: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = CausalAttention(dim, n_heads, dropout)
        self.ln_2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, read: slice | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D)."""
        mixed = self.attn(self.ln_1(x), read)
        x = self.dropout.add(x if read is None else x[:, read], mixed)
        return self.dropout.add(x, self.down(self.up(self.ln_2(x)).relu_()))

    def weights(self) -> BlockWeights:
        """The parameters themselves, not copies."""
        norms, attn = (self.ln_1, self.ln_2), self.attn
        layers = (attn.qkv, attn.proj, self.up, self.down)
        return BlockWeights(*(p for layer in (*norms, *layers) for p in (layer.weight, layer.bias)))


class BlockWeights(NamedTuple):
    """A block's parameters by name: module calls and lookups are a third of the time of one action."""

    ln_1: Tensor
    ln_1_bias: Tensor
    ln_2: Tensor
    ln_2_bias: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    proj: Tensor
    proj_bias: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor

    def mlp(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D): `x + mlp(ln_2(x))`."""
        inner = linear(layer_norm(x, x.shape[-1:], self.ln_2, self.ln_2_bias), self.up, self.up_bias)
        return x + linear(inner.relu_(), self.down, self.down_bias)

    def attend(self, x: Tensor, n_heads: int) -> Tensor:
        """(B, L, D) -> (B, L, D): `x + attn(ln_1(x))`."""
        batch, length, dim = x.shape
        qkv = linear(layer_norm(x, x.shape[-1:], self.ln_1, self.ln_1_bias), self.qkv, self.qkv_bias)
        q, k, v = qkv.view(batch, length, 3, n_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)  # (B, H, L, D/H) each
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, dim)
        return x + linear(mixed, self.proj, self.proj_bias)

    def attend_newest(self, x: Tensor, n_heads: int) -> Tensor:
        """(B, L, D) -> (B, D): the last token of `attend`, which sees all others."""
        batch, _, dim = x.shape
        heads = (n_heads, dim // n_heads)
        wq, wk, wv = self.qkv.chunk(3)  # (D, D) each
        bq, _, bv = self.qkv_bias.chunk(3)  # a key's bias adds the same to every score
        known = layer_norm(x, x.shape[-1:], self.ln_1, self.ln_1_bias)
        q = linear(known[:, -1], wq, bq).view(batch, *heads).transpose(0, 1)  # (H, B, D/H)
        asked = (q @ wk.view(*heads, dim)).transpose(0, 1)  # (B, H, D)
        weights = (asked @ known.transpose(1, 2)).mul_(heads[1] ** -0.5).softmax(dim=-1)  # (B, H, L)
        mixed = (weights @ known).transpose(0, 1) @ wv.view(*heads, dim).transpose(1, 2)  # (H, B, D/H)
        return x[:, -1] + linear(mixed.transpose(0, 1).reshape(batch, dim) + bv, self.proj, self.proj_bias)


class Backbone(nn.Module):
    """`n_layers` blocks and a final LayerNorm, weights N(0, 0.02²), biases 0."""

    def __init__(self, dim: int, n_layers: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        blocks = [Block(dim, n_heads, dropout) for _ in range(n_layers)]
        self.blocks = nn.ModuleList(blocks)
        self.ln_f = nn.LayerNorm(dim)
        self.n_heads = n_heads
        self._weights = [block.weights() for block in blocks]
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor, read: slice | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D): the final hidden tokens at `read` (all by default)."""
        last = len(self.blocks) - 1
        for i, block in enumerate(self.blocks):
            x = block(x, read if i == last else None)
        out: Tensor = self.ln_f(x)
        return out

    def newest(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, D): `forward(x)[:, -1]` of a network that is not training, for less."""
        *before, last = self._weights
        for weights in before:
            x = weights.mlp(weights.attend(x, self.n_heads))
        out: Tensor = self.ln_f(last.mlp(last.attend_newest(x, self.n_heads)))
        return out
