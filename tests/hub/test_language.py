"""Language models of a Hub: whose config says that they are no agents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import make_agent
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.hub.publish import pull, push
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.nn.language.cotraining import TEXT_VARIABLE, read_token_chunks
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.research.analysis.inspection import Options, inspect
from agentzoo.research.pretrain.new_networks import new_language_model
from hub.conftest import REPO
from hub.server import Hub, Repo

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"embed_dim": 16, "n_heads": 2}


def test_inspect_tells_a_language_model_from_an_agent(hub: Hub, folder: Path, tmp_path: Path) -> None:
    new_language_model(20, 16, 2, 2, 8, "relu").save_pretrained(tmp_path / "lm")
    hub.repos["tests/lm"] = Repo()
    hub.repos["tests/lm"].commit({path.name: path.read_bytes() for path in (tmp_path / "lm").iterdir()})
    push(folder, REPO)
    language, agent = inspect("tests/lm"), inspect(REPO, Options(episodes=1))
    assert (language.kind, agent.kind) == ("language model", "dt")
    assert language.markov is not None
    assert len(language.markov.heads) == 4


@pytest.mark.parametrize(
    "evil",
    [{"attn_implementation": "evil-org/attention"}, {"quantization_config": {"quant_method": "awq"}}, {"n_layer": 100}],
)
def test_a_hostile_config_of_a_hub_stops_pull_inspect_and_training(
    evil: dict[str, object], hub: Hub, tmp_path: Path
) -> None:
    """Nothing of another repo is asked for, and the weights of a config that is refused are not downloaded."""
    new_language_model(20, 16, 2, 2, 8, "relu").save_pretrained(tmp_path / "lm")
    config = json.loads((tmp_path / "lm" / "config.json").read_text())
    (tmp_path / "lm" / "config.json").write_text(json.dumps({**config, **evil}))
    hub.repos["tests/lm"] = Repo()
    hub.repos["tests/lm"].commit({path.name: path.read_bytes() for path in (tmp_path / "lm").iterdir()})
    agent = make_agent(model=GPT2DTConfig(**SMALL, n_layers=2, backbone="tests/lm"))
    with pytest.raises((ConfigError, CheckpointError), match="backbone"):
        load_backbone("tests/lm")
    fits = "n_layer" in evil  # only the header of the weights says otherwise
    assert hub.count("GET", "model.safetensors$") == (1 if fits else 0)
    for use in (
        lambda: inspect("tests/lm"),
        lambda: agent.model.begin_training(fresh=True),
        lambda: pull("tests/lm", tmp_path / "pulled"),
    ):
        with pytest.raises((ConfigError, CheckpointError), match="backbone"):
            use()
    assert not (tmp_path / "pulled").exists()
    assert [path for _, path, _ in hub.seen if "tests/lm" not in path and not path.startswith("/storage/")] == []


def test_an_earlier_revision_of_a_language_model(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By option, or because an index pins it."""
    hub.repos["tests/lm-two"] = repo = Repo()
    commits, hashes = [], []
    for layers in (1, 2):
        new_language_model(20, 16, layers, 2, 8, "relu").save_pretrained(tmp_path / str(layers))
        commits.append(repo.commit({path.name: path.read_bytes() for path in (tmp_path / str(layers)).iterdir()}))
        hashes.append(load_backbone(str(tmp_path / str(layers))).sha256())
    assert load_backbone("tests/lm-two").sha256() == hashes[1]
    assert load_backbone("tests/lm-two", commits[0]).sha256() == hashes[0]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tmp_path / "2", tmp_path / "tests" / "lm-two")  # a folder of this name has no revisions
    assert load_backbone("tests/lm-two", commits[0]).sha256() == hashes[0]
    seen = inspect("tests/lm-two", revision=commits[0]).markov
    assert seen is not None
    assert {head.layer for head in seen.heads} == {0}
    pinned = {"agents": {"lm-two": {"repo_id": "tests/lm-two", "revision": commits[0]}}}
    (tmp_path / "index.json").write_text(json.dumps(pinned))
    monkeypatch.setenv("AGENTZOO_INDEX", str(tmp_path / "index.json"))
    assert load_backbone("lm-two").sha256() == hashes[0]
    assert load_backbone("lm-two", commits[1]).sha256() == hashes[1]
    named = make_agent(model=GPT2DTConfig(**SMALL, n_layers=1, backbone="tests/lm-two", backbone_revision=commits[0]))
    assert isinstance(named.config.model, GPT2DTConfig)
    assert named.config.model.pinned().backbone_sha256 == hashes[0]
    named.model.begin_training(fresh=True)
    with pytest.raises(ConfigError, match="is not a branch, tag or commit"):
        load_backbone("tests/lm-two", "../main")


def test_a_language_model_is_pushed_and_trained_from(
    hub: Hub, lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, by its repo or by the id that an index maps to it; its text needs its own tokenizer and record."""
    folder = lm / "zoo" / "lm-tiny"
    pushed = push(folder, "tests/lm-tiny")
    assert pushed.left_out == ()
    assert {"config.json", "model.safetensors", "tokenizer.json", "corpus.json", "README.md"} <= set(pushed.files)
    monkeypatch.setenv(TEXT_VARIABLE, str(lm / "text"))
    here = load_backbone(str(folder))
    (tmp_path / "index.json").write_text(json.dumps({"agents": {"lm-tiny": {"repo_id": "tests/lm-tiny"}}}))
    with pytest.raises(CheckpointError, match=r"--set model\.backbone=OWNER/lm-tiny a repo"):
        load_backbone("lm-tiny")
    monkeypatch.setenv("AGENTZOO_INDEX", str(tmp_path / "index.json"))
    for name in ("tests/lm-tiny", "lm-tiny", "zoo/lm-tiny"):
        there = load_backbone(name)
        assert there.sha256() == here.sha256()
        assert torch.equal(read_token_chunks(there, 16), read_token_chunks(here, 16))
    (folder / "README.md").rename(tmp_path / "README.md")
    try:
        with pytest.raises(CheckpointError, match=r"README.md"):
            push(folder, "tests/lm-tiny")
    finally:
        (tmp_path / "README.md").rename(folder / "README.md")


@pytest.mark.parametrize("words", ["show {}", "hub card {}", "hub remeasure {} --target max", "research pairs {}"])
def test_a_backbone_where_an_agent_is_needed_is_named(words: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "hub_cards" / "lm-mini", tmp_path / "lm"))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = CliRunner().invoke(app, words.format(folder).split())
    assert isinstance(done.exception, CheckpointError)
    assert f"{folder} holds a network of transformers, such as a backbone" in str(done.exception)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
