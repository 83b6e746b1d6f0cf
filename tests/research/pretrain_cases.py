"""A language model that is pre-trained in a moment."""

from __future__ import annotations

from pathlib import Path

import torch

from agentzoo.research.pretrain.lm import train_language_model
from agentzoo.research.pretrain.settings import LM_SIZES, LMSettings

TINY = LM_SIZES["chibi"].override(
    [
        "embed_dim=16",
        "n_layers=1",
        "vocab_size=300",
        "context=16",
        "steps=20",
        "warmup_steps=4",
        "log_every=5",
        "evaluate_every=10",
        "checkpoint_every=5",
        "held_out=0.2",
    ]
)

WORDS = "the cat sat on a mat and saw another cat that sat there too\n"


def train(text: Path, run: Path, settings: LMSettings = TINY) -> dict[str, torch.Tensor]:
    task = train_language_model(settings, run, [text], [text / "valid.txt"])
    return {name: value.detach().clone() for name, value in task.module.named_parameters()}
