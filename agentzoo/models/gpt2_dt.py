"""GPT2-DT: a Decision Transformer whose blocks come from a GPT-2, an ImageGPT or a GPT-J.

Sources: Reid et al. 2022, arXiv:2201.12122 (ChibiT, preset `wikipedia`),
machelreid/can-wikipedia-help-offline-rl@e1060f0; Shi et al. 2024, arXiv:2310.20587 (`lamo`), srzer/LaMo-2023@3e4fcc8.
The default is `markov`, the preset of the Markov-heads papers: LaMo's maps and heads, everything trained.
The network is `_language_dt.py`, the presets are in `_language_config.py`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from agentzoo.models._language_config import LanguageDTConfig
from agentzoo.models._language_dt import LanguageDT
from agentzoo.registry import register


class GPT2DTConfig(LanguageDTConfig):
    """GPT-2's blocks by default; `architecture` chooses ImageGPT or GPT-J."""

    title: ClassVar[str] = "GPT-2 Decision Transformer"
    counterparts: ClassVar[dict[str, str]] = {"clip": "clip-dt", "llama": "smollm-dt"}

    family: Literal["gpt2-dt"] = "gpt2-dt"
    architecture: Literal["gpt2", "imagegpt", "gptj"] = "gpt2"


@register("gpt2-dt", GPT2DTConfig)
class GPT2DT(LanguageDT):
    """The blocks of a GPT-2, ImageGPT or GPT-J."""

    config: GPT2DTConfig
