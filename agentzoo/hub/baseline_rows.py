"""`agentzoo hub baselines`: add finished runs of simpler methods to `baselines.json` and to cards."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from agentzoo.errors import ConfigError
from agentzoo.evaluation.baselines import BASELINES, CLONE, add_row
from agentzoo.evaluation.results import Baseline, Result
from agentzoo.hub.card import write_card
from agentzoo.hub.finished_runs import headline, load_finished, measured, measured_as_staged
from agentzoo.recipe import Recipe, differences, load_recipe
from agentzoo.record import read_record
from agentzoo.registry import is_clone, recipe_table
from agentzoo.store.exclusive import exclusive, lock_beside, only_writer
from agentzoo.store.files import RECIPE, RESULTS, write_atomic
from agentzoo.store.locate import ZOO_VARIABLE, staged_in
from agentzoo.training import log
from agentzoo.types import Config

MAKING = "baseline.json"
EPISODES = 100  # in a headline result


class Making(Config):
    """`baseline.json` in a run's folder: its method, if it is not `bc`, and how it was trained."""

    method: Literal["bc", "td3+bc", "iql", "cql"]
    trained_with: Annotated[str, Field(max_length=500)]


def write_making(run: Path, making: Making) -> None:
    """Write the record into a run's folder."""
    write_atomic(run / MAKING, making.to_json())


def add_runs(
    runs: Sequence[Path],
    zoo: Path,
    *,
    trust_env_module: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[Baseline]:
    """Measure finished runs on the 100 headline episodes, add them to `zoo/baselines.json` and update the cards.

    A row replaces one of the same dataset, method and training seed. Results are stored in each run's folder, so a
    second call measures nothing. The row of a staged clone is its headline; other runs of bc, too, are measured with
    float16 weights, unless they have a `baseline.json`.

    Returns:
        The rows, in the order of `runs`.

    Raises:
        CheckpointError: a run is not finished. ConfigError: a run of another method without a `baseline.json`, or two
            runs of one dataset, method and training seed.
    """
    made = [(run, *_making(run, trust_env_module)) for run in runs]
    _require_distinct(made)
    path, found, datasets = zoo / BASELINES, [], set()
    try:
        for run, recipe, making in made:
            result = _measured(run, recipe, on_progress, trust_env_module)
            rows = log.read_log(run)
            updates = int(rows[-1]["step"]) if rows else recipe.train.steps
            row = Baseline(
                **dict(making),
                dataset_sha256=recipe.data.dataset_sha256,
                result=result.model_copy(update={"updates": updates}),
            )
            add_row(path, recipe.data.dataset, row)
            found.append(row)
            datasets.add(recipe.data.dataset)
    finally:  # the rows that are in the file stay there, also if a later run fails
        _write_cards(zoo, datasets, on_progress)
    return found


def _write_cards(zoo: Path, datasets: Container[str], on_progress: Callable[[str], None]) -> None:
    """Write the cards of all agents of these datasets again."""
    path = zoo / BASELINES
    with exclusive(lock_beside(path), ZOO_VARIABLE):  # no card of another process has fewer rows
        for folder in staged_in(zoo).values():
            if (folder / RESULTS).is_file() and read_record(Recipe, folder / RECIPE).data.dataset in datasets:
                on_progress(f"the card of {folder.name}")
                with only_writer(folder, wait=True):
                    write_card(folder, zoo=zoo)


def _measured(run: Path, recipe: Recipe, on_progress: Callable[[str], None], trust: bool) -> Result:
    if (run / RESULTS).is_file():
        return headline(run, EPISODES, on_progress, trust)
    if (run / MAKING).is_file():
        return measured(run, EPISODES, on_progress, trust)
    settings = recipe.eval.model_copy(update={"episodes": EPISODES})
    return measured_as_staged(run, settings, "float16", on_progress, trust)


def _require_distinct(made: Sequence[tuple[Path, Recipe, Making]]) -> None:
    seen: dict[tuple[str, str, int], Path] = {}
    for run, recipe, making in made:
        key = (recipe.data.dataset, making.method, recipe.train.seed)
        if key in seen:
            raise ConfigError(
                f"{seen[key]} and {run} are both {making.method} on {recipe.data.dataset} with training seed "
                f"{recipe.train.seed}, which has one row; name only one of them."
            )
        seen[key] = run


def _making(run: Path, trust: bool) -> tuple[Recipe, Making]:
    recipe = load_finished(run, trust).recipe
    assert recipe is not None
    if (run / MAKING).is_file():
        return recipe, read_record(Making, run / MAKING)
    if not is_clone(recipe.model.family):
        raise ConfigError(
            f"{run} is of family {recipe.model.family!r}; a baseline must be {CLONE!r} or have a {MAKING}."
        )
    packaged = load_recipe(recipe.agent_id) if recipe.agent_id in recipe_table() else None
    same = packaged is not None and not differences(packaged.unseeded(), recipe.unseeded())
    named = f"agentzoo train {recipe.agent_id}" if same else f"agentzoo train {RECIPE} (not the packaged recipe)"
    return recipe, Making(method="bc", trained_with=f"{named} --seed {recipe.train.seed}")
