"""GPT2-DTMA: GPT2-DT with a gate on every attention head, started from a language model.

Source: Zhao et al., ICML 2025, "Markov heads" (first version: arXiv:2409.06985). The network is `_gated_dt.py`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from agentzoo.models._gated_dt import Causal, GatedConfig, GatedDT
from agentzoo.registry import register


class GPT2DTMAConfig(GatedConfig):
    """GPT2-DT's config, with gates."""

    title: ClassVar[str] = "GPT-2 Decision Transformer with mixed attention"
    counterparts: ClassVar[dict[str, str]] = {"clip": "clip-dtma", "llama": "smollm-dtma"}

    family: Literal["gpt2-dtma"] = "gpt2-dtma"
    architecture: Causal = "gpt2"


@register("gpt2-dtma", GPT2DTMAConfig)
class GPT2DTMA(GatedDT):
    """Gated blocks from a GPT-2, ImageGPT or GPT-J."""

    config: GPT2DTMAConfig
