"""The study of pairs reads logs: values by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import DataError
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.study import read_study
from agentzoo.recipe import load_recipe
from agentzoo.studies.pairs import read_curves, study_of
from agentzoo.training import log

COLUMNS = [*log.COLUMNS, "eval_return", "eval_score", "action_mse"]


def a_run(folder: Path, agent_id: str, seed: int, scores: dict[int, float], *settings: str) -> Path:
    folder.mkdir()
    recipe = load_recipe(agent_id).override([f"train.seed={seed}", *settings])
    (folder / "train_config.json").write_text(recipe.to_json())
    log.start_log(folder, COLUMNS, 0)
    for step in range(100, max(scores) + 1, 100):
        row = {"step": step, "loss": 0.1, "action_mse": 0.1}
        score = scores.get(step)
        log.append_row(folder, COLUMNS, row | ({} if score is None else {"eval_return": 1.0, "eval_score": score}))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        a_run(tmp_path / "a", "chibit-hopper-medium", 0, {200: 10.0, 400: 58.0, 600: 40.0, 800: 60.0}),
        a_run(tmp_path / "b", "chibit-hopper-medium", 1, {200: 20.0, 400: 50.0, 600: 90.0, 800: 60.0}),
        a_run(tmp_path / "c", "chibit-hopper-medium-scratch", 0, {200: 0.0, 400: 10.0, 600: 44.0, 800: 50.0}),
    ]


def test_curves_and_steps_by_hand(runs: list[Path]) -> None:
    both, twin = read_curves(runs)
    assert both.steps.tolist() == [200, 400, 600, 800]
    assert both.scores.mean(0).tolist() == [15.0, 54.0, 65.0, 60.0]
    assert both.steps_to_nearly() == 400  # 54 is 90 % of 60
    assert twin.steps_to_nearly() == 800  # 44 is below 45
    assert both.final().startswith("60.0 [60.0, 60.0], 2 seeds")
    rows = study_of([both, twin], None).rows
    assert rows[1] == ("chibit-hopper-medium-scratch", "50.0 (short evaluation)", "800", "1")


def test_an_agent_that_scores_nothing_is_never_nearly_there(tmp_path: Path) -> None:
    (curve,) = read_curves([a_run(tmp_path / "a", "chibit-hopper-medium", 0, {200: 1.0, 400: -0.5})])
    assert curve.steps_to_nearly() is None


def test_final_scores_are_of_the_long_evaluation_where_there_is_one(runs: list[Path]) -> None:
    staged = Path(__file__).resolve().parents[1] / "hub_cards" / "dt-hopper-medium" / "results.json"
    headline = json.loads(staged.read_text())["headline"]
    (runs[2] / "result.json").write_text(json.dumps(headline))
    result = Result.from_json(json.dumps(headline), "the staged one")
    assert result.score_interval is not None
    twin = read_curves(runs)[1]
    low, high = result.score_interval
    assert twin.final() == f"{result.score:.1f} [{low:.1f}, {high:.1f}], {result.episodes} episodes"


def test_the_command_writes_a_study_that_a_card_can_show(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["pretrain", "pairs", *map(str, runs), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    study = read_study(out)
    assert json.loads(done.output)["rows"] == [list(row) for row in study.rows]
    assert (out / str(study.picture)).read_bytes().startswith(b"\x89PNG")


def test_seeds_that_are_not_as_far_are_said(runs: list[Path], tmp_path: Path) -> None:
    short = a_run(tmp_path / "d", "chibit-hopper-medium", 2, {200: 1.0})
    with pytest.raises(DataError, match="evaluated at different steps"):
        read_curves([*runs, short])
    other = a_run(tmp_path / "f", "chibit-hopper-medium", 3, {200: 1.0}, "train.lr=0.001")
    with pytest.raises(DataError, match=r"f is no seed of chibit-hopper-medium: it differs in train.lr=0.001\. "):
        read_curves([*runs, other])
    bare = a_run(tmp_path / "e", "chibit-hopper-medium-frozen", 0, {200: 1.0})
    log.start_log(bare, COLUMNS, 0)
    with pytest.raises(DataError, match="has no evaluation in its log"):
        read_curves([bare])
