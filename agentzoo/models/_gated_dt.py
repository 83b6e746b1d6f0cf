"""GPT2-DT with a gate that weighs the attention heads at each token: the base of `gpt2_dtma`, `dtma` and others.

Source: Zhao et al., ICML 2025, "Markov heads" (first version: arXiv:2409.06985); the gate is `nn/gate.py`. Every layer
has its own gate. Gates are trained with any `adaptation`, at the rate of the agent's own layers and without weight
decay.

With fresh gates and the default scale the network is GPT2-DT to the last bits
(tests/models/test_gpt2_dtma.py::test_fresh_gates_change_nothing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, model_validator
from torch import Tensor

from agentzoo.models._language_config import LanguageDTConfig
from agentzoo.models._language_dt import LanguageDT
from agentzoo.nn.attention import HeadCount
from agentzoo.nn.base import Origin
from agentzoo.nn.gate import Gate
from agentzoo.nn.language.language_attention import LanguageAttention
from agentzoo.nn.markov import layer_statistics
from agentzoo.nn.tokens import TOKENS_PER_STEP
from agentzoo.papers import ZHAO, Citation
from agentzoo.types import Batch, IOSpec, Losses

if TYPE_CHECKING:
    from agentzoo.nn.language.pretrained import Pretrained

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Causal = Literal["gpt2", "imagegpt", "gptj"]


class GatedConfig(LanguageDTConfig):
    """Fields that every gated family adds."""

    paper: ClassVar[Citation | None] = ZHAO
    recorded: ClassVar[dict[str, str]] = {**LanguageDTConfig.recorded, "markov_at_start": "backbone"}

    n_heads: HeadCount = 4
    gate_scale: Literal["heads", "paper"] = "heads"  # s: "heads" is the number of heads, "paper" is 1
    # (positive share of the diagonal, ratio) of each head of the backbone's first layer, see nn/markov.py.
    # Recorded before the first update, so that the heads to analyse are chosen before training changes them
    markov_at_start: Annotated[tuple[tuple[Share, NonNegativeFloat], ...], Field(max_length=256)] | None = None

    @model_validator(mode="after")
    def _has_heads_to_weigh(self) -> GatedConfig:
        if self.n_heads < 2:
            raise ValueError("n_heads must be at least 2: the gate of a single head is always 1")
        if self.markov_at_start is not None and len(self.markov_at_start) != self.n_heads:
            raise ValueError(f"markov_at_start has {len(self.markov_at_start)} entries for {self.n_heads} heads")
        return self

    def records_of(self, found: Pretrained) -> dict[str, Any]:
        """Adds the statistics of the backbone's heads."""
        heads = layer_statistics(found.blocks["blocks.0.attn.qkv.weight"], self.n_heads)
        # three decimals, so that other machines record the same; a share of 1 is exact: every entry is positive
        shares = [1.0 if one.positive_share == 1.0 else min(round(one.positive_share, 3), 0.999) for one in heads]
        start = tuple((share, round(min(one.ratio, 1e6), 3)) for share, one in zip(shares, heads, strict=True))
        return {**super().records_of(found), "markov_at_start": start}

    def origin(self) -> Origin:
        """Adds the scale of the gates."""
        return super().origin()._replace(gate_scale=self.gate_scale)


class GatedDT(LanguageDT):
    """A language Decision Transformer with a gate in every layer."""

    config: GatedConfig

    def __init__(self, config: GatedConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        scale = float(config.n_heads) if config.gate_scale == "heads" else 1.0
        for attention in self.attentions:
            attention.gate = Gate(config.embed_dim, config.n_heads, scale)
        self._gate_means: Tensor | None = None

    @property
    def attentions(self) -> list[LanguageAttention]:
        """The attention of every layer."""
        return [block.get_submodule("attn") for block in self.backbone.blocks]  # type: ignore[misc]

    def loss(self, batch: Batch) -> Losses:
        """GPT2-DT's loss; it also keeps the gates of the first layer for `figures`."""
        terms, means = self._watched_loss(batch, (0,))
        self._gate_means = means[0].detach()
        return terms

    def figures(self) -> Losses:
        """Mean gate of each head of the first layer over the real tokens of the last batch."""
        means = self._gate_means
        return {} if means is None else {f"gate_{head}": mean for head, mean in enumerate(means)}

    def begin_training(self, fresh: bool) -> None:
        """As GPT2-DT. A backbone has no gates, so the gates are detached while its weights load."""
        gates = [attention.gate for attention in self.attentions]
        for attention in self.attentions:
            attention.gate = None
        try:
            super().begin_training(fresh)
        finally:
            for attention, gate in zip(self.attentions, gates, strict=True):
                attention.gate = gate

    def decays(self, name: str) -> bool:
        """As GPT2-DT, but gates never decay."""
        return ".gate." not in name and super().decays(name)

    def lr_scale(self, name: str) -> float:
        """Gates learn at the rate of the agent's own layers, although they are inside the blocks."""
        return 1.0 if ".gate." in name else super().lr_scale(name)

    def _watched_loss(self, batch: Batch, layers: tuple[int, ...]) -> tuple[Losses, dict[int, Tensor]]:
        """The loss, and the mean gate (N,) of each of these layers over the real tokens it weighed."""
        found = {layer: self.attentions[layer].gate for layer in layers}
        gates = {layer: gate for layer, gate in found.items() if gate is not None}
        for gate in gates.values():
            gate.keeps, gate.kept = True, []
        try:
            terms = super().loss(batch)
            # co-training sends text through the gates after the windows
            return terms, {layer: _mean_over_tokens(gate.kept[0], batch.valid) for layer, gate in gates.items()}
        finally:
            for gate in gates.values():
                gate.keeps, gate.kept = False, []


def _mean_over_tokens(weights: Tensor, valid: Tensor) -> Tensor:
    """(B, L, N) -> (N,), where L is 3K, or K in a last layer that is read at the observations only."""
    real = valid.repeat_interleave(TOKENS_PER_STEP, dim=1) if weights.shape[1] != valid.shape[1] else valid
    share = real.to(weights.dtype).unsqueeze(-1)
    return (weights * share).sum((0, 1)) / share.sum().clamp(min=1.0)
