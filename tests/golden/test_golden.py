"""Every staged agent acts as recorded, to 1e-5.

1e-5 is above rounding: the sums of float32 products that make an action of size 1 come out up to 1.3e-6 apart with SSE
4.2, AVX2 and AVX-512, and with one thread or two. The changes in
`test_recorded_actions_change_with_starts_rewards_and_weights` move actions by 1e-4 or more. Weights are stored as
float16 and act as float32 on every processor; bfloat16 is for training alone.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from agentzoo.agent import Agent
from golden.make import HERE, STEPS, act, file_of, loaded, staged

TOLERANCE = 1e-5
RECORDED = sorted(path.stem for path in HERE.glob("*.json"))


def recorded(agent_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file_of(agent_id).read_text())
    return found


def distance(agent: Agent, history: dict[str, Any], record: dict[str, Any]) -> float:
    """The largest difference from the record, in actions and in the network's outputs."""
    actions, outputs = act(agent, history)
    both = ((actions, record["actions"]), (outputs, record["outputs"]))
    return max(float(np.abs(np.stack(ours).astype(np.float64) - np.array(theirs)).max()) for ours, theirs in both)


def test_every_staged_agent_has_a_record_and_every_record_an_agent() -> None:
    assert staged() == RECORDED, "record a new agent with tests/golden/make.py AGENT; delete the file of a removed one"


@pytest.mark.parametrize("agent_id", sorted({*staged(), *RECORDED}))
def test_checkpoint_acts_as_recorded(agent_id: str) -> None:
    record = recorded(agent_id)
    assert len(record["actions"]) == len(record["outputs"]) == STEPS
    assert sum(record["starts"]) == 2
    agent = loaded(agent_id)
    assert {p.dtype for p in agent.model.parameters()} == {torch.float32}
    assert distance(agent, record, record) < TOLERANCE


@pytest.mark.parametrize("agent_id", ["dt-hopper-medium", "dm-pointmaze-medium", "unimask-pointmaze-medium"])
def test_recorded_actions_change_with_starts_rewards_and_weights(agent_id: str) -> None:
    record = recorded(agent_id)
    agent = loaded(agent_id)
    first = [True, *[False] * (STEPS - 1)]
    assert distance(agent, {**record, "starts": first}, record) > 10 * TOLERANCE
    assert distance(agent, {**record, "starts": [True] * STEPS}, record) > 10 * TOLERANCE
    if not agent_id.startswith("unimask"):  # reads the return-to-go of its window's first step only
        assert distance(agent, {**record, "rewards": [0.0] * STEPS}, record) > 10 * TOLERANCE
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.mul_(1.001)
    assert distance(agent, record, record) > 10 * TOLERANCE
