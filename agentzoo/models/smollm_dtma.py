"""SmolLM-DTMA: SmolLM-DT with a gate on every attention head.

Source: Zhao et al., ICML 2025, "Markov heads" (first version: arXiv:2409.06985). The network is `_gated_dt.py`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from agentzoo.models._gated_dt import GatedConfig, GatedDT
from agentzoo.models._llama_config import LlamaConfig
from agentzoo.registry import register


class SmolLMDTMAConfig(LlamaConfig, GatedConfig):
    """SmolLM-DT's config, with gates."""

    title: ClassVar[str] = "SmolLM2 Decision Transformer with mixed attention"
    counterparts: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("gpt2", "imagegpt", "gptj"), "gpt2-dtma"),
        "clip": "clip-dtma",
    }

    family: Literal["smollm-dtma"] = "smollm-dtma"


@register("smollm-dtma", SmolLMDTMAConfig)
class SmolLMDTMA(GatedDT):
    """Gated blocks from a Llama."""

    config: SmolLMDTMAConfig
