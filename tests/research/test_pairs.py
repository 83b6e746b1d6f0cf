"""The study of pairs reads logs: values by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.cli.console import console
from agentzoo.errors import CheckpointError, DataError
from agentzoo.evaluation.results import Results, evaluate
from agentzoo.evaluation.study import read_study
from agentzoo.recipe import load_recipe
from agentzoo.research.studies.comparison import compare
from agentzoo.research.studies.pairs import as_study, draw_curves, pairs_of, read_curves
from agentzoo.training import log
from research.cases import a_run as a_finished_run

CARDS = Path(__file__).resolve().parents[2] / "hub_cards"
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
    both, twin = read_curves(runs, 3)
    assert both.steps.tolist() == [200, 400, 600, 800]
    assert both.scores.mean(0).tolist() == [15.0, 54.0, 65.0, 60.0]
    assert both.updates_to_90_percent() == [400, 600]  # 58 and 90 are the first above 54, 90 % of 60
    assert twin.updates_to_90_percent() == [800]  # 44 is below 45
    rows = as_study([both, twin], None).rows
    never = "", "unfinished, short evaluations: 60.0; 60.0"
    assert rows[0] == ("chibit-hopper-medium", *never, "500 (400 to 600)")
    assert rows[1] == ("chibit-hopper-medium-scratch", "one seed", "unfinished, short evaluations: 50.0", "800")
    many = both._replace(points=both.points * 30)
    assert as_study([many], None).rows[0][2].startswith("unfinished, short evaluations: 60.0; 60.0; ")


def test_a_log_without_scores_is_compared_with_returns(tmp_path: Path) -> None:
    """Its references were found when it was staged: the headline has a score."""
    folder = Path(shutil.copytree(CARDS / "dt-hopper-medium", tmp_path / "dt-hopper-medium"))
    rows = [line.split(",") for line in (folder / "training_log.csv").read_text().splitlines()]
    column = rows[0].index("eval_score")
    for row in rows[1:]:
        row[column] = ""
    (folder / "training_log.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
    (curve,) = read_curves([folder], 100)
    (scored,) = read_curves([CARDS / "dt-hopper-medium"], 100)
    assert (curve.normalized, scored.normalized) == (False, True)
    assert curve.updates_to_90_percent() == scored.updates_to_90_percent()
    assert curve.final() == pytest.approx([3_040], abs=50)
    assert scored.final() == pytest.approx([94.3], abs=0.5)


def test_agents_of_several_environments_get_a_panel_each(tmp_path: Path) -> None:
    names = ("dt-hopper-medium", "dt-pendulum-mixed", "bc-hopper-medium")
    draw_curves(read_curves([CARDS / name for name in names], 100), tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    for words, times in (("Hopper-v5", 1), ("Pendulum-v1", 1), ("score of short", 1), ("return of short", 1)):
        assert text.count(f"<!-- {words}") == times


def test_curves_without_a_pair_are_called_by_their_environment(tmp_path: Path) -> None:
    (curve,) = curves = read_curves([CARDS / "dt-hopper-medium"], 100)
    assert pairs_of(curves) == []
    assert as_study(curves, None).title == "Learning curves"
    draw_curves(curves, tmp_path / "x.svg")
    assert "<!-- Hopper-v5 -->" in (tmp_path / "x.svg").read_text()
    twins = [curve, curve._replace(recipe=curve.recipe.replace(agent_id="dt-hopper-medium-scratch"))]
    assert as_study(twins, None).title == "With and without language"


def test_a_seed_without_a_score_above_0_never_reaches_90_percent(tmp_path: Path) -> None:
    (curve,) = read_curves([a_run(tmp_path / "a", "chibit-hopper-medium", 0, {200: 1.0, 400: -0.5})], 3)
    assert curve.updates_to_90_percent() == []
    assert curve.updates_in_words() == "no score above 0"
    both = curve._replace(points=({200: 1.0, 400: -0.5}, {200: 2.0, 400: 2.0}))
    assert both.updates_in_words() == "200, never in 1 of 2"


def test_updates_of_finished_runs_count_up_to_90_percent_of_the_measured_score(tmp_path: Path) -> None:
    """Both seeds have the same weights here, and logs written by hand."""
    made = [a_finished_run(tmp_path / "a", "dt-test"), a_finished_run(tmp_path / "b", "dt-test", 1)]
    truth = evaluate(Agent.from_pretrained(made[0]), episodes=3)
    for run in made:
        log.start_log(run, COLUMNS, 0)
        for step, part in ((100, 0.5), (200, 0.89), (300, 0.91), (400, 0.3)):
            row = {"step": step, "loss": 0.1, "action_mse": 0.1, "eval_return": part * truth.mean_return}
            log.append_row(run, COLUMNS, row)
    progress_lines: list[str] = []
    (curve,) = read_curves(made, 3, progress_lines.append)
    assert len(progress_lines) == 2
    assert curve.final().tolist() == [truth.mean_return] * 2
    assert curve.updates_to_90_percent() == [300, 300]
    ((_, over, each, soon),) = as_study([curve], None).rows
    low, high = truth.return_interval
    assert each == "; ".join([f"{truth.mean_return:.1f} [{low:.1f}, {high:.1f}]"] * 2)
    assert (over, soon) == (f"{truth.mean_return:.1f} ± 0.0 [{truth.mean_return:.1f}, {truth.mean_return:.1f}]", "300")
    assert read_curves(made, 3, progress_lines.append)[0].finals == curve.finals
    assert len(progress_lines) == 2  # what was measured is kept


def test_a_staged_agent_brings_its_curve_and_its_headline() -> None:
    folder = CARDS / "chibit-hopper-medium"
    before = sorted(folder.iterdir())
    (curve,) = read_curves([folder], 3)
    headline = Results.from_json((folder / "results.json").read_text(), "the staged one").headline
    assert curve.finals == (headline,)  # of 100 episodes, not measured again
    assert curve.steps.tolist() == list(range(800, 8_001, 800))
    assert sorted(folder.iterdir()) == before


def test_a_staged_agent_brings_its_other_seeds(tmp_path: Path) -> None:
    folder = CARDS / "bc-hopper-medium"
    (curve,) = read_curves([folder], 3)
    record = Results.from_json((folder / "results.json").read_text(), "the staged one")
    assert (curve.finals, curve.other_seeds) == ((record.headline,), record.seeds)
    study = as_study([curve], None)
    ((_, over, each, soon),) = study.rows
    assert soon.endswith(f", from 1 of {1 + len(record.seeds)} seeds")  # the only log in the folder
    assert "a staged agent holds the log of one" in study.note
    assert over == "44.9 ± 6.7 [40.4, 52.7]"  # as on its card
    assert each.startswith("41.7 [37.3, 46.7]; ")
    shutil.copytree(folder, tmp_path / "run")
    recipe = load_recipe("bc-hopper-medium").override(["train.seed=1"])
    (tmp_path / "run" / "train_config.json").write_text(recipe.to_json())
    with pytest.raises(DataError, match="occurs twice; a staged agent includes its other seeds"):
        read_curves([folder, tmp_path / "run"], 3)


def test_a_run_and_its_staged_agent_do_not_count_as_two_seeds(tmp_path: Path) -> None:
    staged, copy = CARDS / "chibit-hopper-medium", tmp_path / "copy"
    shutil.copytree(staged, copy)
    with pytest.raises(DataError, match="have the same recipe and training seed; name only one of them"):
        read_curves([staged, copy], 3)
    with pytest.raises(DataError, match="have the same recipe and training seed; name only one of them"):
        compare([staged, copy], 3)


def test_a_staged_record_with_changed_numbers_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(CARDS / "chibit-hopper-medium", copy)
    tree = json.loads((copy / "results.json").read_text())
    tree["headline"]["mean_return"] = 9_999.0
    (copy / "results.json").write_text(json.dumps(tree))
    for read in (read_curves, compare):
        with pytest.raises(
            CheckpointError, match=r"no valid record: .*mean and interval do not follow .* `agentzoo hub verify"
        ):
            read([copy], 3)  # type: ignore[operator]


def test_the_spread_over_seeds_by_hand(runs: list[Path]) -> None:
    staged = CARDS / "dt-hopper-medium" / "results.json"
    one = Results.from_json(staged.read_text(), "the staged one").headline
    finals = tuple(one.model_copy(update={"score": score}) for score in (70.0, 80.0, 85.0))
    curve = read_curves(runs, 3)[0]._replace(points=({200: 0.0},) * 3, finals=finals)
    # three draws of one seed have a chance of 1/27, more than 2.5 %: the interval is the range
    assert curve.over_seeds() == "78.3 ± 7.6 [70.0, 85.0]"


def test_the_curve_of_seeds_that_stopped_early_has_the_updates_they_share(tmp_path: Path) -> None:
    made = [a_finished_run(tmp_path / "a", "dt-test"), a_finished_run(tmp_path / "b", "dt-test", 1)]
    final = evaluate(Agent.from_pretrained(made[0]), episodes=3).mean_return
    for run, parts in zip(made, ((0.5, 0.95, 0.3), (0.1, 0.2, 0.3, 0.4, 0.95)), strict=True):
        log.start_log(run, COLUMNS, 0)
        for i, part in enumerate(parts):
            row = {"step": 100 * (i + 1), "loss": 0.1, "action_mse": 0.1, "eval_return": part * final}
            log.append_row(run, COLUMNS, row)
    (curve,) = read_curves(made, 3)
    assert curve.steps.tolist() == [100, 200, 300]
    assert curve.scores[1] == pytest.approx([0.1 * final, 0.2 * final, 0.3 * final], rel=1e-4)  # the log rounds
    assert curve.updates_to_90_percent() == [200, 500]  # the second seed reached it after the first had stopped
    assert curve.updates_in_words() == "350 (200 to 500)"


def test_the_note_says_how_each_pair_differs(runs: list[Path], tmp_path: Path) -> None:
    """Language is in the weights and in the loss; `-no-language` has it in the weights only."""
    alone = a_run(tmp_path / "n", "chibit-hopper-medium-no-language", 0, {200: 1.0})
    curves = read_curves([*runs, alone], 3)
    named = [(one.agent_id, twin.agent_id) for one, twin in pairs_of(curves)]
    assert named == [(name, "chibit-hopper-medium-scratch") for name in (curves[0].agent_id, curves[2].agent_id)]
    note = as_study(curves, None).note
    differs = " differs from chibit-hopper-medium-scratch in model.backbone=lm-chibi"
    assert f"chibit-hopper-medium{differs}, model.cosine_weight=0.1, model.lm_weight=0.2." in note
    assert f"chibit-hopper-medium-no-language{differs}." in note


def test_the_command_writes_a_study_that_a_card_can_show(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["research", "pairs", *map(str, runs), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    study = read_study(out)
    assert json.loads(done.output)["rows"] == [list(row) for row in study.rows]
    assert (out / str(study.picture)).read_bytes().startswith(b"\x89PNG")


def test_a_narrow_terminal_cuts_no_name(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 80)
    done = CliRunner().invoke(app, ["research", "pairs", *map(str, runs), "--out", str(tmp_path / "out")])
    assert "│ chibit-hopper-medium-scratch │" in done.output
    assert "…" not in done.output


def test_runs_that_are_not_comparable_seeds_are_refused(runs: list[Path], tmp_path: Path) -> None:
    short = a_run(tmp_path / "d", "chibit-hopper-medium", 2, {200: 1.0})
    with pytest.raises(DataError, match="evaluated at different steps"):
        read_curves([*runs, short], 3)
    other = a_run(tmp_path / "f", "chibit-hopper-medium", 3, {200: 1.0}, "train.lr=0.001")
    with pytest.raises(DataError, match=r"f is not a seed of chibit-hopper-medium: it differs in train.lr=0.001\. "):
        read_curves([*runs, other], 3)
    bare = a_run(tmp_path / "e", "chibit-hopper-medium-frozen", 0, {200: 1.0})
    log.start_log(bare, COLUMNS, 0)
    with pytest.raises(DataError, match="has no evaluation in its log; its first comes at update 800"):
        read_curves([bare], 3)
    never = a_run(tmp_path / "g", "chibit-hopper-medium-no-lm", 0, {200: 1.0}, "eval.every=0")
    log.start_log(never, COLUMNS, 0)
    with pytest.raises(DataError, match=r"in its log; train with eval\.every above 0"):
        read_curves([never], 3)
