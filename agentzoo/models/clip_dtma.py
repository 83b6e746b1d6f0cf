"""CLIP-DTMA: CLIP-DT with the gates of GPT2-DTMA. No paper has this combination."""

from __future__ import annotations

from typing import ClassVar, Literal

from agentzoo.models._gated_dt import GatedConfig, GatedDT
from agentzoo.nn.language.block_sizes import Activation
from agentzoo.registry import register


class CLIPDTMAConfig(GatedConfig):
    """CLIP-DT's config, with gates."""

    title: ClassVar[str] = "CLIP Decision Transformer with mixed attention"
    counterparts: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("gpt2", "imagegpt", "gptj"), "gpt2-dtma"),
        "llama": "smollm-dtma",
    }

    family: Literal["clip-dtma"] = "clip-dtma"
    architecture: Literal["clip"] = "clip"
    activation: Activation = "quick_gelu"


@register("clip-dtma", CLIPDTMAConfig)
class CLIPDTMA(GatedDT):
    """Gated blocks from the text tower of a CLIP."""

    config: CLIPDTMAConfig
