"""Plans and statuses of grids: what is refused before anything starts, what files say."""

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
from agentzoo.errors import CheckpointError, ConfigError, TrainingError, UnknownNameError
from agentzoo.recipe import differences
from agentzoo.research import grid
from agentzoo.research.grid import staging_groups, tasks_of
from agentzoo.store.files import RECIPE
from agentzoo.training.grid.drive import only_driver
from agentzoo.training.grid.plan import (
    PLAN,
    OwnData,
    Plan,
    Row,
    expand,
    make_plan,
    named_agents,
    parse_seeds,
    read_grid_file,
    read_plan,
    write_plan,
)
from agentzoo.training.grid.status import RunStatus, estimated_seconds, grid_status
from agentzoo.training.grid.tasks import GRID_LOCK, fail
from agentzoo.training.lock import held, holder
from agentzoo.training.log import append_row, start_log
from training.grid_cases import small_plan, small_rows

COLUMNS = ["step", "loss", "steps_per_s", "seconds", "eval_return", "eval_score"]


def test_seeds_are_numbers_and_ranges() -> None:
    assert parse_seeds("0-2,5, 7-7") == [0, 1, 2, 5, 7]
    for wrong in ("", "2-0", "a", "1;2", "-1", "0-100000"):
        with pytest.raises(ConfigError):
            parse_seeds(wrong)


def test_patterns_name_all_ids_that_match() -> None:
    found = named_agents("dt-hopper-medium, dm-hopper-medium*")
    assert found[0] == "dt-hopper-medium"
    assert {"dm-hopper-medium", "dm-hopper-medium-replay"} <= set(found[1:])
    assert all(name.startswith("dm-hopper-medium") for name in found[1:])


def test_unknown_agents_get_the_nearest_match() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'dt-hopper-medium'"):
        expand("dt-hoper-medium", "0")
    with pytest.raises(UnknownNameError, match="no recipe matches 'dx-"):
        expand("dx-hopper-*", "0")
    with pytest.raises(ConfigError, match="no agent is named"):
        expand(" , ", "0")


def test_two_environments_are_one_too_many() -> None:
    """As for `agentzoo train`."""
    with pytest.raises(ConfigError, match=r"--env .* is 'Walker2d-v5', but a setting is eval\.env=Hopper-v4; name one"):
        expand("dt-hopper-medium", "0", ["eval.env=Hopper-v4"], own=OwnData(env="Walker2d-v5"))
    for settings, own in ((["eval.env=Hopper-v4"], "Hopper-v4"), (["eval.env=Hopper-v4"], None), ([], "Hopper-v4")):
        (row,) = expand("dt-hopper-medium", "0", settings, own=OwnData(env=own))
        assert row.recipe.eval.env == "Hopper-v4"


def test_every_row_has_its_seed_and_settings() -> None:
    rows = expand("dt-hopper-medium,bc-hopper-medium", "3,1", ["train.steps=7"], "short", 2)
    assert [row.folder for row in rows] == [
        "dt-hopper-medium-short-s3",
        "dt-hopper-medium-short-s1",
        "bc-hopper-medium-short-s3",
        "bc-hopper-medium-short-s1",
    ]
    assert [(row.recipe.train.seed, row.recipe.train.steps) for row in rows] == [(3, 7), (1, 7), (3, 7), (1, 7)]


def test_a_setting_of_another_seed_is_refused_instead_of_ignored() -> None:
    (row,) = expand("dt-hopper-medium", "5", ["train.seed=5"])
    assert row.recipe.train.seed == 5
    for seeds in ("0", "0-5"):
        with pytest.raises(ConfigError, match=rf"a setting is train\.seed=5, but .*--seeds.*: {seeds}\. Omit"):
            expand("dt-hopper-medium", seeds, ["train.steps=7", "train.seed=5"])


def test_a_grid_file_has_rows_with_settings_and_priorities_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        """
        seeds = "0-1"
        set = ["train.steps=50", "train.lr=1e-3"]

        [[run]]
        agents = "dt-hopper-medium"

        [[run]]
        agents = "dt-hopper-medium"
        seeds = "4"
        set = ["train.lr=1e-2"]
        name = "fast"
        priority = 5
        """
    )
    plan = make_plan(tmp_path / "runs", read_grid_file(path, ["train.warmup_steps=3"]))
    assert [row.folder for row in plan.in_order()] == [
        "dt-hopper-medium-fast-s4",
        "dt-hopper-medium-s0",
        "dt-hopper-medium-s1",
    ]
    assert [row.recipe.train.lr for row in plan.in_order()] == [1e-2, 1e-3, 1e-3]
    assert {(row.recipe.train.steps, row.recipe.train.warmup_steps) for row in plan.rows} == {(50, 3)}


def test_a_row_of_a_grid_file_may_name_data_and_a_target(
    tiny_hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTZOO_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "grid.toml"
    path.write_text(f"[[run]]\nagents = 'dt,bc'\ndataset = '{tiny_hopper}'\ntarget = 'p90'\nset = ['train.steps=7']")
    rows = read_grid_file(path)
    assert [row.folder for row in rows] == ["dt-hopper-tiny-s0", "bc-hopper-tiny-s0"]
    assert {(row.recipe.data.dataset, row.recipe.train.steps) for row in rows} == {(tiny_hopper, 7)}
    assert {row.recipe.eval.target_rule for row in rows} == {"p90"}
    assert rows[0].recipe.eval.target_return < 3600.0


def test_options_without_effect_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["grid", "--agents", "dt-hopper-medium", "--out", str(tmp_path / "runs")]
    for more, said in (
        (["--zoo", str(tmp_path)], "--zoo has no effect without --stage"),
        (["--sync"], "--sync and --shared have no effect without Ray"),
        (["--shared", "--engine", "local"], "--sync and --shared have no effect without Ray"),
    ):
        found = CliRunner().invoke(app, [*words, *more])
        assert isinstance(found.exception, ConfigError)
        assert said in str(found.exception)
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))  # is not asked for
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "none"))
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, UnknownNameError)
    assert str(found.exception).startswith("no dataset 'zoo/hopper/medium-v0' in ")


def test_a_list_that_names_no_dataset_does_not_mean_the_recipes_own(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text("[[run]]\nagents = 'dt-hopper-medium'\ndataset = ','")
    with pytest.raises(ConfigError, match="no dataset is named in ','; omit it"):
        read_grid_file(tmp_path / "grid.toml")
    words = ["grid", "--agents", "dt-hopper-medium", "--out", str(tmp_path / "runs"), "--dataset", ""]
    found = CliRunner().invoke(app, words)
    assert str(found.exception) == "no dataset is named in ''; omit it to train each recipe on its own data."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run = 1", "run"),
        ("[[run]]\nagents = 'dt-hopper-medium'\nseed = '0'", "seed"),
        ("[[run]]\nagents = 'dt-hopper-medium'\nname = '../x'", "name"),
        ("agents = [", "not TOML"),
        ("when = 2020-01-01", "cannot be used"),
        ("[[run]]\nagents = 'dt-hopper-medium'\nset = ['train.stepz=3']", "train.steps"),
    ],
)
def test_a_grid_file_that_cannot_be_used_is_explained(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_grid_file(path)


def test_seeds_of_a_command_that_a_grid_file_would_hide_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text("[[run]]\nagents = 'dt-hopper-medium'")
    found = CliRunner().invoke(app, ["grid", "--file", str(path), "--seeds", "3-4", "--out", str(tmp_path / "runs")])
    assert isinstance(found.exception, ConfigError)
    assert str(found.exception).startswith("--seeds, --dataset, --env and --target need --agents")


def test_the_fitted_trials_change_one_thing_each() -> None:
    """Three datasets, three seeds; whatever is changed, an update reads 1,280 steps."""
    rows = read_grid_file(Path(grid.__file__).with_name("fitted.toml"))
    assert len(rows) == 13 * 3 * 3
    assert {row.recipe.train.seed for row in rows} == {0, 1, 2}
    assert {row.recipe.train.batch_size * row.recipe.data.context for row in rows} == {1_280}
    base = {row.recipe.data.dataset: row.recipe for row in rows if "-base-s0" in row.folder}
    assert sorted(base) == ["zoo/hopper/medium-replay-v0", "zoo/hopper/medium-v0", "zoo/pointmaze/medium-v0"]
    changed = {
        tuple(sorted(differences(base[row.recipe.data.dataset].unseeded(), row.recipe.unseeded()))) for row in rows
    }
    assert changed == {
        (),
        *(("model.dropout",), ("train.lr",), ("train.steps",), ("model.embed_dim",), ("model.use_actions",)),
        *(("model.max_ep_len",), ("model.timestep_init_std",)),
        ("data.context", "train.batch_size"),
    }


def test_one_folder_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dt-hopper-medium-s0"):
        make_plan(tmp_path, expand("dt-hopper-medium,dt-hopper-medium", "0"))
    with pytest.raises(ConfigError, match="no run"):
        make_plan(tmp_path, [])


def test_a_folder_of_another_recipe_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (row,) = expand("dt-hopper-medium", "0")
    (tmp_path / row.folder).mkdir()
    (tmp_path / row.folder / RECIPE).write_text(row.recipe.override(["train.lr=0.5"]).to_json())
    with pytest.raises(TrainingError, match=r"train\.lr: 0\.5 there"):
        make_plan(tmp_path, [row])


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, "zoo/hopper/tiny-v0", evaluate=3)
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan
    with pytest.raises(ConfigError, match="holds no grid"):
        read_plan(tmp_path / "elsewhere")
    (tmp_path / PLAN).write_bytes(b'{"rows": "\xff"}')
    with pytest.raises(CheckpointError, match=r"grid\.json cannot be read: 'utf-8' codec.* Repeat the grid's command"):
        read_plan(tmp_path)


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


def test_only_one_driver_works_in_a_folder(tmp_path: Path) -> None:
    with only_driver(tmp_path):
        assert holder(tmp_path, "grid-driver.lock") is not None
        with pytest.raises(TrainingError, match="runs a grid"), only_driver(tmp_path):
            pass
    with only_driver(tmp_path):
        pass


def test_agents_with_two_recipes_cannot_be_staged_together(tmp_path: Path) -> None:
    rows = [*small_rows("a", "0-1", 10), *small_rows("a", "0", 20, "longer")]
    with pytest.raises(ConfigError, match="only one can be staged"):
        staging_groups(Plan(rows=tuple(rows)))
    assert [len(group) for group in staging_groups(Plan(rows=tuple(rows[:2]))).values()] == [2]


def test_tasks_come_in_order_of_priority(tmp_path: Path) -> None:
    rows = [row.model_copy(update={"priority": i % 2}) for i, row in enumerate(small_rows("a", "0-3", 10))]
    tasks = tasks_of(tmp_path, Plan(rows=tuple(rows)))
    assert [task.folder.name[-2:] for task in tasks] == ["s1", "s3", "s0", "s2"]


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
