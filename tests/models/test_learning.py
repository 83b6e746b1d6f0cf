"""Networks learn what can be learned, to the loss known on paper."""

from __future__ import annotations

import pytest
import torch
from conftest import SMALL

from agentzoo.data.windows import WindowSampler
from agentzoo.models.dt import DTConfig
from agentzoo.registry import get_family
from agentzoo.types import IOSpec
from models.cases import coin_episodes


@pytest.mark.parametrize(("family", "best"), [("dt", 0.0), ("bc", 0.25)])
def test_loss_reaches_known_optimum(family: str, best: float) -> None:
    """With the return the action is certain (loss 0); without it, it is +-1 at even odds: in units of the bound 2 the
    best guess 0 costs 0.5 squared."""
    data = coin_episodes()
    config = DTConfig(embed_dim=32, n_layers=2, dropout=0.0) if family == "dt" else SMALL["bc"]
    torch.manual_seed(0)
    model = get_family(family).model(config, IOSpec(observation=data.observation, action=data.action, context=1))
    sampler = WindowSampler(data, 1, 1.0)
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 if family == "dt" else 3e-3)
    for _ in range(400):
        loss = model.loss(sampler.sample(64, generator))["action_mse"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        final = float(model.eval().loss(sampler.at(torch.arange(400)))["action_mse"])
    assert final == pytest.approx(best, abs=0.01)
