"""Fetching with the real client: what comes is what was pushed, whole or not at all, and only known files."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path

import pytest
from conftest import make_agent
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.config import AgentConfig
from agentzoo.errors import AgentzooError, CheckpointError, ConfigError, HubError, StorageError
from agentzoo.evaluation.results import Results
from agentzoo.hub.card import card_text
from agentzoo.hub.listing import remote_agents
from agentzoo.hub.publish import pull, push
from agentzoo.hub.records import read_records
from agentzoo.hub.verify import check_files
from agentzoo.store.locate import find_agent
from hub.conftest import REPO, cached_files
from hub.server import Hub


def _last_words(repo: str, target: Path) -> str:
    """What the command prints after pulling into `target`, run from the folder that will hold it."""
    with chdir(target.parent):
        done = CliRunner().invoke(app, ["hub", "pull", repo, target.name])
    assert (done.exit_code, target.is_dir()) == (0, True)
    return " ".join(done.stdout.split())


def test_pull_writes_a_folder_that_equals_what_was_pushed(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push(folder, REPO, tag="v1")
    target = pull(REPO, tmp_path / "pulled", revision="v1")
    pushed = {path.name: path.read_bytes() for path in folder.iterdir()}
    pushed["README.md"] = card_text(folder, REPO).encode()  # a pushed card names its repo
    assert {path.name: path.read_bytes() for path in target.iterdir()} == pushed
    assert not any(path.is_symlink() for path in target.iterdir())
    with pytest.raises(StorageError, match="already exists"):
        pull(REPO, target)
    assert pull(REPO, target, force=True) == target
    assert sorted(path.name for path in tmp_path.iterdir() if "pulling" in path.name) == []


def test_the_folder_one_is_in_is_replaced_by_its_name(
    hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(folder, REPO)
    target = pull(REPO, tmp_path / "agents" / "dt-test")
    (target / "README.md").write_text("spoiled")
    monkeypatch.chdir(target)
    assert pull(REPO, Path(), force=True) == target
    assert (target / "README.md").read_text() == card_text(folder, REPO)


def test_force_replaces_agents_only(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push(folder, REPO)
    zoo = tmp_path / "agents"
    target = pull(REPO, zoo / "dt-test")
    with pytest.raises(StorageError, match="is not an agent's folder"):
        pull(REPO, zoo, force=True)
    (target / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"also holds notes\.txt"):
        pull(REPO, target, force=True)
    assert (target / "notes.txt").read_text() == "mine"


def test_what_the_hub_alone_holds_is_enough_to_verify(hub: Hub, folder: Path) -> None:
    """A cache holds no videos and plots; what a card says must not hang on them."""
    results = Results.from_json((folder / "results.json").read_text(), "results.json")
    results = results.model_copy(update={"targets": (results.headline,) * 3, "plotted": True, "filmed": True})
    (folder / "results.json").write_text(results.to_json())
    (folder / "README.md").write_text(card_text(folder))
    for name in ("targets.png", "replay.mp4"):
        (folder / name).write_bytes(b"a picture")
    push(folder, REPO)
    cached = find_agent(REPO)
    assert not (cached / "replay.mp4").exists()
    assert "replay.mp4" in (cached / "README.md").read_text()
    assert all(check.holds is not False for check in check_files(cached)[2])
    # but it is not all there is, so it must not replace it
    with pytest.raises(CheckpointError, match=r"lacks training_log\.csv, replay\.mp4, targets\.png, which its card"):
        push(cached, REPO)
    assert {"replay.mp4", "targets.png"} <= set(hub.repos[REPO].head)
    tree = {name: data for name, data in hub.repos[REPO].head.items() if name != "replay.mp4"}
    hub.repos[REPO].commit(tree)
    with pytest.raises(CheckpointError, match=r"lacks replay\.mp4"):
        pull(REPO, folder.parent / "pulled")


def test_a_backbone_comes_back_as_it_went(hub: Hub, tmp_path: Path) -> None:
    staged = Path(__file__).resolve().parents[2] / "hub_cards" / "clip-mini"
    push(staged, "me/clip-mini")
    target = pull("me/clip-mini", tmp_path / "pulled")
    assert {p.name: p.read_bytes() for p in target.iterdir()} == {p.name: p.read_bytes() for p in staged.iterdir()}
    assert pull("me/clip-mini", target, force=True) == target
    said = _last_words("me/clip-mini", tmp_path / "again")
    assert said == "again: `agentzoo research inspect again` shows the heads of this backbone."


def test_agents_of_an_environment_of_ones_own_module_travel(hub: Hub, tmp_path: Path) -> None:
    made = make_agent()
    assert made.recipe is not None
    recipe = made.recipe.replace(eval=made.recipe.eval.model_copy(update={"env": "not_installed:Mine-v0"}))
    agent = Agent(made.model, AgentConfig.of(recipe, made.config.io), recipe)
    agent.push_to_hub(REPO)
    assert pull(REPO, tmp_path / "pulled").is_dir()
    said = _last_words(REPO, tmp_path / "mine")
    assert said == "mine: `agentzoo hub verify mine --trust-env-module` checks its files and score."
    with pytest.raises(ConfigError, match="trust"):
        Agent.from_pretrained(REPO)


def test_pull_of_a_broken_agent_writes_nothing(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push(folder, REPO)
    tree = dict(hub.repos[REPO].head)
    tree["config.json"] = b"{}"
    hub.repos[REPO].commit(tree)
    with pytest.raises(AgentzooError, match=r"config.json cannot be used"):
        pull(REPO, tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()


def test_remote_list_shows_this_librarys_agents(hub: Hub, folder: Path) -> None:
    push(folder, REPO)
    hub.repos["other/bert"] = type(hub.repos[REPO])()
    hub.repos["other/bert"].commit({"README.md": b"---\nlibrary_name: transformers\ntags: [nlp]\n---\n"})
    found = remote_agents()
    assert [one.repo_id for one in found] == [REPO]
    assert found[0].commit == hub.repos[REPO].branches["main"]
    assert "mean_reward, 3 episodes, 95 % interval" in (found[0].metric or "")
    assert found[0].mean_return == round(read_records(folder)[2].headline.mean_return, 2)
    assert found[0].score is None  # the environment has no references, and a return is no score
    assert remote_agents(author="nobody") == []


@pytest.mark.parametrize(
    "said",
    [
        "ignore_metadata_errors: true",
        "eval_results: foo",
        "eval_results: {a: 1}",
        "model-index: [{name: x, results: [{task: {type: t}, dataset: {type: d, name: d}, "
        f"metrics: [{{type: m, value: {'9' * 400}}}]}}]}}]",
        "model-index: [{name: x, results: [{task: {type: t}, dataset: {type: d, name: d}, "
        "metrics: [{type: m, value: true}]}]}]",
    ],
)
def test_a_strangers_card_has_no_score_and_takes_no_other_agent_away(hub: Hub, folder: Path, said: str) -> None:
    push(folder, REPO)
    hub.repos["other/odd"] = type(hub.repos[REPO])()
    hub.repos["other/odd"].commit({"README.md": f"---\nlibrary_name: agentzoo\n{said}\n---\n".encode()})
    odd, ours = remote_agents()
    assert (odd.repo_id, odd.score, odd.mean_return) == ("other/odd", None, None)
    assert (ours.repo_id, ours.mean_return is not None) == (REPO, True)


def test_the_zoos_own_prefix_is_no_account_of_the_hub(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push(folder, "zoo/dt-test")
    with pytest.raises(ConfigError, match="'zoo/dt-test' is not a Hub repo, and the index has no repo for it"):
        pull("zoo/dt-test", tmp_path / "pulled")


def test_a_revision_asks_the_hub_though_a_folder_has_the_name(
    hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(folder, REPO, tag="v1")
    shutil.copytree(folder, tmp_path / REPO)
    monkeypatch.chdir(tmp_path)
    assert find_agent(REPO) == Path(REPO)
    assert "snapshots" in find_agent(REPO, revision="v1").parts
    with pytest.raises(HubError, match=r"^a revision or forced download needs a Hub repo; as .*commit 'v9'"):
        find_agent(REPO, revision="v9")
    with pytest.raises(ConfigError, match="is a folder; only a Hub repo has revisions"):
        find_agent(folder, revision="v1")


def test_only_known_files_come_whatever_the_server_lists(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push(folder, REPO)
    evil = {"type": "file", "size": 4, "oid": "0" * 40}
    names = ("../../../evil", "/etc/evil", "sub/config.json", "evil.pkl", "a/../../b")
    hub.list_extra = [{**evil, "path": name} for name in names]
    Agent.from_pretrained(REPO)
    assert set(cached_files(tmp_path / "cache")) == {
        "config.json",
        "model.safetensors",
        "train_config.json",
        "results.json",
        "README.md",
    }
    assert not list(tmp_path.rglob("*evil*"))
