"""Files of agents: whole or not at all; absurd configs refused with the field; names and places looked up."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_agent
from hub.conftest import edit
from hypothesis import given, settings
from hypothesis import strategies as st

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.errors import AgentzooError, CheckpointError, ConfigError, StorageError, UnknownNameError
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.store import files
from agentzoo.store.files import HOST, require_writable, sha256, staging, swap_in, write_atomic
from agentzoo.store.index import hub_location
from agentzoo.store.locate import find_agent, staged_agents, written_whole


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StorageError, match=r"was not written: .*No space left.*unchanged"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    with pytest.raises(StorageError, match=r"other was not written: .*No space left on device\.$"):
        write_atomic(tmp_path / "other", "new")
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_a_file_has_the_mode_of_the_old_one_or_what_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "new", "")
        write_atomic(tmp_path / "named", "", mode=0o644)
    finally:
        os.umask(before)
    (tmp_path / "private").touch(mode=0o600)
    write_atomic(tmp_path / "private", "kept")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"new": 0o640, "named": 0o644, "private": 0o600}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_device_or_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(StorageError, match="is a device or a pipe, which a file would replace"):
            require_writable(path)
    require_writable(tmp_path / "new" / "file")


def test_files_that_come_while_a_folder_is_written_are_not_lost(folder: Path) -> None:
    def write() -> None:
        with written_whole(folder) as new:
            shutil.copytree(folder, new, dirs_exist_ok=True)
            (new / "README.md").write_text("new")
            (folder / "notes.txt").write_text("mine")

    with pytest.raises(StorageError, match=r"it also holds notes\.txt"):
        write()
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / "README.md").exists() or (folder / "README.md").read_text() != "new"
    assert not list(folder.parent.glob(".staging-*"))


def test_a_home_folder_of_nobody_is_a_name_like_any_other() -> None:
    for name in ("~nobody-of-that-name/model", "~nobody-of-that-name/x.gguf"):
        with pytest.raises(AgentzooError):
            load_backbone(name)


def test_a_folder_that_cannot_be_flushed_is_no_failure_once_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def files_only(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        flush(handle)

    monkeypatch.setattr(files.os, "fsync", files_only)
    write_atomic(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


def test_what_a_killed_run_left_half_written_is_deleted(tmp_path: Path) -> None:
    for name in (".model.safetensors.x1", ".train_config.json.x2", ".config.json.x3", "config.json", ".keep"):
        (tmp_path / name).touch()
    files.remove_unfinished(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", ".keep"}


def dead_process() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_what_killed_processes_left_is_tidied_up_and_an_agent_gets_its_name_back(tmp_path: Path) -> None:
    dead = dead_process()
    left = {
        f".staging-{HOST}-{dead}-abc": None,
        f".staging-{HOST}-{os.getppid()}-abc": "staging of a process that runs",
        f".staging-another-{dead}-abc": "of another machine, where this id may run",
        f".replaced-dt-a-{HOST}-{dead}": "the only copy of dt-a",
        f".replaced-dt-b-{HOST}-{dead}": None,
        f".replaced-dt-c-{HOST}-{os.getppid()}": "about to be replaced",
        f".replaced-dt-d-another-{dead}": "about to be replaced elsewhere",
        "dt-b": "the new dt-b",
    }
    for name in left:
        (tmp_path / name).mkdir()
        (tmp_path / name / "says").write_text(str(left[name]))
    with staging(tmp_path, ".staging-") as folder:
        assert folder.name.startswith(f".staging-{HOST}-{os.getpid()}-")
    found = {path.name: (path / "says").read_text() for path in tmp_path.iterdir()}
    kept = {name: said for name, said in left.items() if said is not None}
    kept["dt-a"] = kept.pop(f".replaced-dt-a-{HOST}-{dead}")
    assert found == kept


def test_a_folder_lost_in_a_killed_replacement_is_replaced_all_the_same(tmp_path: Path) -> None:
    lost, new = tmp_path / f".replaced-dt-a-{HOST}-{dead_process()}", tmp_path / "new"
    for folder in (lost, new):
        folder.mkdir()
        (folder / folder.name).touch()
    swap_in(new, tmp_path / "dt-a")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["dt-a", "dt-a/new"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_really_full_device_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/full")
    with pytest.raises(StorageError):
        write_atomic(tmp_path / "link" / "file", "x")


def test_the_config_names_the_weights(folder: Path) -> None:
    config = AgentConfig.from_json((folder / "config.json").read_text(), "test")
    assert config.weights_sha256 == sha256(folder / "model.safetensors")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "train_config.json"]


def test_missing_files(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model.safetensors is missing"):
        Agent.from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"holds an unfinished training. Continue it with `agentzoo train"):
        Agent.from_pretrained(folder)
    (folder / "train_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config.json is missing: an agent's folder holds"):
        Agent.from_pretrained(folder)


CONFIG = json.loads(AgentConfig.of(make_agent().recipe, make_agent().config.io).to_json())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("rtg_scale", 0.0, "rtg_scale: Input should be greater than 0"),
        ("rtg_scale", "10", "rtg_scale"),
        ("target_return", 1e300, "target_return"),
        ("agent_id", "../../etc", "agent_id"),
        ("surprise", 1, "surprise: Extra inputs"),
        ("format", 2, "format"),
        ("model.embed_dim", 10**12, "embed_dim"),
        ("model.embed_dim", -1, "embed_dim"),
        ("model.n_heads", 3, "n_heads 3 must divide embed_dim 16"),
        ("model.n_layers", 10**6, "n_layers"),
        ("model.max_ep_len", 10**9, "max_ep_len"),
        ("model.family", "nope", "no family 'nope'"),
        ("model.family", 7, "names its `family`, like 'dt'; its family is 7"),
        ("io.context", 10**9, "context"),
        ("io.action.size", 10**9, "size"),
        ("io.action.start", 10**30, "start"),
        ("io.action.low", [0.0], "low and high need 2 numbers each"),
        ("io.action.low", [5.0, 5.0], "each low must be below its high"),
        ("io.observation.shapes", [[10**9]], "out of range"),
        ("io.observation.size", 4, "shapes hold 3 numbers, size says 4"),
        ("weights_sha256", "zz", "weights_sha256"),
    ],
)
def test_absurd_configs_are_refused_with_the_field(path: str, value: Any, words: str) -> None:
    tree = json.loads(json.dumps(CONFIG))
    *parents, name = path.split(".")
    node = tree
    for parent in parents:
        node = node[parent]
    node[name] = value
    with pytest.raises(AgentzooError, match=words):
        AgentConfig.from_json(json.dumps(tree), "config.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": NaN}', "\x00", "[" * 100_000])
def test_text_that_is_no_config(text: str) -> None:
    with pytest.raises(ConfigError, match=r"config.json cannot be used"):
        AgentConfig.from_json(text, "config.json")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_config_is_a_config_or_a_typed_error(data: st.DataObject) -> None:
    tree = json.loads(json.dumps(CONFIG))
    node: Any = tree
    while True:
        key = data.draw(st.sampled_from(sorted(node)))
        if isinstance(node[key], dict) and node[key] and data.draw(st.booleans()):
            node = node[key]
            continue
        break
    value = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    node[key] = data.draw(st.recursive(value, lambda inner: st.lists(inner, max_size=3), max_leaves=4))
    with contextlib.suppress(ConfigError, UnknownNameError):
        AgentConfig.from_json(json.dumps(tree), "config.json")


def test_an_env_id_that_names_a_module_is_refused_unless_trusted(folder: Path) -> None:
    edit(folder, "config.json", env="os:Evil-v0")
    with pytest.raises(ConfigError, match="runs its code"):
        Agent.from_pretrained(folder)
    assert Agent.from_pretrained(folder, trust_env_module=True).config.env == "os:Evil-v0"


def test_local_zoo_by_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = folder.parent
    folder.rename(zoo / "dt-mine")
    monkeypatch.setenv("AGENTZOO_ZOO", str(zoo))
    assert list(staged_agents()) == ["dt-mine"]
    for name in ("zoo/dt-mine", "dt-mine", str(zoo / "dt-mine")):
        assert find_agent(name) == zoo / "dt-mine"
    with pytest.raises(UnknownNameError, match=r"no agent 'zoo/dt-mime'. Did you mean 'dt-mine'"):
        find_agent("zoo/dt-mime")
    with pytest.raises(UnknownNameError, match=r"weights are not in .* `agentzoo train bc-walker2d-medium` trains"):
        find_agent("bc-walker2d-medium")
    with pytest.raises(UnknownNameError, match=r"One is staged at .*dt-mine, but a revision .* pass OWNER/NAME"):
        find_agent("zoo/dt-mine", revision="v1")
    shutil.copytree(zoo / "dt-mine", zoo / ".replaced-dt-mine-here-1")  # of a process that was killed
    assert list(staged_agents()) == ["dt-mine"]


@pytest.mark.parametrize("name", ["../secret", "zoo/../../etc", "a/b/c", "/nowhere/at/all", "", "a\nb", "zoo/.."])
def test_names_that_are_paths_are_refused(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError):
        find_agent(name)


def test_the_index_maps_ids_to_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "index.json"
    index.write_text(
        json.dumps({"agents": {"x": {"repo_id": "org/x", "revision": "abc"}}, "default": "mirror/az-{agent_id}"})
    )
    monkeypatch.setenv("AGENTZOO_INDEX", str(index))
    assert hub_location("x") == ("org/x", "abc")
    assert hub_location("y") == ("mirror/az-y", None)
    for bad in ("[]", "{", '{"agents": {"x": {"repo_id": "../x"}}}', '{"agents": {"x": {"repo_id": 3}}}'):
        index.write_text(bad)
        with pytest.raises(ConfigError, match="agent index"):
            hub_location("x")


def test_an_agent_that_cannot_be_fetched_is_explained(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"agent someone/nothing could not be fetched from the Hub"):
        Agent.from_pretrained("someone/nothing", local_files_only=True, cache_dir=tmp_path)


def test_loading_leaves_the_random_state_alone(folder: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    Agent.from_pretrained(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_family_that_cannot_exist_does_not_import_anything() -> None:
    tree = json.loads(json.dumps(CONFIG))
    tree["model"] = {"family": "os.path"}
    with pytest.raises(UnknownNameError, match=r"no family 'os.path'"):
        AgentConfig.from_json(json.dumps(tree), "config.json")


def test_a_folder_behind_a_link_is_replaced_where_it_is(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
    (tmp_path / "link").symlink_to(tmp_path / "old", target_is_directory=True)
    swap_in(tmp_path / "new", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old" / "which").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "old"]
