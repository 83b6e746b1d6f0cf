"""Small masked networks, untrained, whose answers depend on everything they are shown."""

from __future__ import annotations

from typing import Any

import torch
from conftest import io_of

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.envs import DOORKEY
from agentzoo.envs.making import make_env
from agentzoo.models.unimask import UniMask, UniMaskConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.types import ActionSpec, Batch, IOSpec, ObservationSpec

SIZES: dict[str, Any] = {"embed_dim": 16, "ffn_dim": 16, "n_heads": 2, "n_layers": 2}


def network(io: IOSpec | None = None, **config: Any) -> UniMask:
    """In eval mode, with weights large enough to tell inputs apart."""
    made = io or IOSpec(
        observation=ObservationSpec(size=3, shapes=((3,),)),
        action=ActionSpec(kind="box", size=2, low=(-2.0, -2.0), high=(2.0, 2.0)),
        context=6,
    )
    torch.manual_seed(0)
    model = UniMask(UniMaskConfig(**{**SIZES, **config}), made)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3.0)
    return model.eval()


def doorkey_agent(**config: Any) -> Agent:
    """An untrained agent for DoorKey."""
    env = make_env(DOORKEY)
    io = io_of(env, 10)
    env.close()
    model = network(io, onehot_observations=True, return_classes=(-6, 10), **config)
    data = DataConfig(dataset="zoo/doorkey/train-50-v0", context=10, rtg_scale=1.0, drawn="full", normalization="none")
    recipe = Recipe(
        agent_id="unimask-test",
        model=model.config,
        data=data,
        train=TrainConfig(steps=3),
        eval=EvalConfig(env=DOORKEY, target_return=5.0),
    )
    return Agent(model, AgentConfig.of(recipe, io), recipe)


def any_batch(io: IOSpec, count: int, seed: int = 0) -> Batch:
    """Full windows of noise."""
    rng = torch.Generator().manual_seed(seed)
    shape = (count, io.context)
    if io.action.kind == "discrete":
        actions = torch.randint(io.action.size, shape, generator=rng)
    else:
        actions = torch.rand(*shape, io.action.size, generator=rng) * 2 - 1
    return Batch(
        observations=torch.randn(*shape, io.observation.size, generator=rng),
        actions=actions,
        returns_to_go=torch.rand(shape, generator=rng) * 4,
        timesteps=torch.arange(io.context).expand(shape).clone(),
        valid=torch.ones(shape, dtype=torch.bool),
    )
