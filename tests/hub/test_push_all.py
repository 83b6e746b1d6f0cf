"""One command publishes the zoo, goes on where it stopped, and pins what it checked."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli.command import app
from agentzoo.errors import ConfigError, HubError
from agentzoo.hub.datasets import card_text, push_card, push_dataset
from agentzoo.hub.publish_all import Published, _write_index, plan, push_all
from agentzoo.store import locate
from hub.cases import same_actions, write_small
from hub.conftest import edit
from hub.server import Hub

IDS = ("dt-one", "dt-two")


@pytest.fixture
def zoo(hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two staged agents, an empty folder of datasets, and an index of our own."""
    from agentzoo.config import AgentConfig
    from agentzoo.hub.card import write_card
    from agentzoo.record import read_record

    root = tmp_path / "zoo"
    for name in IDS:
        place = Path(shutil.copytree(folder, root / name))
        (place / "results.json").unlink()
        edit(place, "config.json", agent_id=name)
        edit(place, "train_config.json", agent_id=name)
        write_card(place)
        assert read_record(AgentConfig, place / "config.json").agent_id == name
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"agents": {"old": {"repo_id": "me/old"}}}))
    monkeypatch.setenv("AGENTZOO_INDEX", str(index))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return root


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["hub", "push", "--all", *arguments])


def test_a_dry_run_checks_and_sends_nothing(hub: Hub, zoo: Path) -> None:
    found = command("--org", "me", "--dry-run")
    assert found.exit_code == 0, found.output
    assert "dt-one -> me/dt-one: 5 files" in found.output
    assert "a card of the datasets -> the dataset repo me/zoo" in found.output
    assert "2 networks" in found.output
    assert hub.repos == {}
    assert hub.seen == []
    assert [item.repo_id for item in plan("me")] == ["me/dt-one", "me/dt-two"]
    (zoo / "dt-two" / "README.md").write_text("not what the records give")
    assert command("--org", "me", "--dry-run").exception is not None
    with pytest.raises(ConfigError, match="not a repo id"):
        plan("a/b")


def test_the_zoo_goes_up_and_the_index_pins_it(hub: Hub, zoo: Path, tmp_path: Path) -> None:
    done = push_all("me")
    assert [(one.name, one.pushed) for one in done] == [("dt-one", True), ("dt-two", True)]
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["agents"]["old"] == {"repo_id": "me/old"}
    assert index["agents"]["dt-one"] == {"repo_id": "me/dt-one", "revision": done[0].commit}
    assert index["datasets"]["repo_id"] == "me/zoo"
    assert b"# Datasets of agentzoo" in hub.repos["datasets:me/zoo"].head["README.md"]
    local = Agent.from_pretrained("dt-one")
    shutil.rmtree(zoo)  # so that the index is asked
    assert same_actions(Agent.from_pretrained("zoo/dt-one"), local)


def test_agents_pushed_at_the_same_time_are_all_in_the_index(tmp_path: Path) -> None:
    path, names = tmp_path / "index.json", [f"dt-{i}" for i in range(24)]

    def write(name: str) -> None:
        _write_index(path, [Published(name, f"me/{name}", "0" * 40, pushed=True)], {"repo_id": "me/zoo"})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, names))
    assert set(json.loads(path.read_text())["agents"]) == set(names)


def test_a_push_does_not_make_public_repos_private(hub: Hub, zoo: Path) -> None:
    push_all("me")
    write_small("test/small/one-v0")
    push_dataset("test/small/one-v0", "me")
    before = {name: dict(repo.branches) for name, repo in hub.repos.items()}
    with pytest.raises(ConfigError, match="me/dt-one is public, and a push does not make"):
        push_all("me", private=True)
    with pytest.raises(ConfigError, match="me/test is public, and a push does not make"):
        push_dataset("test/small/one-v0", "me", private=True)
    assert {name: repo.branches for name, repo in hub.repos.items()} == before


def test_a_run_that_was_stopped_goes_on(hub: Hub, zoo: Path) -> None:
    hub.fail("POST", "/api/models/me/dt-two/commit", 403, times=1)
    with pytest.raises(HubError, match="1 of 2 are published; the same command continues"):
        push_all("me")
    commits = dict(hub.repos["me/dt-one"].branches)
    assert [one.pushed for one in push_all("me")] == [False, True]
    assert hub.repos["me/dt-one"].branches == commits
    assert [one.pushed for one in push_all("me")] == [False, False]
    (zoo / "dt-one" / "training_log.csv").write_text("step,loss\n2,0.4\n")
    assert [one.pushed for one in push_all("me")] == [True, False]
    repo = hub.repos["me/dt-two"]
    theirs = repo.commit({**repo.head, "LICENSE": b"a file of its owner"})
    done = push_all("me")
    assert [one.pushed for one in done] == [False, False]  # it differs, but a push changes nothing
    assert done[1].commit == theirs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"agents": {"mine": {"repo_id": "me/mine"},},}', "cannot be used: "),
        ('{"agents": []}', "its agents are not an object, id -> entry"),
        ("[]", "neither agents nor a default"),
    ],
)
def test_a_damaged_index_is_kept_and_refused_before_anything_is_sent(
    hub: Hub, zoo: Path, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ConfigError, match=words):
        push_all("me")
    assert (tmp_path / "index.json").read_text() == text
    assert hub.seen == []
    (tmp_path / "index.json").unlink()
    push_all("me")
    assert set(json.loads((tmp_path / "index.json").read_text())["agents"]) == set(IDS)


def test_what_a_wheel_brought_along_is_not_pushed(
    hub: Hub, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(zoo / "dt-one", tmp_path / "bundled" / "dt-far")
    monkeypatch.setattr(locate, "_local_zoos", lambda: [zoo, tmp_path / "bundled"])
    assert "dt-far" in locate.staged_agents()
    assert [item.name for item in plan("me")] == ["dt-one", "dt-two"]


def test_a_wheel_without_a_zoo_has_nothing_to_push(
    hub: Hub, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own agents are no zoo of the user's; a folder that `$AGENTZOO_ZOO` names is staged into and published."""
    monkeypatch.delenv("AGENTZOO_ZOO")
    monkeypatch.setattr(locate, "_package", lambda: tmp_path / "site-packages" / "agentzoo")
    shutil.copytree(zoo, tmp_path / "site-packages" / "agentzoo" / "bundled")
    assert "dt-one" in locate.staged_agents()
    with pytest.raises(ConfigError, match=r"hub_cards holds no agent; `agentzoo hub stage RUN .*AGENTZOO_ZOO=FOLDER"):
        plan("me")
    named = {"AGENTZOO_ZOO": str(tmp_path / "new")}
    found = CliRunner().invoke(app, ["hub", "baselines", str(zoo / "dt-one")], env=named)
    assert f"--zoo {tmp_path / 'new'} is not a folder" in str(found.exception)
    monkeypatch.setenv("AGENTZOO_ZOO", str(zoo))
    assert [item.name for item in plan("me")] == ["dt-one", "dt-two"]


def test_what_comes_back_otherwise_is_noticed(hub: Hub, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push_all("me")
    hub.corrupt = lambda path, data: data.replace(b"0.5", b"0.6") if path.endswith("training_log.csv") else data
    with pytest.raises(HubError, match="training_log"):
        push_all("me")


def test_a_repo_that_changed_after_its_push_is_noticed(hub: Hub, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes of its files are right, but they are others than those that were sent."""

    def changed(path: Path, done: list[Published], datasets: dict[str, str]) -> None:
        tree = hub.repos["me/dt-one"].commits[done[0].commit]
        tree["training_log.csv"] = tree["training_log.csv"].replace(b"0.5", b"0.6")

    monkeypatch.setattr("agentzoo.hub.publish_all._write_index", changed)
    with pytest.raises(HubError, match=r"me/dt-one@.* has a different training_log.csv than .*dt-one\. Push again"):
        push_all("me")


def test_all_and_one_folder_do_not_go_together(hub: Hub, zoo: Path) -> None:
    for arguments in (["--all"], ["--org", "me"], ["--all", "--org", "me", "--tag", "v1"], []):
        found = CliRunner().invoke(app, ["hub", "push", *arguments])
        assert isinstance(found.exception, ConfigError), arguments


def test_the_card_of_the_datasets_is_one_commit(hub: Hub, zoo: Path) -> None:
    first = push_card("me")
    assert push_card("me") == first
    assert "`zoo/hopper/medium-v0`" in card_text("me")


def test_a_card_of_somebody_s_own_stays(hub: Hub, zoo: Path) -> None:
    push_card("me")
    repo = hub.repos["datasets:me/zoo"]
    head = repo.commit({"README.md": b"---\nlicense: mit\n---\n\n# Animals\n"})
    with pytest.warns(UserWarning, match="me/zoo has a card without the tag agentzoo; it stays"):
        done = push_card("me")
    assert done == {"repo_id": "me/zoo", "revision": head}
    assert repo.head["README.md"].endswith(b"# Animals\n")
