"""What strangers send cannot run code here: no pickle is opened, no link leads out of a folder."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from conftest import Payload, make_agent

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError
from agentzoo.hub.publish import check_folder, push
from agentzoo.hub.verify import verify
from agentzoo.hub.zoo import describe, summaries
from agentzoo.store.locate import FILES, find_agent
from hub.cases import invoke
from hub.conftest import REPO
from hub.server import Hub

# -- no pickle -----------------------------------------------------------------------------------------------------


class UnpickledError(Exception):
    """Somebody unpickled."""


_guarded = False


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's own report that an unpickler, whoever made it, looks up a class or function."""
    if _guarded and event == "pickle.find_class":
        raise UnpickledError(f"{event} {arguments}")


sys.addaudithook(_on_audit)  # cannot be removed, hence the switch


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise UnpickledError("a pickle was opened")


class _Refused(pickle.Unpickler):  # a class, as libraries derive theirs from it
    __init__ = load = _refuse


@pytest.fixture
def no_pickle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    global _guarded
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "load", _refuse)
        patch.setattr(pickle, "loads", _refuse)
        patch.setattr(pickle, "Unpickler", _Refused)
        patch.setattr(torch, "load", _refuse)
        _guarded = True
        try:
            yield
        finally:
            _guarded = False


def test_the_guard_notices_every_way_to_unpickle(no_pickle: None, tmp_path: Path) -> None:
    data = pickle.dumps(Path("x"))
    (tmp_path / "x.npy").write_bytes(b"")
    np.save(tmp_path / "x.npy", np.array([Path("x")], dtype=object), allow_pickle=True)
    torch.save(torch.zeros(1), tmp_path / "x.pt")
    import _pickle

    for attempt in (
        lambda: pickle.loads(data),
        lambda: _pickle.loads(data),
        lambda: np.load(tmp_path / "x.npy", allow_pickle=True),
        lambda: torch.load(tmp_path / "x.pt", weights_only=False),
        lambda: torch.serialization.load(tmp_path / "x.pt", weights_only=False),
    ):
        with pytest.raises(UnpickledError):
            attempt()


@pytest.mark.slow
def test_load_predict_train_finetune_and_push_unpickle_nothing(
    no_pickle: None, hub: Hub, folder: Path, tmp_path: Path, tiny_hopper: str
) -> None:
    push(folder, REPO)
    for source in (folder, REPO):
        agent = Agent.from_pretrained(source)
        agent.predict(np.zeros((2, 3), dtype=np.float32))
    verify(str(folder))
    small = ["--set", "train.steps=4", "--set", "train.checkpoint_every=2", "--set", "eval.every=0"]
    small += ["--set", "model.embed_dim=16", "--set", f"data.dataset={tiny_hopper}"]
    run = str(tmp_path / "run")
    invoke("train", "dt-hopper-medium", "--out", run, "--threads", "1", *small)
    invoke("train", "dt-hopper-medium", "--out", run, "--threads", "1", *small)  # resumes from its checkpoint
    invoke("finetune", run, "--dataset", tiny_hopper, "--steps", "2", "--out", run + "-tuned", "--set", "eval.every=0")
    assert Agent.from_pretrained(run + "-tuned").recipe is not None


@pytest.mark.parametrize("kind", ["pickle", "torch", "legacy torch"])
def test_weights_that_are_a_pickle_are_refused_unread(folder: Path, tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "ran"
    if kind == "pickle":
        (folder / "model.safetensors").write_bytes(pickle.dumps(Payload(mark)))
    else:
        zipped = kind == "torch"
        torch.save(Payload(mark), folder / "model.safetensors", _use_new_zipfile_serialization=zipped)
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "checkpoint.pt", "env.pkl"):
        shutil.copyfile(folder / "model.safetensors", folder / name)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "weights_sha256": None}))
    with pytest.raises(CheckpointError, match="safetensors"):
        Agent.from_pretrained(folder)
    assert not mark.exists()


# -- links ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FILES, "notes"])
@pytest.mark.parametrize("far", [False, True], ids=["beside", "far"])
def test_a_file_that_is_a_link_out_of_the_folder_is_refused(
    folder: Path, tmp_path: Path, name: str, far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = (tmp_path if far else folder.parent) / f"outside-{name}"
    if (folder / name).exists():
        (folder / name).rename(outside)
    else:
        outside.write_text("secret")
    (folder / name).symlink_to(outside if far else Path("..") / outside.name)
    monkeypatch.setenv("AGENTZOO_ZOO", str(folder.parent))
    for attempt in (
        lambda: Agent.from_pretrained(folder),
        lambda: Agent.from_pretrained("zoo/dt-test"),
        lambda: describe("dt-test"),
        lambda: check_folder(folder),
        lambda: verify("dt-test"),
    ):
        with pytest.raises(CheckpointError, match="a link that leads out of the agent's folder"):
            attempt()
    (problem,) = (one.problem for one in summaries() if one.agent_id == "dt-test")
    assert "a link that leads out of the agent's folder" in str(problem)


def test_links_that_lead_nowhere_or_in_circles_and_pipes_are_refused(folder: Path) -> None:
    (folder / "copy.json").symlink_to("config.json")
    Agent.from_pretrained(folder)
    (folder / "gone").symlink_to("nothing")
    with pytest.raises(CheckpointError, match="is not a regular file"):
        Agent.from_pretrained(folder)
    (folder / "gone").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(CheckpointError, match="is not a regular file"):
        Agent.from_pretrained(folder)
    (folder / "pipe").unlink()
    (folder / "loop").symlink_to("loop")
    with pytest.raises(CheckpointError):
        Agent.from_pretrained(folder)


def test_the_hubs_own_links_go_on_working_and_no_others(
    hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(folder, REPO)
    snapshot = find_agent(REPO)
    assert (snapshot / "config.json").is_symlink()
    with monkeypatch.context() as patch:
        patch.chdir(snapshot)
        assert Agent.from_pretrained(".").config.agent_id == "dt-test"  # named in another way, the same place
    assert Agent.from_pretrained(snapshot).config == Agent.from_pretrained(folder).config
    shutil.copyfile(folder / "config.json", tmp_path / "elsewhere.json")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(tmp_path / "elsewhere.json")
    for source in (snapshot, REPO):
        with pytest.raises(CheckpointError, match="a link that leads out of the agent's folder"):
            Agent.from_pretrained(source, local_files_only=True)


def test_writing_replaces_a_link_and_does_not_follow_it(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "README.md"):
        (tmp_path / name).write_text("precious")
        (folder / name).unlink()
        (folder / name).symlink_to(tmp_path / name)
    make_agent().save_pretrained(folder)
    invoke("hub", "card", str(folder))
    for name in ("config.json", "model.safetensors", "README.md"):
        assert (tmp_path / name).read_text() == "precious"
        assert not (folder / name).is_symlink()
