"""The last token of a stack of one-headed blocks, with everything that only weights enter multiplied out beforehand.

With a single head a score is q·k = u Wqᵀ Wk u' for the normalized tokens u and u', and the projection of a weighted sum
of values is a weighted sum of Wp Wv u'. So attention takes two products a token where the modules take four; a key's
bias adds the same to every score of a query and is left out, LayerNorm's own weights go into the product behind it, and
of the last block only the last token is computed. Equal up to rounding (tests/nn/test_newest.py).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from agentzoo.nn.attention import Backbone, Block, causal_bias


class FoldedBlock(NamedTuple):
    """A block as products from the right: (in, out)."""

    eps: tuple[float, float]  # of both LayerNorms
    ask_answer: Tensor  # (D, 2D), what a token looks for in the others, and what it adds to those that look for it
    ask_answer_bias: Tensor
    up: Tensor  # (D, 4D)
    up_bias: Tensor
    down: Tensor  # (4D, D)
    down_bias: Tensor

    @classmethod
    def of(cls, block: Block) -> FoldedBlock:
        """Multiplied in float64, kept in the parameters' own type."""
        norms, layers = (block.ln_1, block.ln_2), (block.attn.qkv, block.attn.proj, block.up, block.down)
        (scale, shift), (scale_2, shift_2) = ((norm.weight.double(), norm.bias.double()) for norm in norms)
        qkv, proj, up, down = (layer.weight.double() for layer in layers)
        qkv_bias, proj_bias, up_bias, down_bias = (layer.bias.double() for layer in layers)
        (wq, wk, wv), (bq, _, bv) = qkv.chunk(3), qkv_bias.chunk(3)
        keys = wk * scale / len(wk) ** 0.5
        ask, ask_bias = (wq * scale).t() @ keys, (wq @ shift + bq) @ keys
        answer, answer_bias = (proj @ (wv * scale)).t(), proj @ (wv @ shift + bv) + proj_bias
        products = (
            (torch.cat((ask, answer), dim=1), torch.cat((ask_bias, answer_bias))),
            ((up * scale_2).t(), up @ shift_2 + up_bias),
            (down.t(), down_bias),
        )
        folded = (part.to(block.up.weight.dtype).contiguous() for pair in products for part in pair)
        return cls((block.ln_1.eps, block.ln_2.eps), *folded)

    def normalize(self, x: Tensor, which: int) -> Tensor:
        """(..., D) -> (..., D): the LayerNorm before attention (0) or the MLP (1), without its weights."""
        return layer_norm(x, x.shape[-1:], eps=self.eps[which])

    def attend(self, x: Tensor) -> Tensor:
        """(B, L, D) or (L, D) -> (B·L, D): `x + attn(ln_1(x))`."""
        seen = self.normalize(x, 0)
        both = torch.addmm(self.ask_answer_bias, seen.flatten(0, -2), self.ask_answer)
        asked, answers = both.view(*x.shape[:-1], -1).chunk(2, dim=-1)
        add_product = torch.addmm if x.ndim == 2 else torch.baddbmm
        scores = add_product(causal_bias(x.shape[-2], None, x.dtype, x.device), asked, seen.mT)
        return add_product(x, scores.softmax(dim=-1), answers).flatten(0, -2)

    def attend_newest(self, x: Tensor) -> Tensor:
        """(B, L, D) or (L, D) -> (B, D): the last token of `attend`, which sees all others."""
        (ask, answer), (ask_bias, answer_bias) = self.ask_answer.chunk(2, dim=1), self.ask_answer_bias.chunk(2)
        seen = self.normalize(x, 0)
        last = seen[..., -1:, :]
        asked = torch.addmm(ask_bias, last.flatten(0, -2), ask).view(last.shape)
        found = (asked @ seen.mT).softmax(dim=-1) @ seen  # one answer to the sum, rather than a sum of answers
        return torch.addmm(x[..., -1, :].view(-1, x.shape[-1]), found.flatten(0, -2), answer).add_(answer_bias)

    def mlp_(self, x: Tensor) -> Tensor:
        """(R, D) -> (R, D), in place: `x + mlp(ln_2(x))`."""
        inner = torch.addmm(self.up_bias, self.normalize(x, 1), self.up).relu_()
        return x.addmm_(inner, self.down).add_(self.down_bias)


class NewestToken(NamedTuple):
    """`backbone(x)[:, -1]` of a backbone with one head, without gradients."""

    blocks: tuple[FoldedBlock, ...]
    norm: tuple[Tensor, Tensor, float]  # the final LayerNorm: weight, bias, eps

    @classmethod
    @torch.no_grad()
    def of(cls, backbone: Backbone) -> NewestToken:
        """From the weights of now."""
        blocks = tuple(FoldedBlock.of(block) for block in backbone.blocks if isinstance(block, Block))
        return cls(blocks, (backbone.ln_f.weight, backbone.ln_f.bias, backbone.ln_f.eps))

    def __call__(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, D)."""
        if len(x) == 1:
            x = x.squeeze(0)  # a product of matrices is faster than a batch of one
        *before, last = self.blocks
        for block in before:
            x = block.mlp_(block.attend(x)).view(x.shape)
        return layer_norm(last.mlp_(last.attend_newest(x)), x.shape[-1:], *self.norm)
