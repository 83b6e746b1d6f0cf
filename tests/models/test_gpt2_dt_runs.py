"""GPT2-DT and CLIP-DT: runs that go on, finished agents and fine-tunes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_agent, random_batch

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.nn.base import parameter_count
from agentzoo.nn.language.cotraining import TEXT_VARIABLE
from agentzoo.nn.language.lora import LoRALinear
from agentzoo.recipe import Recipe
from agentzoo.store.tensors import read_tensors
from agentzoo.training.finetune import finetune_recipe, start_from
from agentzoo.training.hooks import Hooks
from agentzoo.training.log import read_log
from agentzoo.training.loop import build_model, train
from models.cases import coin_episodes
from models.language_cases import chibit, config, recipe


@pytest.mark.parametrize("positions", ["own", "fresh"])
def test_a_run_with_language_stopped_and_resumed_equals_the_uninterrupted_one(
    positions: Any, zoo: Path, tmp_path: Path
) -> None:
    made = recipe(chibit(positions=positions))
    assert_resumes_exactly(made, tmp_path)


def test_a_low_rank_run_stopped_and_resumed_equals_the_uninterrupted_one(zoo: Path, tmp_path: Path) -> None:
    assert_resumes_exactly(recipe(config(adaptation="lora")), tmp_path)


def assert_resumes_exactly(made: Recipe, folder: Path) -> None:
    def stop(step: int) -> None:
        if step == 6:
            raise KeyboardInterrupt

    train(made, folder / "whole", coin_episodes(), device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(made, folder / "cut", coin_episodes(), hooks=Hooks(on_step=stop), device="cpu")
    train(made, folder / "cut", coin_episodes(), device="cpu")
    whole, _ = read_tensors(folder / "whole" / "model.safetensors")
    again, _ = read_tensors(folder / "cut" / "model.safetensors")
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


# -- finished agents -------------------------------------------------------------------------------------------------

ALONE = """
import sys, socket, json
class Refused(Exception): pass
class NoLibraries:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("transformers", "tokenizers", "peft"):
            raise Refused(name)
sys.meta_path.insert(0, NoLibraries())
def no_network(*a, **k): raise Refused("network")
socket.socket.connect = socket.getaddrinfo = no_network
for library in ("transformers", "tokenizers"):
    try: __import__(library)
    except Refused: continue
    raise SystemExit(library + " could be imported")
import numpy as np
from agentzoo import Agent
agent = Agent.from_pretrained(sys.argv[1])
actions, state = [], None
for step in range(5):
    action, state = agent.predict(np.full(3, step / 10, np.float32), state, deterministic=True, reward=1.0)
    actions.append(action.tolist())
print(json.dumps(actions))
"""


@pytest.mark.parametrize("fields", [{}, {"adaptation": "lora"}, None])
def test_a_finished_agent_needs_neither_transformers_nor_network_nor_backbone(
    fields: dict[str, Any] | None, zoo: Path, tmp_path: Path
) -> None:
    model = chibit() if fields is None else config(**fields)
    agent = make_agent(model=model)
    agent.model.begin_training(fresh=True)
    for layer in agent.model.modules():
        if isinstance(layer, LoRALinear):
            torch.nn.init.normal_(layer.lora_b, std=0.1)
    folder = agent.save_pretrained(tmp_path / "agent")
    found, _ = read_tensors(folder / "model.safetensors")
    assert not any("language" in name or "lora" in name for name in found)
    environment = {"PATH": "/usr/bin", "AGENTZOO_ZOO": str(tmp_path / "nothing"), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(folder)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    actions, state = [], None
    for step in range(5):
        obs = np.full(3, step / 10, np.float32)
        action, state = agent.predict(obs, state, deterministic=True, reward=1.0)
        actions.append(action)
    np.testing.assert_allclose(json.loads(done.stdout), actions, atol=1e-5)


def test_a_fine_tune_needs_no_backbone(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(chibit())
    trained = train(made, tmp_path / "run", coin_episodes(), device="cpu")
    agent = Agent(trained, AgentConfig.of(made, trained.io), made)
    agent = Agent.from_pretrained(agent.save_pretrained(tmp_path / "agent"))
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "nothing"))
    monkeypatch.delenv(TEXT_VARIABLE)
    again = finetune_recipe(agent, "coins", None, 4, "keep")
    start = start_from(agent, again, coin_episodes())
    assert torch.equal(start.state_dict()["embed_ln.weight"], trained.state_dict()["embed_ln.weight"])
    train(again, tmp_path / "tuned", coin_episodes(), start=start, device="cpu")
    assert "language" not in read_log(tmp_path / "tuned")[0]


@pytest.mark.parametrize("before", ["full", "lora"])
@pytest.mark.parametrize("adaptation", ["full", "frozen", "part", "ln_only", "lora"])
def test_a_fine_tune_starts_as_the_agent_it_goes_on_from(adaptation: Any, before: Any) -> None:
    made = recipe(config(backbone=None, adaptation=before))
    model = build_model(made, coin_episodes()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    base = Agent(model, AgentConfig.of(made, model.io), made)
    again = finetune_recipe(base, "coins", None, 4, "keep").override([f"model.adaptation={adaptation}"])
    start = start_from(base, again, coin_episodes()).eval()
    there, taken = model.state_dict(), start.state_dict()
    assert there.keys() == taken.keys()
    assert all(torch.equal(there[name], taken[name]) for name in there)
    batch = random_batch(model.io, [2, 1])
    torch.testing.assert_close(start(batch), model(batch))


def test_low_rank_updates_count_as_they_are_saved() -> None:
    plain, low_rank = (
        parameter_count(build_model(recipe(config(backbone=None, adaptation=adaptation)), coin_episodes()))
        for adaptation in ("full", "lora")
    )
    assert plain == low_rank
