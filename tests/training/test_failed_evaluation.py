"""An evaluation that fails is made when the run continues; nothing of its update is lost or logged twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentzoo.errors import ObservationError, TrainingError
from agentzoo.recipe import Recipe
from agentzoo.store.tensors import read_tensors
from agentzoo.training.hooks import Evaluation, Hooks
from agentzoo.training.log import read_log
from training.cases import Stopped, recipe, repeatable, run


def rising(fails_at: int = 0, stops_at: int = 0) -> Hooks:
    """Evaluations whose return is the number of updates; one of them fails, or the run stops after an update."""
    now = 0

    def note(step: int) -> None:
        nonlocal now
        now = step
        if step == stops_at:
            raise Stopped

    def evaluate(_: object) -> Evaluation:
        step = now + 1  # the loop evaluates before it reports the step
        if step == fails_at:
            raise ObservationError("the environment returned NaN")
        return Evaluation(float(step), None)

    return Hooks(evaluate=evaluate, on_step=note, on_resume=lambda step: note(step - 1))


def returns(folder: Path) -> dict[int, str]:
    return {int(row["step"]): row["eval_return"] for row in read_log(folder)}


def broken_at(step: int, folder: Path, made: Recipe) -> None:
    with pytest.raises(TrainingError, match=f"after update {step} failed .* to continue with its evaluation"):
        run(folder, made, rising(step))


@pytest.mark.parametrize("step", [13, 20, 26, 30])
def test_a_repeated_run_makes_the_evaluation_that_failed(step: int, tmp_path: Path) -> None:
    """Update 20 is logged and saved anyway, 26 is neither, and 30 is the last."""
    made = recipe().override([f"eval.every={10 if step == 20 else 13}"])
    whole = run(tmp_path / "whole", made, rising())
    broken_at(step, tmp_path / "run", made)
    broken_at(step, tmp_path / "run", made)  # nothing was corrected
    weights = run(tmp_path / "run", made, rising())
    assert all(torch.equal(whole[name], weights[name]) for name in whole)
    assert returns(tmp_path / "run")[step] == str(step)
    assert returns(tmp_path / "run") == returns(tmp_path / "whole")
    assert repeatable(tmp_path / "run") == repeatable(tmp_path / "whole")
    assert read_tensors(tmp_path / "run" / "best.safetensors")[1] == {"step": "30"}


def test_patience_does_not_end_before_the_evaluation_that_failed(tmp_path: Path) -> None:
    made = recipe().override(["eval.every=5", "train.patience=5"])
    broken_at(10, tmp_path, made)
    run(tmp_path, made, rising())
    assert returns(tmp_path) == {step: str(step) for step in (5, 10, 15, 20, 25, 30)}


def test_a_run_killed_after_the_repeated_evaluation_logs_it_once(tmp_path: Path) -> None:
    made = recipe().override(["eval.every=13"])
    broken_at(13, tmp_path, made)
    with pytest.raises(Stopped):
        run(tmp_path, made, rising(stops_at=17))
    assert returns(tmp_path) == {5: "", 10: "", 13: "13", 15: ""}
    run(tmp_path, made, rising())
    assert [row[0] for row in repeatable(tmp_path)] == ["5", "10", "13", "15", "20", "25", "26", "30"]


def test_without_evaluations_the_update_whose_evaluation_failed_is_logged(tmp_path: Path) -> None:
    run(tmp_path / "whole", recipe())
    broken_at(20, tmp_path / "run", recipe().override(["eval.every=10"]))
    run(tmp_path / "run", recipe().override(["eval.every=0"]))
    assert returns(tmp_path / "run")[10] == "10"
    assert repeatable(tmp_path / "run") == repeatable(tmp_path / "whole")
