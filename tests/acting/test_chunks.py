"""Thousands of environments at once act in chunks, as each would alone."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
from conftest import make_agent
from models.acting_cases import small_config
from torch import Tensor

from agentzoo.acting import modes
from agentzoo.types import Batch


def test_a_large_batch_is_cut_and_acts_as_its_rows_do(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent()
    observations = np.random.default_rng(0).normal(size=(2_500, 3)).astype(np.float32)
    seen: list[int] = []
    act = agent.model.act

    def noted(batch: Batch) -> Any:
        seen.append(batch.shape[0])
        return act(batch)

    monkeypatch.setattr(agent.model, "act", noted)
    actions, _ = agent.predict(observations)
    assert seen == [1024, 1024, 452]
    monkeypatch.setattr(modes, "MAX_WINDOWS", 10_000)
    whole, _ = agent.predict(observations)
    assert seen[3:] == [2_500]
    np.testing.assert_allclose(actions, whole, atol=1e-5)


class Noisy(NamedTuple):
    """A distribution around the actions of a network."""

    middle: Tensor

    def mode(self) -> Tensor:
        return self.middle

    def sample(self, generator: torch.Generator) -> Tensor:
        return self.middle + 0.1 * torch.randn(self.middle.shape, generator=generator)


def test_distributions_over_a_large_batch_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent()
    observations = np.random.default_rng(0).normal(size=(2_500, 3)).astype(np.float32)
    wanted, _ = agent.predict(observations)
    seen: list[int] = []
    act = agent.model.act

    def noisy(batch: Batch) -> Any:
        seen.append(batch.shape[0])
        return Noisy(cast("Tensor", act(batch)))

    monkeypatch.setattr(agent.model, "act", noisy)
    likely, _ = agent.predict(observations, deterministic=True)
    assert seen == [1024, 1024, 452]
    np.testing.assert_array_equal(likely, wanted)
    agent.set_random_seed(0)
    drawn, _ = agent.predict(observations, deterministic=False)
    noise = (drawn - wanted)[np.abs(wanted) < 1.5]  # far from the bounds, which are 2
    assert len(noise) > 200
    assert noise.std() == pytest.approx(0.1, rel=0.2)
    assert len(np.unique(noise)) > 0.9 * len(noise)  # no chunk repeats the noise of another; float32 rounds a few alike


def test_a_large_batch_with_a_goal_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent(model=small_config("unimask"))
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    agent.condition(goal=-observations)
    wanted, _ = agent.predict(observations)
    seen: list[int] = []
    act = agent.model.act_knowing  # type: ignore[operator]

    def noted(batch: Batch, known: Any) -> Any:
        seen.append(batch.shape[0])
        return act(batch, known)

    monkeypatch.setattr(agent.model, "act_knowing", noted)
    monkeypatch.setattr(modes, "MAX_WINDOWS", 2)
    np.testing.assert_allclose(agent.predict(observations)[0], wanted, atol=1e-5)
    assert seen == [2, 2, 1]
