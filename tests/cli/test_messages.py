"""Messages of commands: an error names what is missing, before any long work; scores agree everywhere."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from statistics import fmean

import pytest
from conftest import make_agent
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import AgentzooError, CheckpointError, StorageError, UnknownNameError
from agentzoo.evaluation.results import Results
from agentzoo.hub.zoo import describe
from agentzoo.models.bc import BCConfig
from agentzoo.record import read_record
from agentzoo.store.files import CONFIG, RESULTS, require_writable
from agentzoo.store.locate import staged_agents


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(make_agent(context=4).save_pretrained(tmp_path / "dt-test"))


def test_one_episode_has_no_interval(folder: str) -> None:
    for episodes, shown in (("1", False), ("2", True)):
        done = CliRunner().invoke(app, ["evaluate", folder, "-n", episodes])
        assert done.exit_code == 0, done.output
        assert bool(re.search(r"return +\S+ +\[.*\] \(95 %\)", done.output)) is shown


@pytest.mark.parametrize("words", ["evaluate {} -n 1", "enjoy {} -n 1", "record {} {}.gif"])
def test_a_target_for_a_clone_is_said_to_have_no_effect(words: str, folder: str, tmp_path: Path) -> None:
    clone = str(make_agent(model=BCConfig(embed_dim=16), context=1).save_pretrained(tmp_path / "bc"))
    said = "--target has no effect on dt-test, which does not read a return"
    with pytest.warns(UserWarning, match=said):
        done = CliRunner().invoke(app, [*words.format(clone, clone).split(), "--target", "5"])
    assert done.exit_code == 0, done.output
    with warnings.catch_warnings():
        warnings.filterwarnings("error", said)
        done = CliRunner().invoke(app, [*words.format(folder, folder).split(), "--target", "5"])
    assert done.exit_code == 0, done.output


def test_a_file_that_cannot_be_written_is_reported_before_measuring(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("agentzoo.evaluation.results.evaluate", lambda *_, **__: pytest.fail("it measured"))
    for output, words in ((tmp_path / "file" / "x.json", "cannot be written"), (tmp_path, "is a folder")):
        found = CliRunner().invoke(app, ["evaluate", folder, "--output", str(output)])
        assert isinstance(found.exception, StorageError)
        assert words in str(found.exception)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_result_does_not_replace_a_file_of_the_agent(folder: str, name: str) -> None:
    kept = (Path(folder) / name).read_bytes()
    found = CliRunner().invoke(app, ["evaluate", folder, "-n", "1", "--output", str(Path(folder) / name)])
    assert isinstance(found.exception, StorageError)
    assert re.search(rf"{name} is a file of an agent, which would be lost", str(found.exception))
    assert (Path(folder) / name).read_bytes() == kept


def test_a_result_replaces_an_earlier_one_beside_no_agent(folder: str, tmp_path: Path) -> None:
    output = tmp_path / "scores" / RESULTS
    for episodes in ("1", "2"):
        found = CliRunner().invoke(app, ["evaluate", folder, "-n", episodes, "--output", str(output)])
        assert found.exit_code == 0, found.output
    assert json.loads(output.read_text())["episodes"] == 2
    shutil.copy(Path(folder) / CONFIG, output.parent)
    with pytest.raises(StorageError, match="is a file of an agent"):
        require_writable(output)


def test_a_film_or_plot_that_cannot_be_written_is_reported_before_the_agent_is_loaded(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("agentzoo.agent.Agent.from_pretrained", lambda *_, **__: pytest.fail("it was loaded"))
    for command in (
        ["record", folder, str(tmp_path / "file" / "x.mp4")],
        ["research", "sweep", folder, "--up-to", "9", "--plot", str(tmp_path / "file" / "x.png")],
        ["hub", "export", folder, str(tmp_path / "file" / "x.onnx")],
    ):
        found = CliRunner().invoke(app, command)
        assert isinstance(found.exception, StorageError), found.output
        assert "cannot be written" in str(found.exception)


@pytest.mark.parametrize("command", ["train dt-pointmaze-medium", "grid", "research pretrain lm"])
def test_an_empty_path_is_not_the_current_folder(command: str) -> None:
    """`--out "$FOLDER"` of a variable that is not set."""
    found = CliRunner().invoke(app, [*command.split(), "--out", ""])
    assert found.exit_code == 2
    assert "the path is empty; name a folder" in found.output


def test_a_folder_of_results_is_not_made_before_there_are_results(tmp_path: Path) -> None:
    require_writable(tmp_path / "new" / "inner" / "x.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["list", "--into"], ["grid", "--file"]])
def test_a_missing_text_file_is_no_file_of_an_agent(command: list[str], tmp_path: Path) -> None:
    for name in ("none.toml", "README.md"):
        found = CliRunner().invoke(app, [*command, str(tmp_path / name)])
        assert isinstance(found.exception, CheckpointError)
        assert str(found.exception) == f"there is no file {tmp_path / name}."


def test_a_zoo_that_is_no_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zooo"))
    for command, status in ((["list"], 0), (["hub", "push", "--all", "--org", "me", "--dry-run"], 1)):
        with pytest.warns(UserWarning, match=r"AGENTZOO_ZOO is .*zooo, and there is no such folder"):
            assert CliRunner().invoke(app, command).exit_code == status


def test_a_family_without_data_is_no_unknown_agent() -> None:
    found = CliRunner().invoke(app, ["train", "dt"])
    assert isinstance(found.exception, UnknownNameError)
    assert str(found.exception).startswith("'dt' is a family, not an agent: name your data with --dataset")


def test_a_backbone_is_no_unknown_agent() -> None:
    found = CliRunner().invoke(app, ["show", "lm-mini"])
    assert isinstance(found.exception, UnknownNameError)
    assert "It is a backbone, from which agents start" in str(found.exception)
    assert "`agentzoo research inspect lm-mini`" in str(found.exception)


def test_a_recipe_of_several_seeds_has_one_score_everywhere() -> None:
    """The mean; the card, the table, `list --json` and `show` agree, and `show` has the score of the weights too."""
    name = "dm-hopper-medium-replay"
    results = read_record(Results, staged_agents()[name] / RESULTS)
    scores = [one.score for one in (results.headline, *results.seeds)]
    mean = fmean(scores)
    (listed,) = [
        one for one in json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout) if one["agent_id"] == name
    ]
    assert (listed["score"], listed["low"], listed["high"]) == (pytest.approx(mean), min(scores), max(scores))
    assert listed["clone"]["score"] == pytest.approx(fmean(score for _, score in listed["clone"]["seeds"]))
    shown = json.loads(CliRunner().invoke(app, ["show", name, "--json"]).stdout)
    assert shown["over_seeds"]["score"] == pytest.approx(mean)
    assert [score for _, score in shown["over_seeds"]["seeds"]] == scores
    assert shown["results"]["score"] == scores[0]
    assert (
        f"| {mean:.1f} [{min(scores):.1f}, {max(scores):.1f}] |"
        in CliRunner().invoke(app, ["list", "--markdown"]).stdout
    )


def test_a_folder_of_a_packaged_id_is_shown_with_its_scores(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`agentzoo hub pull YOU/dt-hopper-medium` writes such a folder, which `evaluate` then uses."""
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path / "dt-hopper-medium")
    shown = describe("dt-hopper-medium")
    assert shown["agent_id"] == "dt-test"
    assert describe("zoo/dt-hopper-medium")["agent_id"] == "dt-hopper-medium"  # not a folder: the recipe
    (tmp_path / "index.json").write_text(
        '{"agents": {"dt-hopper-medium": {"repo_id": "a/b"}}, "default": "a/{agent_id}"}'
    )
    monkeypatch.setenv("AGENTZOO_INDEX", str(tmp_path / "index.json"))
    assert describe("dt-mujoco-hopper-medium")["agent_id"] == "dt-mujoco-hopper-medium"  # without weights anywhere
    with pytest.raises(AgentzooError, match="a/b"):
        describe("zoo/dt-hopper-medium")  # asks for what `evaluate` would load
