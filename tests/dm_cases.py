"""Small Decision Mambas and windows that several test files share."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from agentzoo.models.dm import DecisionMamba, DMConfig, Memory
from agentzoo.types import ActionSpec, Batch, IOSpec, ObservationSpec

S, A, K = 3, 2, 6
SMALL: dict[str, Any] = {"embed_dim": 16, "n_layers": 2, "state_size": 4}
GATHERS, FUSIONS = ("step", "causal3", "summary"), ("paper", "release")
VARIANTS = [
    *({"gather": gather, "fusion": fusion} for gather, fusion in product(GATHERS, FUSIONS)),
    *({"use_fine": False, "fusion": fusion} for fusion in FUSIONS),
]
variants = pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(str(x) for x in v.values()))


def make_io(context: int = K, discrete: bool = False) -> IOSpec:
    box = ActionSpec(kind="box", size=A, low=(-1.0, -2.0), high=(1.0, 4.0))
    action = ActionSpec(kind="discrete", size=4) if discrete else box
    return IOSpec(observation=ObservationSpec(size=S, shapes=((S,),)), action=action, context=context)


def make_model(seed: int = 0, discrete: bool = False, **changes: Any) -> DecisionMamba:
    torch.manual_seed(seed)
    model = DecisionMamba(DMConfig(**{**SMALL, **changes}), make_io(discrete=discrete)).double()
    for name, p in model.named_parameters():  # identity starts and zero biases would hide mistakes
        if name.endswith(("bias", "project.weight", "norm.weight")):
            torch.nn.init.normal_(p, mean=float(name.endswith("norm.weight")), std=0.3)
    model.obs_mean.copy_(torch.tensor([1.0, -1.0, 0.5]))
    model.obs_std.copy_(torch.tensor([2.0, 0.5, 1.0]))
    return model


def make_batch(n: int = 3, steps: int = K, seed: int = 1, discrete: bool = False) -> Batch:
    g = torch.Generator().manual_seed(seed)
    actions = torch.rand(n, steps, A, generator=g, dtype=torch.float64) * 2 - 1
    return Batch(
        observations=torch.randn(n, steps, S, generator=g, dtype=torch.float64),
        actions=torch.randint(4, (n, steps), generator=g) if discrete else actions,
        returns_to_go=torch.randn(n, steps, generator=g, dtype=torch.float64),
        timesteps=torch.arange(steps).expand(n, steps),
        valid=torch.ones(n, steps, dtype=torch.bool),
    )


def hide(batch: Batch, lengths: list[int], junk: float) -> Batch:
    """The first `lengths` steps of each window stay, the others hold `junk`."""
    valid = torch.arange(batch.shape[1])[None] < torch.tensor(lengths)[:, None]

    def fill(values: Tensor) -> Tensor:
        return torch.where(valid.view(*valid.shape, *(1,) * (values.ndim - 2)), values, torch.full_like(values, junk))

    return Batch(
        fill(batch.observations),
        fill(batch.actions),
        fill(batch.returns_to_go),
        torch.where(valid, batch.timesteps, 77),
        valid,
    )


def play(model: DecisionMamba, batch: Batch, state: Memory | None = None) -> tuple[Tensor, Memory]:
    """Every action of the windows by `step`, (N, K, A)."""
    state = state if state is not None else model.initial_state(batch.shape[0])
    actions = []
    for t in range(batch.shape[1]):
        before = batch.actions[:, t - 1] if t else torch.full_like(batch.actions[:, 0], 3)  # must not matter
        now = (batch.returns_to_go[:, t], batch.observations[:, t], before, batch.timesteps[:, t])
        action, state = model.step(state, *now)
        actions.append(action)
    return torch.stack(actions, dim=1), state
