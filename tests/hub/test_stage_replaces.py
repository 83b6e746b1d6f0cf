"""Staging again: what replaces a staged agent, what is kept, and when a stored result is used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import largest_file

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.errors import CheckpointError, StorageError
from agentzoo.evaluation.results import Result, Results, evaluate
from agentzoo.hub.card import write_card
from agentzoo.hub.finished_runs import RESULT, headline, measured
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.store.files import swap_in, write_atomic
from agentzoo.store.locate import written_whole
from hub.cases import finished, quickly, rewritten
from hub.conftest import make_folder


@pytest.mark.slow
def test_a_new_training_replaces_the_staged_agent_also_if_that_scored_more(tiny_hopper: str, tmp_path: Path) -> None:
    run, zoo = finished(tmp_path / "run", tiny_hopper), tmp_path / "zoo"
    baseline = rewritten(finished(tmp_path / "baseline", tiny_hopper), train__lr=0.5)
    folder = quickly(run, zoo, baselines=[baseline])
    path = folder / "results.json"
    first = Results.from_json(path.read_text(), "results.json")
    assert len(first.baselines) == 1
    assert first.baselines[0].updates == Recipe.from_json((run / "train_config.json").read_text(), "r").train.steps
    write_card(folder, "apache-2.0")
    raised = first.headline.model_copy(update={"weights_sha256": "0" * 64, "mean_return": 1e6})
    path.write_text(first.model_copy(update={"headline": raised}).to_json())
    progress_lines: list[str] = []
    quickly(run, zoo, on_progress=progress_lines.append)
    assert Results.from_json(path.read_text(), "results.json").headline.mean_return == first.headline.mean_return
    assert "keeping the license of the agent it replaces, apache-2.0" in progress_lines
    assert "\nlicense: apache-2.0\n" in (folder / "README.md").read_text()
    carried = read_record(AgentConfig, run / "config.json").model_copy(update={"license": "bsd-3-clause"})
    (run / "config.json").write_text(carried.to_json())  # as a fine-tune of an agent with this license has it
    quickly(run, zoo)
    assert "\nlicense: bsd-3-clause\n" in (folder / "README.md").read_text()
    assert os.listdir(zoo) == ["dt-test"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"eval__env": "Walker2d-v5"}, r"eval.env is 'Walker2d-v5' instead of 'Hopper-v5'"),
        ({"data__dataset": "zoo/hopper/other-v0"}, r"data.dataset is 'zoo/hopper/other-v0' instead"),
        ({"family": "dt"}, r"model.family is 'dt' instead of 'bc'"),
    ],
)
def test_another_agent_of_the_same_name_is_replaced_only_if_forced(
    change: dict[str, str], reason: str, tiny_hopper: str, tmp_path: Path
) -> None:
    run, zoo = finished(tmp_path / "run", tiny_hopper), tmp_path / "zoo"
    family = change.get("family", "bc")
    there = finished(zoo / "dt-test", tiny_hopper, family=family)
    settings = {name: value for name, value in change.items() if name != "family"}
    rewritten(there, **settings)
    if "eval__env" in settings:
        config = AgentConfig.from_json((there / "config.json").read_text(), "config")
        (there / "config.json").write_text(config.model_copy(update={"env": settings["eval__env"]}).to_json())
    before = (there / "model.safetensors").read_bytes()
    progress_lines: list[str] = []
    with pytest.raises(CheckpointError, match=rf"dt-test holds another agent, dt-test: its {reason}.*--force"):
        quickly(run, zoo, on_progress=progress_lines.append)
    assert progress_lines == []  # nothing was measured
    assert (there / "model.safetensors").read_bytes() == before
    quickly(run, zoo, force=True)
    assert Agent.from_pretrained(there).config.env == "Hopper-v5"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weights_sha256", "0" * 64),
        ("weights_sha256", None),
        ("env", "Walker2d-v5"),
        ("target_return", 5.0),
        ("acting", "recurrent"),
        ("deterministic", False),
        ("seed", 1),
    ],
)
def test_a_stored_result_is_used_only_for_the_same_weights_and_settings(
    field: str, value: Any, tiny_hopper: str, tmp_path: Path
) -> None:
    run = finished(tmp_path / "run", tiny_hopper)
    progress_lines: list[str] = []
    first = measured(run, 1, progress_lines.append)
    assert measured(run, 1, progress_lines.append) == first
    assert len(progress_lines) == 1
    (run / RESULT).write_text(first.model_copy(update={field: value}).to_json())
    assert getattr(measured(run, 1, progress_lines.append), field) == getattr(first, field)
    assert len(progress_lines) == 2
    assert getattr(Result.from_json((run / RESULT).read_text(), "kept"), field) == getattr(first, field)


def test_the_result_of_a_run_names_no_command(
    tiny_hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id may lead to these weights today and to others that are staged tomorrow."""
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))
    run = finished(tmp_path / "dt-test", tiny_hopper)
    assert evaluate(Agent.from_pretrained(run), episodes=1).command is not None
    assert measured(run, 1).command is None


def test_a_stored_result_of_more_episodes_serves_comparisons_and_is_kept(tiny_hopper: str, tmp_path: Path) -> None:
    run = finished(tmp_path / "run", tiny_hopper)
    progress_lines: list[str] = []
    larger = measured(run, 3, progress_lines.append)
    assert headline(run, 2, progress_lines.append) == larger
    assert len(progress_lines) == 1
    assert measured(run, 2, progress_lines.append).episodes == 2  # all rows of a card have the same number of episodes
    assert Result.from_json((run / RESULT).read_text(), "kept") == larger
    assert headline(run, 4, progress_lines.append).episodes == 4
    assert Result.from_json((run / RESULT).read_text(), "kept").episodes == 4


def test_a_target_that_cannot_be_written_or_is_no_agent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageError, match=r"nothing can be written in .*file"), written_whole(tmp_path / "file" / "a"):
        pass
    with pytest.raises(StorageError, match="is not replaced: it is not an agent's"), written_whole(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "mine"
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208


def test_a_full_disk_leaves_the_staged_agent_unchanged(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "dt-test")
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    with (
        largest_file(1_000),
        pytest.raises(StorageError, match=r"dt-test was not written: .*File too large.*is unchanged"),
        written_whole(folder) as new,
    ):
        (new / "replay.mp4").write_bytes(b"x" * 2_000)
    with largest_file(1_000), pytest.raises(StorageError) as error, written_whole(folder) as new:
        write_atomic(new / "results.json", b"x" * 2_000)
    assert str(error.value).count("was not written") == str(error.value).count("is unchanged") == 1
    elsewhere = tmp_path.parent / f"{tmp_path.name}-run" / "result.json"
    with (
        largest_file(1_000),
        pytest.raises(StorageError, match=r"-run/result.json was not written"),
        written_whole(folder),
    ):
        write_atomic(elsewhere, b"x" * 2_000)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept
    assert os.listdir(tmp_path) == ["dt-test"]  # noqa: PTH208


def test_a_folder_is_replaced_or_stays_if_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, target = tmp_path / "new", tmp_path / "target"
    for folder, text in ((new, "new"), (target, "old")):
        folder.mkdir()
        (folder / "file").write_text(text)
    with pytest.raises(OSError, match="nothing"):
        swap_in(tmp_path / "nothing", target)
    assert (target / "file").read_text() == "old"
    swap_in(new, target)
    assert (target / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["target"]  # noqa: PTH208
