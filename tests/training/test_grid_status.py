"""Statuses of grids: what their files say, as tables and as JSON."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.cli.grid_table import live_table, status_table
from agentzoo.errors import ConfigError
from agentzoo.store.files import RECIPE
from agentzoo.training.grid.plan import Plan, Row, write_plan
from agentzoo.training.grid.status import RunStatus, estimated_seconds, grid_status
from agentzoo.training.grid.tasks import GRID_LOCK, fail
from agentzoo.training.lock import held
from agentzoo.training.log import append_row, start_log
from training.grid_cases import small_plan

COLUMNS = ["step", "loss", "steps_per_s", "seconds", "eval_return", "eval_score"]


def test_status_shows_the_folder_that_out_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for out, seeds in (("runs", "0"), ("mine", "5")):
        write_plan(tmp_path / out, small_plan(tmp_path / out, "zoo/hopper/tiny-v0", seeds))
    for words, folder in (
        (["status"], "dt-hopper-medium-s0"),
        (["--out", "mine", "status"], "dt-hopper-medium-s5"),
        (["status", "mine"], "dt-hopper-medium-s5"),
        (["--out", "mine", "status", "mine"], "dt-hopper-medium-s5"),
    ):
        found = CliRunner().invoke(app, ["grid", *words, "--json"], catch_exceptions=False)
        assert [one["folder"] for one in json.loads(found.output)] == [folder], words
    for words, said in (
        (["--out", "mine", "status", "runs"], "--out is mine, but `status` names runs; name one folder."),
        (
            ["--agents", "dt-hopper-medium", "--yes", "status"],
            "--agents, --yes has no effect before `status`; omit it.",
        ),
    ):
        refused = CliRunner().invoke(app, ["grid", *words])
        assert isinstance(refused.exception, ConfigError)
        assert str(refused.exception) == said


def test_status_says_what_the_files_say(tmp_path: Path) -> None:
    """Ten updates a second and 40 of 60 left: four seconds."""
    plan = small_plan(tmp_path, "zoo/hopper/tiny-v0", "0-3")
    first, second, third, _ = (tmp_path / row.folder for row in plan.rows)
    for folder in (first, second):
        folder.mkdir()
        start_log(folder, COLUMNS, 0)
    append_row(first, COLUMNS, {"step": 10, "loss": 0.5, "steps_per_s": 10.0, "seconds": 1.0, "eval_return": 7.0})
    append_row(first, COLUMNS, {"step": 20, "loss": 0.25, "steps_per_s": 10.0, "seconds": 2.0})
    append_row(second, COLUMNS, {"step": 30, "loss": 0.1, "steps_per_s": 5.0, "seconds": 6.0})
    third.mkdir()
    fail(third, "it broke")
    with held(first, GRID_LOCK):
        found = grid_status(tmp_path, plan)
    assert [one.state for one in found] == ["running", "stopped", "failed", "waiting"]
    assert (found[0].step, found[0].steps, found[0].loss) == (20, 60, 0.25)
    assert (found[0].score, found[0].mean_return) == (None, 7.0)
    assert (found[0].seconds, found[0].seconds_left, found[1].seconds_left) == (2.0, 4.0, 6.0)
    assert found[2].error == "it broke"
    # the third and fourth have no log: that of the first run of the agent says how fast it is
    assert list(estimated_seconds(tmp_path, plan).values()) == [4.0, 6.0, 6.0, 6.0]


def test_the_speed_of_an_agent_whose_name_begins_alike_says_nothing(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "zoo/hopper/tiny-v0", "0")
    recipe = plan.rows[0].recipe.replace(agent_id="dt-mine")
    plan = Plan(rows=(Row(folder="dt-mine-s0", recipe=recipe),))
    for name, agent_id, rate in (("dt-mine-better-s0", "dt-mine-better", 1000.0), ("dt-mine-wide-s1", "dt-mine", 10.0)):
        other = tmp_path / name
        other.mkdir()
        (other / RECIPE).write_text(recipe.replace(agent_id=agent_id).to_json())
        start_log(other, COLUMNS, 0)
        append_row(other, COLUMNS, {"step": 20, "loss": 0.5, "steps_per_s": rate, "seconds": 1.0})
        expected = None if agent_id == "dt-mine-better" else 6.0
        assert list(estimated_seconds(tmp_path, plan).values()) == [expected]


def test_a_run_in_a_linked_folder_is_seen_running(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "zoo/hopper/tiny-v0", "0-1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / plan.rows[0].folder).symlink_to(elsewhere)
    for folder in (elsewhere, tmp_path / plan.rows[0].folder):
        assert [one.state for one in grid_status(tmp_path, plan, [folder])] == ["running", "waiting"]


def test_the_live_table_fits_the_terminal_and_keeps_what_matters() -> None:
    def one(folder: str, state: str, step: int = 0, rate: float | None = None) -> RunStatus:
        left = None if rate is None else (20_000 - step) / rate
        return RunStatus(folder, "a", 0, state, step, 20_000, rate, 1.0, left, 0.1234, 44.1, 1400.0, "")  # type: ignore[arg-type]

    found = [one("dt-hopper-medium-s0", "done", 20_000)]
    found += [one(f"dt-walker2d-medium-expert-s{seed}", "waiting") for seed in range(20)]
    found += [one("gpt2-dtma-pointmaze-medium-random-gates-s7", "running", 12_000, 10.0)]
    for width, height, shown in ((120, 40, 22), (80, 40, 22), (80, 12, 8), (50, 10, 6)):
        page = Console(width=width, height=height, color_system=None, file=StringIO())
        page.print(live_table(found, "grid", width, height))
        lines = page.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(len, lines)) <= width
        assert len(lines) <= height
        assert sum("/ 20,000" in line for line in lines) == shown
        (running,) = (line for line in lines if "running" in line and "12,000 / 20,000" in line)
        assert "-s7 " in running
        assert "0:13:20" in running
        assert ("0.1234" in running) == (width == 120)
        assert ("score 44.1" in running) == (width == 120)


def test_the_table_says_whether_a_result_is_a_score_or_a_return() -> None:
    page = Console(width=120, height=20, color_system=None, file=StringIO())
    for score, returned in ((44.1, 1400.0), (None, 500.0), (None, None)):
        one = RunStatus("run", "a", 0, "done", 9, 9, None, 1.0, 0.0, 0.5, score, returned, "")
        page.print(status_table([one], "grid"))
    lines = page.file.getvalue().splitlines()  # type: ignore[attr-defined]
    rows = [line for line in lines if "9 / 9" in line]
    assert "score 44.1" in rows[0]
    assert "return 500" in rows[1]
    assert not re.search("score|return", rows[2])
