"""GPT2-P: GPT2-DTMA with a penalty on the gates of the Markov heads in the first layer.

Source: Zhao et al., ICML 2025, "Markov heads" (first version: arXiv:2409.06985). The network is `_gated_dt.py`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator

from agentzoo.errors import ConfigError
from agentzoo.models._gated_dt import Causal, GatedConfig, GatedDT
from agentzoo.nn.language.lora import LoRALinear
from agentzoo.nn.markov import THRESHOLD, layer_statistics
from agentzoo.registry import register
from agentzoo.types import Batch, IOSpec, Losses

LayerIndex = Annotated[int, Field(ge=0, lt=128)]
HeadIndex = Annotated[int, Field(ge=0, lt=256)]


class GPT2PConfig(GatedConfig):
    """GPT2-DTMA's config, with the penalty on Markov heads."""

    title: ClassVar[str] = "GPT-2 Decision Transformer with a Markov-head penalty"

    family: Literal["gpt2-p"] = "gpt2-p"
    architecture: Causal = "gpt2"
    penalty_weight: Annotated[float, Field(gt=0.0, le=1000.0)] = 0.1
    penalty_layers: Annotated[tuple[LayerIndex, ...], Field(min_length=1, max_length=128)] = (0,)
    # of each of these layers; None: those that are Markov when training begins ({1, 5, 10} of GPT-2's first layer)
    markov_heads: Annotated[tuple[HeadIndex, ...], Field(min_length=1, max_length=256)] | None = None

    @model_validator(mode="after")
    def _layers_and_heads_exist(self) -> GPT2PConfig:
        if max(self.penalty_layers) >= self.n_layers:
            raise ValueError(f"penalty_layers count from 0 and must be below n_layers {self.n_layers}")
        if self.markov_heads is not None and max(self.markov_heads) >= self.n_heads:
            raise ValueError(f"markov_heads count from 0 and must be below n_heads {self.n_heads}")
        return self


@register("gpt2-p", GPT2PConfig)
class GPT2P(GatedDT):
    """GPT2-DTMA, trained to use its Markov heads little."""

    config: GPT2PConfig

    def __init__(self, config: GPT2PConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        named = config.markov_heads
        self.penalized = {} if named is None else dict.fromkeys(config.penalty_layers, named)  # layer -> heads

    def begin_training(self, fresh: bool) -> None:
        """As GPT2-DTMA; if no heads are named, it also finds the Markov heads of the initial weights."""
        super().begin_training(fresh)
        if self.config.markov_heads is None:
            self.penalized = {layer: self._markov_heads(layer) for layer in self.config.penalty_layers}

    def loss(self, batch: Batch) -> Losses:
        """GPT2-DTMA's loss plus `penalty_weight` times the sum of the Markov heads' mean gates."""
        terms, means = self._watched_loss(batch, tuple({0, *self.penalized}))
        self._gate_means = means[0].detach()
        sums = [means[layer][list(heads)].sum() for layer, heads in self.penalized.items()]
        nothing = means[0].new_zeros(())
        return {**terms, "penalty": self.config.penalty_weight * (torch.stack(sums).sum() if sums else nothing)}

    def _markov_heads(self, layer: int) -> tuple[int, ...]:
        qkv = self.attentions[layer].qkv
        weight = qkv.merged() if isinstance(qkv, LoRALinear) else qkv.weight
        found = layer_statistics(weight, self.config.n_heads)
        heads = tuple(head for head, one in enumerate(found) if one.is_markov())
        if not heads:
            ratios = ", ".join(f"{one.ratio:.2f}{'' if one.positive else ' (diagonal not positive)'}" for one in found)
            raise ConfigError(
                f"layer {layer} has no Markov head to penalize: ratios {ratios}, threshold {THRESHOLD:g}. Name the "
                'heads to penalize: --set "model.markov_heads=[0]".'
            )
        return heads
