"""The work of each run of a grid, and the results of a finished grid: table, JSON, CSV, picture, staged agents."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from agentzoo.data.making.provide import check_provided, provide
from agentzoo.data.mapped import MappedEpisodes, map_dataset
from agentzoo.envs.env_options import trusting_env_options
from agentzoo.errors import AgentzooError, ConfigError
from agentzoo.evaluation.during import check_environment, train_in
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.study import Study, write_study
from agentzoo.hub.finished_runs import measured
from agentzoo.hub.place import require_free_place
from agentzoo.hub.stage import stage
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.research.studies.comparison import PICTURE, as_study, compare, draw_comparison
from agentzoo.store.files import RECIPE, RESULT, write_atomic
from agentzoo.text import counted
from agentzoo.training.grid.local import cores
from agentzoo.training.grid.plan import Plan, Row
from agentzoo.training.grid.status import grid_status, is_done
from agentzoo.training.grid.tasks import RunOptions, Task, last_lines
from agentzoo.training.hooks import Hooks
from agentzoo.training.machine import processor
from agentzoo.training.settle import claim

RESULTS_JSON = "grid-results.json"
RESULTS_CSV = "grid-results.csv"
MEASURED = ("mean_return", "return_low", "return_high", "score", "score_low", "score_high", "episodes")


def run_task(task: Task, on_step: Callable[[int], None] = lambda _: None) -> None:
    """Train or resume a run, then evaluate it; finished parts are skipped.

    A missing dataset that can be built is built first, by one of the runs of a machine.

    Raises:
        AgentzooError: as `claim`, `train_in`, `provide`, `map_dataset` and `measured`.
    """
    with trusting_env_options() if task.options.trust_env_options else nullcontext():
        _run_task(task, task.options, on_step)


def _run_task(task: Task, options: RunOptions, on_step: Callable[[int], None]) -> None:
    torch.set_num_threads(options.threads)
    recipe = Recipe.from_json(task.recipe, str(task.folder))
    claim(task.folder, recipe)  # also a finished run must be of this recipe
    if not is_done(task.folder):
        if provide(recipe.data.dataset):
            print(f"built {recipe.data.dataset}", file=sys.stderr)
        episodes = map_dataset(recipe.data.dataset, recipe.data.obs_keys)
        check_environment(recipe, episodes, options.trust_env_module)
        train_in(
            task.folder,
            recipe,
            episodes,
            hooks=Hooks(on_step=on_step),
            trackers=replace(options.tracking, run_name=task.folder.name),
            device=options.device,
            cuda_graph=options.cuda_graph,
            trust_env_module=options.trust_env_module,
        )
        print(f"trained {recipe.train.steps:,} updates", file=sys.stderr)
    if task.evaluate:
        found = measured(
            task.folder,
            task.evaluate,
            trust_env_module=options.trust_env_module,
            or_more=True,
            device=options.device or "auto",
        )
        print(f"return {found.return_in_words()} over {found.episodes} episodes", file=sys.stderr)


def tasks_of(out: Path, plan: Plan, options: RunOptions | None = None) -> list[Task]:
    """The unfinished runs of a plan, highest priority first."""
    return [
        Task((out / row.folder).resolve(), row.recipe.to_json(), plan.evaluate, options or RunOptions())
        for row in plan.in_order()
        if not is_done(out / row.folder, plan.evaluate)
    ]


def check_datasets(plan: Plan) -> None:
    """Raise if a dataset of the plan is missing and cannot be built (`check_provided`)."""
    for dataset in dict.fromkeys(row.recipe.data.dataset for row in plan.rows):
        check_provided(dataset)


def map_datasets(plan: Plan, on_progress: Callable[[str], None] = lambda _: None) -> None:
    """Build missing datasets and make the mapped files of all datasets of a plan, before anything starts.

    Raises:
        AgentzooError: as `read_dataset`.
    """
    for dataset, keys in dict.fromkeys((row.recipe.data.dataset, row.recipe.data.obs_keys) for row in plan.rows):
        read_dataset(dataset, keys, on_progress)


def read_dataset(
    dataset: str, obs_keys: tuple[str, ...] | None, on_progress: Callable[[str], None] = lambda _: None
) -> MappedEpisodes:
    """A dataset from its mapped files; a missing one is built first, with all cores.

    Raises:
        AgentzooError: as `provide` and `map_dataset`.
    """

    def building(done: int, steps: int | None) -> None:
        on_progress(f"building {dataset}: {done:,}{f' of {steps:,}' if steps else ''} steps")

    provide(dataset, cores(), building)
    on_progress(f"reading {dataset}")
    return map_dataset(dataset, obs_keys)


class GridSummary(NamedTuple):
    """The result of `summarize`: a row per run, the comparison (None without evaluated runs), and notes."""

    rows: list[dict[str, Any]]
    study: Study | None
    remark: str


def summarize(out: Path, plan: Plan, trust_env_module: bool = False) -> GridSummary:
    """Write `grid-results.json` and `.csv`, and the comparison of all measured runs (`study.json` and its picture)."""
    rows = [_row(out, row, plan) for row in plan.rows]
    write_atomic(out / RESULTS_JSON, json.dumps(rows, indent=2) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [name for name in rows[0] if name != "log"], lineterminator="\n", extrasaction="ignore"
    )
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(out / RESULTS_CSV, text.getvalue())
    finished = [out / row["folder"] for row in rows if row["state"] == "done"]
    if not plan.evaluate or not finished:
        return GridSummary(rows, None, "no run was measured: --evaluate N does." if finished else "no run is finished.")
    try:
        compared = compare(finished, plan.evaluate, trust_env_module=trust_env_module)
        study = as_study(compared, f"Grid of {len(plan.rows)} runs", None)
        try:
            draw_comparison(compared, out / PICTURE)
            study = study.model_copy(update={"picture": PICTURE})
            remark = ""
        except ConfigError as error:  # no matplotlib
            remark = f"no picture: {error}"
        write_study(study, out)
    except AgentzooError as error:
        return GridSummary(rows, None, f"no comparison: {error}")
    return GridSummary(rows, study, remark)


def _row(out: Path, row: Row, plan: Plan) -> dict[str, Any]:
    (status,) = grid_status(out, Plan(rows=(row,), evaluate=plan.evaluate), running=())
    found: dict[str, Any] = {
        "folder": row.folder,
        "agent_id": status.agent_id,
        "seed": status.seed,
        "state": status.state,
        "updates": status.step,
        "steps_per_second": status.steps_per_second,
        "seconds": status.seconds,
        "loss": status.loss,
        "short_evaluation": status.score,
        **dict.fromkeys(MEASURED),
        "error": status.error,
        "log": last_lines(out / row.folder) if status.state == "failed" else [],
    }
    if status.state == "done" and plan.evaluate:
        result = Result.from_json((out / row.folder / RESULT).read_text(), RESULT)
        low, high = result.score_interval or (None, None)
        figures = (result.mean_return, *result.return_interval, result.score, low, high, result.episodes)
        found |= dict(zip(MEASURED, figures, strict=True))
    return found


def staging_groups(plan: Plan) -> dict[str, list[Row]]:
    """Agent id -> its seeds, the first of which is staged.

    Raises:
        ConfigError: two recipes of the grid have the same agent id, and so the same folder in the zoo.
    """
    groups: dict[str, list[Row]] = {}
    for row in plan.rows:
        group = groups.setdefault(row.recipe.agent_id, [])
        if group and group[0].recipe.unseeded() != row.recipe.unseeded():
            raise ConfigError(
                f"{group[0].folder} and {row.folder} are both {row.recipe.agent_id!r} with different settings; only "
                "one can be staged. Set agent_id of one, or omit --stage."
            )
        group.append(row)
    return groups


def check_staging(plan: Plan, zoo: Path) -> None:
    """Raise if an agent of the plan cannot be staged into `zoo`, before it is trained.

    Raises:
        ConfigError: as `staging_groups`. CheckpointError, StorageError: as `require_free_place`.
    """
    for agent_id, rows in staging_groups(plan).items():
        require_free_place(rows[0].recipe, zoo / agent_id)


class Staged(NamedTuple):
    """A staged agent's folder, or the reason why there is none."""

    agent_id: str
    folder: Path | None
    said: str = ""


def stage_finished(
    out: Path,
    plan: Plan,
    zoo: Path,
    trust_env_module: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[Staged]:
    """Stage each agent whose seeds are all done: the first as the agent, the others as its seeds."""
    staged = []
    for agent_id, rows in staging_groups(plan).items():
        folders = [out / row.folder for row in rows]
        left = [folder.name for folder in folders if not is_done(folder)]
        if left:
            staged.append(Staged(agent_id, None, f"not done: {', '.join(left)}"))
            continue
        on_progress(f"staging {agent_id}")
        first, *others = folders
        try:
            made = stage(
                first,
                zoo,
                hardware(first),
                seeds=others,
                trust_env_module=trust_env_module,
                on_progress=lambda line, agent_id=agent_id: on_progress(f"staging {agent_id}: {line}"),  # type: ignore[misc]
            )
        except AgentzooError as error:  # the others are still staged
            staged.append(Staged(agent_id, None, str(error)))
        else:
            staged.append(Staged(agent_id, made))
    return staged


def hardware(run: Path) -> str:
    """The devices of a run's last updates, for a card: "1 thread of AMD EPYC", "NVIDIA H200"."""
    ran = read_record(Recipe, run / RECIPE).ran
    if not ran:
        return processor()
    names = ", ".join(device.partition("(")[2].removesuffix(")") or device for device in ran[-1].devices)
    on_cpu = all(device.startswith("cpu") for device in ran[-1].devices)
    return f"{counted(ran[-1].threads, 'thread')} of {names}" if on_cpu else names
