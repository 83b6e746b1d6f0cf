"""Llama's block, which SmolLM2 uses, in plain PyTorch.

Source: Touvron et al. 2023, arXiv:2302.13971; transformers 5.23 `LlamaModel`, whose numbers this gives on the same
weights (tests/nn/test_llama_parity.py). Against GPT-2's block:

- norm: RMSNorm, `x / sqrt(mean(x²) + eps) · gain`, without mean and bias;
- attention: no biases; queries and keys turned by rotary positions; several query heads share one key-value head
  (grouped queries, Ainslie et al. 2023, arXiv:2305.13245);
- MLP: SwiGLU, `W_down (silu(W_gate x) · W_up x)` (Shazeer 2020, arXiv:2002.05202). Gate and up are one matrix here, the
  gate's rows first;
- no dropout. An agent may add some, in the same places as in GPT-2's block.

Fresh weights are SmolLM2's: N(0, 1/D), residual outputs scaled down.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from agentzoo.nn.dropout import Dropout
from agentzoo.nn.language.block_sizes import LoRASizes, Sizes
from agentzoo.nn.language.language_attention import LanguageAttention
from agentzoo.nn.language.rotary import THETA, Rotary
from agentzoo.nn.tokens import Read, read_tokens


class RMSNorm(nn.RMSNorm):
    """`nn.RMSNorm` with the gain in the tokens' dtype; else PyTorch leaves its fused path under autocast."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class LlamaBlock(nn.Module):
    """`x + attn(norm(x))`, then `x + mlp(norm(x))`."""

    @staticmethod
    def norm(sizes: Sizes) -> nn.Module:
        """A norm over D numbers."""
        return RMSNorm(sizes.embed_dim, eps=sizes.norm_eps)

    @staticmethod
    def initial_std(sizes: Sizes) -> float:
        """The std of fresh weights."""
        return float(sizes.embed_dim**-0.5)

    def __init__(self, sizes: Sizes, dropout: float, attention_dropout: float, lora: LoRASizes | None) -> None:
        super().__init__()
        self.ln_1 = self.norm(sizes)
        self.attn = LanguageAttention(
            sizes.embed_dim,
            sizes.n_heads,
            sizes.n_kv_heads or sizes.n_heads,
            bias=False,
            dropout=attention_dropout,
            rotary=Rotary(sizes.embed_dim // sizes.n_heads, sizes.rotary_theta or THETA, halves=True),
            lora=lora,
        )
        self.ln_2 = self.norm(sizes)
        self.parts = {"up": (sizes.inner_dim, sizes.inner_dim)}
        self.up = nn.Linear(sizes.embed_dim, 2 * sizes.inner_dim, bias=False)
        self.down = nn.Linear(sizes.inner_dim, sizes.embed_dim, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D)."""
        x = self.dropout.add(read_tokens(x, read), self.attn(self.ln_1(x), read))
        gate, up = self.up(self.ln_2(x)).chunk(2, dim=-1)
        return self.dropout.add(x, self.down(silu(gate) * up))
