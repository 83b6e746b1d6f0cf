"""A language model with a Markov head."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentzoo.research.pretrain.new_networks import new_language_model


@pytest.fixture
def backbone(tmp_path: Path) -> str:
    """A GPT-2 whose first layer has one Markov head by construction: head 1's keys are its queries."""
    torch.manual_seed(0)
    model = new_language_model(20, 128, 2, 2, 16, "relu")
    with torch.no_grad():
        qkv = model.transformer.h[0].attn.c_attn.weight  # (D, 3D): q0 q1 k0 k1 v0 v1
        qkv[:, 192:256] = qkv[:, 64:128]
    model.save_pretrained(tmp_path / "gpt2")
    return str(tmp_path / "gpt2")
