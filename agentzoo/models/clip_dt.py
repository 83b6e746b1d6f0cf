"""CLIP-DT: a Decision Transformer whose blocks come from the text tower of CLIP.

Source: Reid et al. 2022, arXiv:2201.12122, section 4; Radford et al. 2021, arXiv:2103.00020, for the tower: pre-LN
blocks, causal mask, quick-GELU. Everything but the blocks is GPT2-DT's.
Differs: the timestep table is always fresh, since 77 positions are too few for an episode; no co-training, since the
tower never predicted a next token; dropout in the blocks, 0.1 by default as in the other agents (the tower had none).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from agentzoo.models._language_config import LanguageDTConfig
from agentzoo.models._language_dt import LanguageDT
from agentzoo.nn.language.block_sizes import Activation
from agentzoo.registry import register


class CLIPDTConfig(LanguageDTConfig):
    """Sizes of the text tower."""

    title: ClassVar[str] = "CLIP Decision Transformer"
    counterparts: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("gpt2", "imagegpt", "gptj"), "gpt2-dt"),
        "llama": "smollm-dt",
    }

    family: Literal["clip-dt"] = "clip-dt"
    architecture: Literal["clip"] = "clip"
    activation: Activation = "quick_gelu"


@register("clip-dt", CLIPDTConfig)
class CLIPDT(LanguageDT):
    """The blocks of a CLIP text tower."""

    config: CLIPDTConfig
