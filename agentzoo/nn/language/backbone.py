"""The blocks of a language model and its final norm, whatever its architecture.

A block takes `(sizes, dropout, attention_dropout, lora)`, has `ln_1`, `attn`, `ln_2` (not in gptj), `up` and `down`,
and says which norm it uses and the std of its fresh weights. Token tables, position tables and heads are not part of a
backbone.
Tokens of a window are padded on the right, so the causal mask alone keeps padding from real tokens.
"""

from __future__ import annotations

from torch import Tensor, nn

from agentzoo.nn.attention import through
from agentzoo.nn.language.block_sizes import Architecture, LoRASizes, Sizes
from agentzoo.nn.language.gpt2 import GPT2Block
from agentzoo.nn.language.llama import LlamaBlock
from agentzoo.nn.tokens import Read

BLOCKS: dict[Architecture, type[GPT2Block] | type[LlamaBlock]] = {
    "gpt2": GPT2Block,
    "imagegpt": GPT2Block,
    "gptj": GPT2Block,
    "clip": GPT2Block,
    "llama": LlamaBlock,
}


class LanguageBackbone(nn.Module):
    """Blocks and a final norm. Fresh weights are normal with the blocks' own std, biases 0, residual outputs small."""

    def __init__(
        self, sizes: Sizes, dropout: float = 0.0, attention_dropout: float = 0.0, lora: LoRASizes | None = None
    ) -> None:
        super().__init__()
        kind = BLOCKS[sizes.architecture]
        self.blocks = nn.ModuleList([kind(sizes, dropout, attention_dropout, lora) for _ in range(sizes.n_layers)])
        self.ln_f = kind.norm(sizes)
        std = kind.initial_std(sizes)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                ends_branch = name.endswith((".proj", ".down"))
                nn.init.normal_(module.weight, std=std / (2 * sizes.n_layers) ** 0.5 if ends_branch else std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def rows_of(self, name: str) -> tuple[int, ...]:
        """The rows of the parts of layer `name` (q, k and v, or gate and up); empty if it has one part."""
        owner, _, layer = name.rpartition(".")
        parts: dict[str, tuple[int, ...]] = getattr(self.get_submodule(owner), "parts", {})
        return parts.get(layer, ())

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        """(B, L, D) -> (B, Lq, D): the final hidden tokens at `read` (all by default)."""
        out: Tensor = self.ln_f(through(self.blocks, x, read))
        return out
