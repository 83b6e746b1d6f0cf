"""The causal transformer blocks of four pretrained architectures, in plain PyTorch.

Source: transformers 5.23 `GPT2Model`, `CLIPTextModel`, `ImageGPTModel`, `GPTJModel`, whose numbers these give on the
same weights (tests/nn/test_language_parity.py). What differs between them:

| architecture | norm | block | attention | order of tokens |
|---|---|---|---|---|
| gpt2 | LayerNorm | attention, then MLP | biases | table `wpe`, added outside |
| clip | LayerNorm | attention, then MLP | biases; transformers passes the causal mask in | table, added outside |
| imagegpt | no mean, no bias | attention, then MLP | biases | table `wpe`, added outside |
| gptj | LayerNorm | attention and MLP side by side | no biases | rotation of the first dimensions of q and k |

Fresh weights are GPT-2's: N(0, 0.02²), biases 0, residual outputs scaled down.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from agentzoo.nn.dropout import Dropout
from agentzoo.nn.language.block_sizes import LoRASizes, Sizes
from agentzoo.nn.language.language_attention import LanguageAttention
from agentzoo.nn.language.rotary import Rotary
from agentzoo.nn.plain import per_token
from agentzoo.nn.tokens import Read, read_tokens


def _gelu_tanh(x: Tensor) -> Tensor:
    return gelu(x, approximate="tanh")


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "quick_gelu": _quick_gelu,
    "silu": silu,
}


class GPT2Block(nn.Module):
    """A block of any of the four architectures."""

    @staticmethod
    def norm(sizes: Sizes) -> nn.Module:
        """A norm over D numbers."""
        kind = nn.RMSNorm if sizes.architecture == "imagegpt" else nn.LayerNorm
        return kind(sizes.embed_dim, eps=sizes.norm_eps)

    @staticmethod
    def initial_std(sizes: Sizes) -> float:
        """The std of fresh weights."""
        return 0.02

    def __init__(self, sizes: Sizes, dropout: float, attention_dropout: float, lora: LoRASizes | None) -> None:
        super().__init__()
        self.ln_1 = self.norm(sizes)
        self.parallel = sizes.architecture == "gptj"
        self.attn = LanguageAttention(
            sizes.embed_dim,
            sizes.n_heads,
            sizes.n_heads,
            bias=not self.parallel,
            dropout=attention_dropout,
            rotary=Rotary(sizes.rotary_dim) if self.parallel else None,
            lora=lora,
        )
        if not self.parallel:
            self.ln_2 = self.norm(sizes)
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
        return per_token(self.down, self.activation(per_token(self.up, x)))
