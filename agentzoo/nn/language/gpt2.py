"""The causal transformer blocks of four pretrained architectures, in plain PyTorch.

Source: transformers 5.23 `GPT2Model`, `CLIPTextModel`, `ImageGPTModel`, `GPTJModel`, whose numbers these give on the
same weights (tests/nn/test_language_parity.py). What differs between them:

| architecture | norm | block | attention | order of tokens |
|---|---|---|---|---|
| gpt2 | LayerNorm | attention, then MLP | biases | table `wpe`, added outside |
| clip | LayerNorm | attention, then MLP | biases; a causal mask from outside there | table, added outside |
| imagegpt | no mean, no bias | attention, then MLP | biases | table `wpe`, added outside |
| gptj | LayerNorm | attention and MLP side by side | no biases | rotation of the first dimensions of q and k |

Token tables, position tables and heads are not part of this. Tokens of a window are padded on the right, so the causal
mask alone keeps padding from real tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import gelu, relu

from agentzoo.nn.attention import CausalAttention, HeadCount, LayerCount
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.gate import Gate
from agentzoo.nn.language.lora import LoRALinear
from agentzoo.nn.native.fused import fuses, gelu_tanh
from agentzoo.nn.tokens import Read, read_tokens

Architecture = Literal["gpt2", "imagegpt", "gptj", "clip"]
Activation = Literal["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu"]
Width = Annotated[int, Field(ge=1, le=8192)]
__all__ = ["Activation", "Architecture", "HeadCount", "LanguageBackbone", "LayerCount", "LoRASizes", "Sizes", "Width"]


class Sizes(NamedTuple):
    """What must be known to build the blocks; all of it is read from a checkpoint's config or given by a recipe."""

    architecture: Architecture
    embed_dim: int  # D
    n_layers: int
    n_heads: int
    inner_dim: int  # of the MLP
    activation: Activation
    norm_eps: float = 1e-5
    rotary_dim: int = 0  # gptj: of each head, how many numbers are rotated


class LoRASizes(NamedTuple):
    """Low-rank updates of the query-key-value projection."""

    rank: int
    alpha: float
    dropout: float


def _gelu_tanh(x: Tensor) -> Tensor:
    # what only acts gives PyTorch's very numbers
    return gelu_tanh(x) if x.requires_grad and fuses(x) else gelu(x, approximate="tanh")


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "quick_gelu": _quick_gelu,
}


def make_norm(sizes: Sizes) -> nn.Module:
    """The architecture's norm over D numbers."""
    kind = nn.RMSNorm if sizes.architecture == "imagegpt" else nn.LayerNorm
    return kind(sizes.embed_dim, eps=sizes.norm_eps)


class LanguageAttention(CausalAttention):
    """Causal self-attention with a projection that may have low-rank updates, and GPT-J's rotation."""

    gate: Gate | None  # of a Mixture of Attention, set by its families

    def __init__(self, sizes: Sizes, dropout: float, lora: LoRASizes | None) -> None:
        super().__init__(sizes.embed_dim, sizes.n_heads, dropout)
        bias = sizes.architecture != "gptj"
        dim = sizes.embed_dim
        self.qkv = nn.Linear(dim, 3 * dim, bias) if lora is None else LoRALinear(dim, *lora, bias)
        self.proj = nn.Linear(dim, dim, bias)
        self.rotary_dim = sizes.rotary_dim if sizes.architecture == "gptj" else 0
        self.gate = None

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D), the tokens at `read` (all by default)."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (self._split(part) for part in (read_tokens(q, read), k, v))  # (B, H, L, D/H)
        if self.rotary_dim:
            turned = rotation(x.shape[1], self.rotary_dim, x.device)
            asking = turned if read is None else turned[:, read]
            q = rotate(q, asking[:, :, None, None] if isinstance(read, Tensor) else asking, self.rotary_dim)
            k = rotate(k, turned, self.rotary_dim)
        heads = self._mix(q, k, v, read)
        if self.gate is not None:
            heads = self.gate(heads, read_tokens(x, read))
        out: Tensor = self.proj(heads.transpose(1, 2).flatten(2))
        return out


def rotation(length: int, size: int, device: torch.device) -> Tensor:
    """(2, L, size): cosine and sine of each token's angle, every frequency twice in a row.

    Source: Su et al. 2021, arXiv:2104.09864; neighbouring pairs, as GPT-J.
    """
    frequencies = 10000.0 ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.arange(length, device=device)[:, None] * frequencies  # (L, size/2)
    return torch.stack((angles.cos(), angles.sin())).repeat_interleave(2, dim=-1)


def rotate(x: Tensor, turned: Tensor, size: int) -> Tensor:
    """(B, H, L, D/H): of each head the first `size` numbers turned, (a, b) -> (a cos - b sin, b cos + a sin)."""
    turning, still = x[..., :size], x[..., size:]
    quarter = torch.stack((-turning[..., 1::2], turning[..., ::2]), dim=-1).flatten(-2)
    cosine, sine = turned.to(x.dtype)
    return torch.cat((turning * cosine + quarter * sine, still), dim=-1)


class LanguageBlock(nn.Module):
    """One block of any of the architectures."""

    def __init__(self, sizes: Sizes, dropout: float, attention_dropout: float, lora: LoRASizes | None) -> None:
        super().__init__()
        self.ln_1 = make_norm(sizes)
        self.attn = LanguageAttention(sizes, attention_dropout, lora)
        self.parallel = sizes.architecture == "gptj"
        if not self.parallel:
            self.ln_2 = make_norm(sizes)
        self.up = nn.Linear(sizes.embed_dim, sizes.inner_dim)
        self.down = nn.Linear(sizes.inner_dim, sizes.embed_dim)
        self.activation = ACTIVATIONS[sizes.activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D)."""
        known = self.ln_1(x)
        mixed = self.attn(known, read)
        kept = read_tokens(x, read)
        if self.parallel:
            return self.dropout.add(self.dropout.add(kept, mixed), self._mlp(read_tokens(known, read)))
        kept = self.dropout.add(kept, mixed)
        return self.dropout.add(kept, self._mlp(self.ln_2(kept)))

    def _mlp(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.activation(self.up(x)))
        return out


class LanguageBackbone(nn.Module):
    """The blocks and the final norm. Fresh weights are GPT-2's: N(0, 0.02²), biases 0, residual outputs scaled down."""

    def __init__(
        self, sizes: Sizes, dropout: float = 0.0, attention_dropout: float = 0.0, lora: LoRASizes | None = None
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [LanguageBlock(sizes, dropout, attention_dropout, lora) for _ in range(sizes.n_layers)]
        )
        self.ln_f = make_norm(sizes)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                ends_branch = name.endswith((".proj", ".down"))
                nn.init.normal_(module.weight, std=0.02 / (2 * sizes.n_layers) ** 0.5 if ends_branch else 0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D): the final hidden tokens at `read` (all by default)."""
        last = len(self.blocks) - 1
        for i, block in enumerate(self.blocks):
            x = block(x, read if i == last else None)
        out: Tensor = self.ln_f(x)
        return out
