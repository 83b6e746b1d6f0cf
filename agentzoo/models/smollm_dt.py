"""SmolLM-DT: GPT2-DT's construction on the blocks of SmolLM2, a Llama that knows English.

Sources: Reid et al. 2022, arXiv:2201.12122, and Shi et al. 2024, arXiv:2310.20587, for language models as a start;
Allal et al. 2025, arXiv:2502.02737, for SmolLM2. The network is `_language_dt.py`, the blocks are
`nn/language/llama.py`.
Differs: only the first layers of the backbone, by default 3 of 30 (`n_layers`), with all weights trained;
`adaptation=lora` with `n_layers=30` trains low-rank updates of all layers. Tokens have two kinds of positions: the
timestep embedding, as in every agent here, and the rotary positions of the backbone.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from agentzoo.models._language_dt import LanguageDT
from agentzoo.models._llama_config import LlamaConfig
from agentzoo.registry import register


class SmolLMDTConfig(LlamaConfig):
    """SmolLM2-135M's sizes by default; other Llamas by their sizes."""

    title: ClassVar[str] = "SmolLM2 Decision Transformer"
    counterparts: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("gpt2", "imagegpt", "gptj"), "gpt2-dt"),
        "clip": "clip-dt",
    }

    family: Literal["smollm-dt"] = "smollm-dt"


@register("smollm-dt", SmolLMDTConfig)
class SmolLMDT(LanguageDT):
    """The blocks of a Llama."""

    config: SmolLMDTConfig
