"""Searches: what a space means, and a real one that is stopped, goes on, and prunes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import ConfigError, TrainingError
from agentzoo.recipe import Recipe, load_recipe
from agentzoo.research.grid import run_task
from agentzoo.training import log
from agentzoo.training.grid.drive import drive
from agentzoo.training.grid.local import LocalEngine
from agentzoo.training.grid.search import Range, TrialResult, as_settings, best, check_search, parse_space, search
from agentzoo.training.grid.tasks import Outcome, Task
from agentzoo.training.log import append_row, start_log
from training.cases import evaluated
from training.cases import recipe as small_recipe
from training.grid_cases import settings_for


def test_a_space_has_ranges_and_choices() -> None:
    found = parse_space(
        ["train.lr=1e-5..1e-3:log", "model.n_layers=1..3", "data.context=5,10", "train.schedule=constant,cosine"]
    )
    assert found == {
        "train.lr": Range(1e-5, 1e-3, True),
        "model.n_layers": Range(1, 3, False),
        "data.context": (5, 10),
        "train.schedule": ("constant", "cosine"),
    }


def test_presets_and_null_are_choices_and_a_trial_is_repeated_by_its_settings(tmp_path: Path) -> None:
    recipe = load_recipe("dm-hopper-medium")
    space = parse_space(["model.preset=small,paper", "train.clip=null,0.25"])
    assert space["train.clip"] == (None, 0.25)
    check_search(recipe, space)
    found = search(recipe, space, tmp_path, LocalEngine(1), trains_nothing, trials=4, pruner="none")
    assert {one.settings["train.clip"] for one in found} == {None, 0.25}
    assert {one.settings["model.preset"] for one in found} == {"small", "paper"}
    for one in found:
        preset, clip = one.settings["model.preset"], one.settings["train.clip"]
        asked = recipe.override([f"model.preset={preset}", f"train.clip={'null' if clip is None else clip}"])
        assert recipe.override(as_settings(one)) == asked


@pytest.mark.parametrize("text", ["train.lr", "train.lr=", "train.lr=3..1", "train.lr=0..1:log"])
def test_a_space_that_cannot_be_searched_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--space"):
        parse_space([text])


def test_a_search_is_checked_before_anything_starts() -> None:
    recipe = load_recipe("dt-hopper-medium")
    with pytest.raises(ConfigError, match=r"train\.lr"):
        check_search(recipe, parse_space(["train.lrr=1e-5..1e-3"]))
    with pytest.raises(ConfigError, match="n_layers"):
        check_search(recipe, parse_space(["model.n_layers=1,many"]))
    with pytest.raises(ConfigError, match=r"eval\.every"):
        check_search(recipe.override(["eval.every=0"]), parse_space(["train.lr=1e-5..1e-3"]))
    with pytest.raises(ConfigError, match=r"all have one eval\.every; use --set"):
        check_search(recipe, parse_space(["eval.every=0,5"]))
    with pytest.raises(ConfigError, match="at least one"):
        parse_space([])


def test_the_best_trial_is_the_highest_that_finished() -> None:
    found = [
        TrialResult(0, "trial-0000", "complete", {"train.lr": 0.1}, 10, 3.0),
        TrialResult(1, "trial-0001", "pruned", {"train.lr": 0.2}, 5, 9.0),
        TrialResult(2, "trial-0002", "complete", {"train.lr": 0.3}, 10, 4.0),
    ]
    assert best(found) == found[2]
    assert best(found[1:2]) is None


def test_a_search_of_a_fine_tunes_recipe_is_refused_before_anything_starts() -> None:
    recipe = load_recipe("dt-hopper-medium").replace(agent_id="dt-mine", base="dt-hopper-medium")
    with pytest.raises(ConfigError, match="dt-mine fine-tunes 'dt-hopper-medium', but a search trains new networks"):
        check_search(recipe, parse_space(["train.lr=0.1,0.2"]))


def test_a_search_has_one_seed_of_any_size(tmp_path: Path) -> None:
    """The seed of optuna's numbers is below 2**32: 4300 * 1,000,003 is not."""
    recipe, space = load_recipe("dt-hopper-medium"), parse_space(["train.lr=1.0..2.0"])
    drawn = {}
    for seed in (0, 1, 4300):
        (one,) = search(
            recipe, space, tmp_path / str(seed), LocalEngine(1), trains_nothing, trials=1, pruner="none", seed=seed
        )
        drawn[seed] = one.settings["train.lr"]
    expected = {seed: 1.0 + np.random.RandomState(seed * 1_000_003 % 2**32).uniform() for seed in drawn}
    assert drawn == pytest.approx(expected)
    with pytest.raises(ConfigError, match="holds a search with another seed"):
        search(recipe, space, tmp_path / "0", LocalEngine(1), trains_nothing, trials=1, pruner="none", seed=1)


class Recorded:
    """Runs nothing: notes the values of each trial, and is done with it. `full`: how often there is no room."""

    def __init__(self, full: int = 0) -> None:
        self.tasks: list[Task] = []
        self.seen: list[tuple[float, float]] = []
        self.full, self.ticks = full, 0

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def free(self) -> int:
        self.full -= 1
        return 0 if self.full >= 0 else 1 - len(self.tasks)

    def running(self) -> list[Path]:
        return [task.folder for task in self.tasks]

    def start(self, job: Any, task: Task) -> None:
        made = Recipe.from_json(task.recipe, "")
        self.seen.append((made.train.lr, made.train.weight_decay))
        self.tasks.append(task)

    def stop(self, folder: Path) -> None:
        self.tasks = []

    def ended(self, seconds: float) -> list[Outcome]:
        self.ticks += 1
        done, self.tasks = self.tasks, []
        for task in done:
            start_log(task.folder, ["step", "eval_return"], 0)
            append_row(task.folder, ["step", "eval_return"], {"step": 10, "eval_return": 1.0})
        return [Outcome(task.folder, "done") for task in done]


TWO = ["train.lr=1e-5..1e-3:log", "train.weight_decay=0.1..0.2"]


def test_a_search_that_is_killed_between_two_values_of_a_trial_draws_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storages = pytest.importorskip("optuna").storages
    recipe, space = evaluated(small_recipe(), 10), parse_space(TWO)
    whole = Recorded()
    search(recipe, space, tmp_path / "whole", whole, run_task, trials=3)
    assert len(set(whole.seen)) == 3
    store, stored = storages.JournalStorage.set_trial_param, []

    def killed(*given: Any) -> None:
        stored.append(given)
        if len(stored) == 4:  # the second value of the second trial
            raise SystemExit
        store(*given)

    monkeypatch.setattr(storages.JournalStorage, "set_trial_param", killed)
    first, rest = Recorded(), Recorded()
    with pytest.raises(SystemExit):
        search(recipe, space, tmp_path / "parts", first, run_task, trials=3)
    found = search(recipe, space, tmp_path / "parts", rest, run_task, trials=3)
    assert first.seen + rest.seen == whole.seen
    assert [one.state for one in found] == ["complete"] * 3


def test_a_search_and_a_grid_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster has none while its nodes are away, and no task to wait for."""
    pytest.importorskip("optuna")
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    recipe = evaluated(small_recipe(), 10)
    found = search(recipe, parse_space(TWO), tmp_path / "search", Recorded(full=3), run_task, trials=2)
    assert [one.state for one in found] == ["complete"] * 2
    assert waits == [0.5] * 3
    engine = Recorded(full=2)
    assert len(drive([Task(tmp_path / "run", recipe.to_json())], engine, run_task, seconds=0.25)) == 1
    assert waits[3:] == [0.25] * 2
    assert engine.ticks == 3


@pytest.mark.slow
def test_a_search_goes_on_where_it_was_and_draws_the_same_values(
    tiny_hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTZOO_CACHE", str(tmp_path / "cache"))
    settings = [*settings_for(tiny_hopper, 40), "eval.every=20", "eval.every_episodes=1"]
    recipe = load_recipe("dt-hopper-medium").override(settings)
    space = parse_space(["train.lr=1e-5..1e-2:log", "model.n_layers=1,2"])
    whole = search(recipe, space, tmp_path / "whole", LocalEngine(2), run_task, trials=2, pruner="none")
    assert [one.state for one in whole] == ["complete"] * 2
    assert all(one.updates == 40 and one.value is not None for one in whole)
    assert len({one.settings["train.lr"] for one in whole}) == 2
    assert json.loads((tmp_path / "whole" / "search-results.json").read_text())[1]["number"] == 1

    def stop(found: list[TrialResult]) -> None:
        if any(one.state == "complete" for one in found):
            raise KeyboardInterrupt

    parts = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        search(recipe, space, parts, LocalEngine(1), run_task, trials=2, pruner="none", on_change=stop)
    again = search(recipe, space, parts, LocalEngine(1), run_task, trials=2, pruner="none")
    assert [(one.settings, one.value) for one in again] == [(one.settings, one.value) for one in whole]
    with pytest.raises(ConfigError, match="another space"):
        search(recipe, parse_space(["train.lr=0.1,0.2"]), parts, LocalEngine(1), run_task, trials=2, pruner="none")
    with pytest.raises(ConfigError, match="holds a search for dt-hopper-medium, not for dt-mine"):
        search(recipe.replace(agent_id="dt-mine"), space, parts, LocalEngine(1), run_task, trials=2, pruner="none")

    # without its journal the folders of the old trials stay, but none counts for another trial
    (parts / "search.journal").unlink()
    other = parse_space(["train.lr=0.1,0.2"])
    with pytest.raises(TrainingError, match=r"trial-0000 holds a run .* with another recipe \(.*train.lr"):
        search(recipe, other, parts, LocalEngine(1), run_task, trials=1, pruner="none")


def test_values_that_do_not_fit_together_are_a_failed_trial(tmp_path: Path) -> None:
    recipe = load_recipe("dt-hopper-medium").override(["model.embed_dim=16", "model.n_heads=4", "eval.every=5"])
    space = parse_space(["model.embed_dim=16..32"])
    check_search(recipe, space)  # both ends fit
    found = search(recipe, space, tmp_path, LocalEngine(1), trains_nothing, trials=5, pruner="none")
    impossible = [one for one in found if one.settings["model.embed_dim"] % 4]
    assert len(found) == 5
    assert impossible
    assert all("n_heads 4 must divide embed_dim" in one.error for one in impossible)
    assert {one.error for one in found if one not in impossible} <= {"it made no short evaluation"}
    again = search(recipe, space, tmp_path, LocalEngine(1), trains_nothing, trials=5, pruner="none")
    assert again[:5] == found
    assert len(again) == 10  # none of the first five was measured


def trains_nothing(task: Task, on_step: Callable[[int], None]) -> None:
    """A job."""


def is_poor_but_first(task: Task, on_step: Callable[[int], None]) -> None:
    """A job whose short evaluation returns 1 in the first trial and 0 in the others, which then go on for long."""
    columns = [*log.COLUMNS, "eval_return", "eval_score"]
    task.folder.mkdir(parents=True, exist_ok=True)
    first = not any(task.folder.parent.glob("*/training_log.csv"))
    log.start_log(task.folder, columns, 0)
    log.append_row(task.folder, columns, {"step": 20, "eval_return": 1.0 if first else 0.0, "seconds": 1.0})
    if not first:
        time.sleep(120.0)


def test_a_trial_below_the_best_third_is_stopped(tmp_path: Path) -> None:
    recipe = load_recipe("dt-hopper-medium").override(["train.steps=60", "eval.every=20"])
    began = time.monotonic()
    found = search(recipe, parse_space(["train.lr=1e-5..1e-3"]), tmp_path, LocalEngine(1), is_poor_but_first, trials=3)
    assert [one.state for one in found] == ["complete", "pruned", "pruned"]
    assert [one.value for one in found] == [1.0, 0.0, 0.0]
    assert time.monotonic() - began < 100.0  # their processes were ended


@pytest.mark.slow
def test_poor_trials_are_stopped_early_on_the_command_line(
    tiny_hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a time, so that the first trial is there to compare with; with a third kept, most others are pruned."""
    monkeypatch.setenv("AGENTZOO_CACHE", str(tmp_path / "cache"))
    words = ["search", "dt-hopper-medium", "--trials", "4", "--jobs", "1", "--cpus-per-run", "1", "--json"]
    words += ["--space", "train.lr=1e-6..1e-2:log", "--out", str(tmp_path / "search")]
    for setting in (*settings_for(tiny_hopper, 60), "eval.every=20", "eval.every_episodes=1"):
        words += ["--set", setting]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {one["state"] for one in found} <= {"complete", "pruned"}
    assert len(found) == 4
    assert "agentzoo train dt-hopper-medium --set model.embed_dim=8 " in result.stderr
    assert "--set eval.every_episodes=1 --set train.lr=" in result.stderr


@pytest.mark.slow
def test_a_search_succeeds_once_it_has_its_trials_however_many_failed(
    tiny_hopper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 14 draws 10 and then 8, and four heads must divide it."""
    monkeypatch.setenv("AGENTZOO_CACHE", str(tmp_path / "cache"))
    words = ["search", "dt-hopper-medium", "--trials", "1", "--jobs", "1", "--cpus-per-run", "1", "--json"]
    words += ["--space", "model.embed_dim=8..16", "--seed", "14", "--out", str(tmp_path / "search")]
    for setting in (*settings_for(tiny_hopper, 20)[1:], "model.n_heads=4", "eval.every=20", "eval.every_episodes=1"):
        words += ["--set", setting]
    for status, states in ((1, ["fail"]), (0, ["fail", "complete"]), (0, ["fail", "complete"])):
        result = CliRunner().invoke(app, words)
        assert [one["state"] for one in json.loads(result.stdout)] == states
        assert result.exit_code == status


def test_a_field_is_fixed_or_searched(tmp_path: Path) -> None:
    words = ["search", "dt-hopper-medium", "--out", str(tmp_path / "search"), "--space", "train.lr=0.1,0.2"]
    found = CliRunner().invoke(app, [*words, "--set", "train.steps=9", "--set", "train.lr=0.3"])
    assert str(found.exception) == "--set and --space both name train.lr, which trials take from --space."
    assert not (tmp_path / "search").exists()
