"""Plans of grids: what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentzoo.cli import app
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
    expand,
    make_plan,
    named_agents,
    parse_seeds,
    read_grid_file,
    read_plan,
    write_plan,
)
from agentzoo.training.lock import holder
from training.grid_cases import small_plan, small_rows


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
