"""Loading an agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_agent
from models.acting_cases import small_config

from agentzoo.acting.loading import build_network
from agentzoo.agent import Agent
from agentzoo.evaluation.results import evaluate
from agentzoo.registry import families
from agentzoo.store.files import WEIGHTS, sha256

LOADS = """
import sys
from agentzoo import Agent
for folder in sys.argv[1:]:
    Agent.from_pretrained(folder)
    print(folder, [name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""


def test_no_family_imports_a_compiler_when_it_is_loaded(tmp_path: Path) -> None:
    """It takes two seconds, more than all else after `import torch`: see `nn.sizes_only`."""
    folders = []
    for family in families():
        agent = make_agent(model=small_config(family))
        folders.append(str(agent.save_pretrained(tmp_path / family)))
    done = subprocess.run([sys.executable, "-c", LOADS, *folders], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{folder} []" for folder in folders], done.stderr


@pytest.mark.parametrize("agent_id", ["dm-hopper-medium", "bc-pointmaze-umaze", "unimask-doorkey"])
def test_an_agent_saved_unchanged_is_the_same_file(agent_id: str, tmp_path: Path) -> None:
    """Staged weights are float16, or float32 in older folders; a card's numbers are of the file with that hash."""
    agent = Agent.from_pretrained(agent_id, device="cpu")
    staged = agent.weights_sha256
    agent.save_pretrained(tmp_path / "same")
    assert agent.weights_sha256 == sha256(tmp_path / "same" / WEIGHTS) == staged


def test_changed_weights_keep_all_digits_however_often_they_are_saved(tmp_path: Path) -> None:
    agent = Agent.from_pretrained("dt-cartpole-mixed", device="cpu")
    with torch.no_grad():
        next(agent.model.parameters()).add_(1e-5)
    for _ in range(2):
        agent.save_pretrained(tmp_path)
        again = Agent.from_pretrained(tmp_path, device="cpu").model.state_dict()
        assert all(torch.equal(again[name], value) for name, value in agent.model.state_dict().items())


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_weights_do_not_depend_on_the_default_type_of_the_process(default: torch.dtype) -> None:
    expected = Agent.from_pretrained("bc-pointmaze-umaze", device="cpu").model.state_dict()
    torch.set_default_dtype(default)
    try:
        found = Agent.from_pretrained("bc-pointmaze-umaze", device="cpu").model.state_dict()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(found[name].dtype == value.dtype and torch.equal(found[name], value) for name, value in expected.items())


def test_a_process_that_computes_in_float64_acts() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        agent = Agent.from_pretrained("dt-hopper-medium", device="cpu")
        action, _ = agent.predict(np.zeros(11), deterministic=True)
    finally:
        torch.set_default_dtype(torch.float32)
    expected, _ = Agent.from_pretrained("dt-hopper-medium", device="cpu").predict(np.zeros(11), deterministic=True)
    np.testing.assert_allclose(action, expected, atol=1e-6)


def test_saving_an_agent_leaves_another_one_of_the_same_network(tmp_path: Path) -> None:
    agent = Agent.from_pretrained("dt-cartpole-mixed", device="cpu")
    staged = agent.weights_sha256
    other = Agent(agent.model, agent.config.model_copy(update={"weights_sha256": None}))
    other.save_pretrained(tmp_path / "other")
    agent.save_pretrained(tmp_path / "agent")
    assert (agent.weights_sha256, other.weights_sha256) == (staged, sha256(tmp_path / "other" / WEIGHTS))
    assert other.weights_sha256 != staged


def test_an_agent_of_a_new_network_does_not_claim_the_weights_that_its_config_names() -> None:
    agent = Agent.from_pretrained("dt-cartpole-mixed", device="cpu")
    assert agent.weights_sha256 == agent.config.weights_sha256 is not None
    fresh = Agent(build_network(agent.config), agent.config, agent.recipe)
    assert fresh.weights_sha256 is None
    measured = evaluate(fresh, episodes=1)
    assert (measured.weights_sha256, measured.command) == (None, None)
