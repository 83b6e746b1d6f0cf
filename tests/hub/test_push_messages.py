"""Messages of a push that does less than was asked, and what tokens do where none is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import ConfigError, HubError
from agentzoo.hub.listing import remote_agents
from agentzoo.hub.publish import push
from hub.conftest import REPO, edit
from hub.server import READ_TOKEN, TOKEN, Hub


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["hub", "push", *arguments])


def test_a_push_does_not_make_a_public_repo_private(hub: Hub, folder: Path) -> None:
    push(folder, REPO)
    before = dict(hub.repos[REPO].branches)
    (folder / "training_log.csv").write_text("step,loss\n2,0.4\n")
    with pytest.raises(ConfigError, match=r"tests/dt-test is public, and a push does not make .* nothing was uploaded"):
        push(folder, REPO, private=True)
    assert hub.repos[REPO].branches == before
    made = push(folder, "tests/new", private=True)
    assert hub.repos["tests/new"].private
    assert push(folder, "tests/new", private=True).commit == made.commit


def test_a_push_without_a_change_says_that_there_is_none(hub: Hub, folder: Path) -> None:
    assert "no change" not in run(str(folder), REPO).output
    for option, words in (([], "no commit was made"), (["--create-pr"], "no pull request was opened")):
        found = run(str(folder), REPO, *option)
        assert found.exit_code == 0, found.output
        assert f"{REPO} already holds these files; {words}." in " ".join(found.output.split())
    tagged = " ".join(run(str(folder), REPO, "--tag", "v1").output.split())
    assert tagged.endswith(f"no commit was made. v1 is a tag of {hub.repos[REPO].branches['main']}.")
    (folder / "training_log.csv").write_text("step,loss\n2,0.4\n")
    assert push(folder, REPO, create_pr=True).changed


def test_a_push_without_a_token_says_what_is_missing(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match=r"answered 401: this needs a token, and none was found. Log in .* HF_TOKEN"):
        push(folder, REPO)


def test_what_needs_the_hub_says_that_it_was_not_asked(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike a load, a push and a list have nothing to do with the cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for call in (lambda: push(folder, REPO), remote_agents):
        with pytest.raises(HubError, match=r": HF_HUB_OFFLINE is set, so the Hub was not asked\.") as found:
            call()
        assert "cache" not in str(found.value)
    with pytest.raises(HubError, match="It is not in the cache, and the Hub was not asked"):
        Agent.from_pretrained(REPO)
    assert hub.seen == []


def test_a_damaged_stored_token_does_not_block_what_sends_none(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(folder, REPO)
    Agent.from_pretrained(REPO)
    monkeypatch.setenv("HF_TOKEN", "hf_abc def")
    with pytest.raises(ConfigError, match="the stored token"):
        Agent.from_pretrained(REPO)
    Agent.from_pretrained(REPO, token=False)
    seen = len(hub.seen)
    Agent.from_pretrained(REPO, local_files_only=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    Agent.from_pretrained(REPO)
    assert len(hub.seen) == seen


@pytest.mark.usefixtures("one_table_of_operators")
def test_export_of_a_private_agent_takes_a_token(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push(folder, REPO, private=True)
    monkey = ["hub", "export", REPO, str(tmp_path / "x.onnx")]
    assert hub.repos[REPO].private
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HF_TOKEN")
        assert isinstance(CliRunner().invoke(app, monkey).exception, HubError)
        pytest.importorskip("onnx")
        found = CliRunner().invoke(app, [*monkey, "--token", READ_TOKEN])
        assert found.exit_code == 0, found.output
    assert TOKEN not in found.output


def test_a_card_written_from_inside_its_folder_keeps_the_baselines(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zoo's baselines.json lies one folder up, also if the folder is called `.`."""
    from agentzoo.evaluation.baselines import Baselines, write_baselines
    from agentzoo.evaluation.results import Baseline
    from agentzoo.hub.records import read_records

    row = Baseline(method="bc", trained_with="agentzoo train", result=read_records(folder)[2].headline)
    write_baselines(folder.parent / "baselines.json", Baselines().with_row("tests/none-v0", row))
    edit(folder, "results.json", yardsticks=[])
    monkeypatch.chdir(folder)
    found = CliRunner().invoke(app, ["hub", "card", "."])
    assert found.exit_code == 0, found.output
    assert len(read_records(folder)[2].yardsticks) == 1
    assert "behaviour cloning" in (folder / "README.md").read_text()
