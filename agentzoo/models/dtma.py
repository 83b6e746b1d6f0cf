"""DTMA: the network of GPT2-DTMA, started from random weights.

Source: Zhao et al., ICML 2025, "Markov heads" (first version: arXiv:2409.06985). The network is `_gated_dt.py`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from agentzoo.models._gated_dt import Causal, GatedConfig, GatedDT
from agentzoo.registry import register


class DTMAConfig(GatedConfig):
    """GPT2-DTMA's config, without a backbone."""

    title: ClassVar[str] = "Decision Transformer with mixed attention"

    family: Literal["dtma"] = "dtma"
    architecture: Causal = "gpt2"
    backbone: None = None


@register("dtma", DTMAConfig)
class DTMA(GatedDT):
    """Gated blocks from random weights."""

    config: DTMAConfig
