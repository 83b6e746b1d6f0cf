"""Small gated networks, a backbone's size, and a recipe for them."""

from __future__ import annotations

from typing import Any

import torch
from conftest import make_agent

from agentzoo.models._gated_dt import GatedDT
from agentzoo.models.gpt2_dtma import GPT2DTMAConfig
from agentzoo.nn.base import ModelConfig
from agentzoo.nn.gate import Gate
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig

SMALL: dict[str, Any] = {"embed_dim": 16, "n_layers": 3, "n_heads": 4}


def gated(config: ModelConfig | None = None) -> GatedDT:
    found = make_agent(model=config or GPT2DTMAConfig(**SMALL)).model
    assert isinstance(found, GatedDT)
    return found


def with_random_gates(model: GatedDT) -> GatedDT:
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for gate in gates_of(model):
            gate.weight.normal_(std=0.5, generator=rng)
            gate.bias.normal_(std=0.5, generator=rng)
    return model


def gates_of(model: GatedDT) -> list[Gate]:
    found = [attention.gate for attention in model.attentions]
    assert all(gate is not None for gate in found)
    return found  # type: ignore[return-value]


def recipe(model: ModelConfig, steps: int = 8) -> Recipe:
    return Recipe(
        agent_id="gpt2-dtma-test",
        model=model,
        data=DataConfig(dataset="coins", context=2, rtg_scale=1.0),
        train=TrainConfig(steps=steps, batch_size=8, warmup_steps=2, checkpoint_every=4, log_every=2, lr=1e-2),
        eval=EvalConfig(env="tests/Counting-v0", target_return=1.0, every=0),
    )


BACKBONE: dict[str, Any] = {"embed_dim": 128, "n_layers": 2, "n_heads": 2}
