"""Files that are swapped, larger than they should be, or another agent's: found before they do harm."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_agent
from hub.conftest import make_folder
from pydantic import ValidationError

from agentzoo.acting import loading
from agentzoo.agent import Agent
from agentzoo.data.episodes import Episodes
from agentzoo.errors import CheckpointError, ConfigError, DataError, StorageError
from agentzoo.store import tensors
from agentzoo.store.index import hub_location
from agentzoo.types import ActionSpec, IOSpec, ObservationSpec


def other_weights(folder: Path) -> bytes:
    """The file of weights of the same network with other numbers."""
    agent = Agent.from_pretrained(folder)
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.add_(1.0)
    agent.save_pretrained(folder.parent / "other")
    return (folder.parent / "other" / "model.safetensors").read_bytes()


def test_weights_that_are_swapped_after_any_look_at_them_do_not_load_under_the_old_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap comes after the last read but one: whatever is loaded must be what was hashed."""
    folder = make_agent().save_pretrained(tmp_path / "agent")
    evil, path = other_weights(folder), folder / "model.safetensors"
    good, read = path.read_bytes(), tensors.check_fits

    def swap(*arguments: Any) -> None:
        read(*arguments)
        path.write_bytes(evil)

    for module in (tensors, loading):
        path.write_bytes(good)
        with monkeypatch.context() as patch:
            patch.setattr(module, "check_fits", swap)
            with pytest.raises(CheckpointError, match="its sha256 differs"):
                Agent.from_pretrained(folder)


def test_six_gigabytes_that_do_not_fit_are_refused_before_they_are_hashed(tmp_path: Path) -> None:
    folder = make_agent().save_pretrained(tmp_path / "agent")
    path = folder / "model.safetensors"
    header = json.dumps({"x": {"dtype": "F32", "shape": [1_500_000_000], "data_offsets": [0, 6_000_000_000]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + 6_000_000_000)  # a sparse file
    began = time.perf_counter()
    with pytest.raises(CheckpointError, match=r"does not fit its config|of memory"):
        Agent.from_pretrained(folder)
    assert time.perf_counter() - began < 2.0  # to hash them takes longer
    path.write_bytes((8).to_bytes(8, "little") + b"{}      ")
    os.truncate(path, 6_000_000_000)
    with pytest.raises(CheckpointError, match=r"holds 6,000,000,000 bytes, its header describes 16|of memory"):
        Agent.from_pretrained(folder)


@pytest.mark.parametrize(("size", "context", "fits"), [(376, 8192, True), (65_536, 255, True), (65_536, 8192, False)])
def test_a_window_of_one_environment_has_a_limit(size: int, context: int, fits: bool) -> None:
    parts: dict[str, Any] = {
        "observation": ObservationSpec(size=size, shapes=((size,),)),
        "action": ActionSpec(kind="discrete", size=4, dtype="int64"),
    }
    if fits:
        assert IOSpec(**parts, context=context).context == context
    else:
        with pytest.raises(ValidationError, match=r"a window of 8192 steps holds 536,879,104 numbers .* lower"):
            IOSpec(**parts, context=context)


@pytest.mark.parametrize("value", [1.0 + 1e-6, 1.1])
def test_actions_outside_their_box_are_no_data(value: float) -> None:
    def episodes() -> Episodes:
        return Episodes(
            dataset="tests/x-v0",
            observation=ObservationSpec(size=1, shapes=((1,),)),
            action=ActionSpec(kind="box", size=2, low=(-1.0, -1.0), high=(1.0, 1.0)),
            observations=np.zeros((3, 1), np.float32),
            actions=np.array([[0, 0], [0, 1], [0, value]], np.float32),
            rewards=np.zeros(3),
            lengths=np.array([3]),
            terminated=np.array([True]),
        )

    if value < 1.1:  # rounding
        assert len(episodes()) == 3
    else:
        with pytest.raises(DataError, match=r"action \[0.*1.1.*\] at step 2 of episode 0 lies outside its space"):
            episodes()


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "large", "absent"])
def test_an_index_that_never_ends_is_not_read(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.touch()
        os.truncate(path, 3_000_000_000)
    monkeypatch.setenv("AGENTZOO_INDEX", "/dev/zero" if kind == "device" else str(path))
    with pytest.raises(ConfigError, match=r"agent index .* cannot be used"):
        hub_location("x")


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"default": "mirror/all"}, "its default is 'mirror/all', not a repo id with {agent_id} in it"),
        ({"default": 7}, "its default is 7, not a repo id"),
        ({"default": "a/{agent_id}", "agents": {"x": {}}}, "'x' is {}, not an object like"),
        ({"default": "a/{agent_id}", "agents": {"x": None}}, "'x' is None, not an object like"),
        ({"agents": {"x": "a/b"}}, "'x' is 'a/b', not an object like"),
        ({"agents": {"y": {"repo_id": 3}}}, "the repo_id of 'y' is 3, not a repo id"),
        (
            {"agents": {"x": {"repo_id": "a/b", "revison": "abc"}}},
            "'x' has 'revison', but an entry has only repo_id and revision",
        ),
        ({"agents": {"x": {"repo_id": "a/b", "revision": 5}}}, "the revision of 'x' is 5, not a branch, tag or commit"),
        ({"agents": {"x": {"repo_id": "a/b", "revision": "../c"}}}, "the revision of 'x' is '../c', not a branch"),
    ],
)
def test_a_malformed_index_raises_an_error_that_names_the_entry(
    index: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index.json").write_text(json.dumps(index))
    monkeypatch.setenv("AGENTZOO_INDEX", str(tmp_path / "index.json"))
    with pytest.raises(ConfigError, match=re.escape(said)):
        hub_location("x")


# -- folders of others ---------------------------------------------------------------------------------------------


def test_an_agent_is_not_saved_over_another_one(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    agent = make_agent()
    agent.config = agent.config.model_copy(update={"agent_id": "bc-other"})
    with pytest.raises(StorageError, match=r"holds another agent, dt-test, with .*README.md.*Save bc-other elsewhere"):
        agent.save_pretrained(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    make_agent().save_pretrained(folder)  # its own folder


def test_an_agent_without_a_recipe_is_not_saved_beside_the_recipe_of_another_training(tmp_path: Path) -> None:
    agent = make_agent()
    agent.save_pretrained(tmp_path / "trained")
    before = {path.name: path.read_bytes() for path in (tmp_path / "trained").iterdir()}
    bare = Agent(agent.model, agent.config)
    with pytest.raises(StorageError, match=r"holds train_config.json, the recipe of another training.*another folder"):
        bare.save_pretrained(tmp_path / "trained")
    assert {path.name: path.read_bytes() for path in (tmp_path / "trained").iterdir()} == before
    for _ in range(2):
        bare.save_pretrained(tmp_path / "bare")
    assert Agent.from_pretrained(tmp_path / "bare").recipe is None


def test_an_agent_is_not_saved_over_a_backbone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(StorageError, match="holds a backbone"):
        make_agent().save_pretrained(tmp_path)
