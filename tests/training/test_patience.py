"""Training stops once evaluations get no better, and stops there again when it is resumed."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from agentzoo.errors import ConfigError
from agentzoo.recipe import Recipe
from agentzoo.training.hooks import Evaluation, Hooks
from agentzoo.training.log import read_log
from agentzoo.training.settle import run_to_continue
from training.cases import recipe, run


def patient(patience: int, every: int = 5) -> Recipe:
    return recipe(steps=60).override([f"eval.every={every}", f"train.patience={patience}"])


def best_at(update: int, seen: list[int]) -> Hooks:
    """Evaluations that rise until `update` and fall behind it."""
    count = 0

    def note(step: int) -> None:
        nonlocal count
        count = step
        seen.append(step)

    # the loop evaluates before it reports the step
    return Hooks(evaluate=lambda _: Evaluation(-abs(count + 1 - update), None), on_step=note)


@pytest.mark.parametrize(("patience", "last"), [(0, 60), (5, 20), (10, 25), (12, 30), (100, 60)])
def test_it_stops_that_many_updates_after_the_best(patience: int, last: int, tmp_path: Path) -> None:
    seen: list[int] = []
    run(tmp_path, patient(patience), best_at(15, seen))
    assert seen[-1] == last
    assert (tmp_path / "model.safetensors").is_file()
    rows = [row for row in read_log(tmp_path) if row["eval_return"]]
    assert int(rows[-1]["step"]) == last


def test_a_run_that_stopped_stays_stopped(tmp_path: Path) -> None:
    first: list[int] = []
    weights = run(tmp_path, patient(10), best_at(15, first))
    again: list[int] = []
    resumed = run(tmp_path, patient(10), best_at(15, again))
    assert first[-1] == 25
    assert again == []  # its last update saved a checkpoint
    assert all((weights[name] == resumed[name]).all() for name in weights)


def test_a_run_that_stopped_between_checkpoints_is_finished_when_repeated(tmp_path: Path) -> None:
    """Without a checkpoint of its end, it could not continue, or would make the updates since the last one again."""
    chosen = patient(10).override(["train.checkpoint_every=1000"])
    run(tmp_path, chosen, best_at(15, []))
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".safetensors"}
    assert run_to_continue(str(tmp_path)) == tmp_path  # `agentzoo train FOLDER` means this run
    again: list[int] = []
    run(tmp_path, chosen, best_at(15, again))
    assert again == []
    assert {name: (tmp_path / name).read_bytes() for name in written} == written  # no row, no other machine


@pytest.mark.parametrize(("patience", "every", "warned"), [(50, 5, False), (51, 5, True), (5, 30, True), (1, 60, True)])
def test_patience_that_cannot_end_a_run_is_warned_of(patience: int, every: int, warned: bool, tmp_path: Path) -> None:
    """Of 60 updates: the first evaluation is the best one at the earliest, and evaluations are rare."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(tmp_path, patient(patience, every), best_at(0, []))
    said = [str(one.message) for one in caught if "patience" in str(one.message)]
    assert len(said) == warned
    assert all(f"train.patience={patience} has no effect: with an evaluation every {every}" in one for one in said)
    assert (int(read_log(tmp_path)[-1]["step"]) == 60) == warned


def test_without_evaluations_there_is_nothing_to_be_patient_about(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"eval\.every=0 makes none"):
        patient(5, every=0)
    seen: list[int] = []
    run(tmp_path, patient(5), Hooks(on_step=seen.append))  # nobody evaluates
    assert seen[-1] == 60
