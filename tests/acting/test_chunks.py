"""Thousands of environments at once act in chunks, as each would alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import make_agent

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
    monkeypatch.setattr(modes, "MOST_WINDOWS", 10_000)
    whole, _ = agent.predict(observations)
    assert seen[3:] == [2_500]
    np.testing.assert_allclose(actions, whole, atol=1e-5)
