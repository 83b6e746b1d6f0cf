"""Grids of runs: the throughput of two cores, the overhead of Ray, and the memory of eight runs.

Runs are `dt-hopper-medium`'s network on random numbers of the size of hopper/medium, without evaluations. The peer of
a grid is the same grid with one run at a time; that of Ray is the local engine; that of eight runs is one run.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

from agentzoo.data.mapped import MappedEpisodes, footprint, write_mapped
from agentzoo.recipe import Recipe, load_recipe
from agentzoo.research.bench import PUBLISHED, Figure, compare
from agentzoo.research.bench_sizes import random_episodes
from agentzoo.training.grid.drive import Engine, drive
from agentzoo.training.grid.local import LocalEngine
from agentzoo.training.grid.tasks import Task
from agentzoo.training.hooks import Hooks
from agentzoo.training.log import read_log
from agentzoo.training.loop import train
from agentzoo.training.run import ERRORS_EVERY

AGENT_ID = "dt-hopper-medium"
DATA = "data"  # folder of the mapped files, beside the runs' folders
RUNS = 4
STEPS = 150  # updates of a short run
MANY = 8  # runs whose memory is measured
EPISODES, LENGTH = 1_000, 500


def run(runs: int) -> list[Figure]:
    """`4 runs on 2 cores` and `a run on Ray` in milliseconds, timed `runs // 20` times, at least once; memory in MB."""
    repeats = max(1, runs // 20)
    with tempfile.TemporaryDirectory(prefix="agentzoo-bench-") as root:
        folder = Path(root)
        write_mapped(random_episodes(EPISODES, LENGTH), folder / DATA)
        figures = [
            compare(
                f"{RUNS} runs on 2 cores",
                _grid(folder, STEPS, lambda: LocalEngine(2)),
                _grid(folder, STEPS, lambda: LocalEngine(1)),
                repeats,
            )
        ]
        if importlib.util.find_spec("ray") is not None:
            figures += _ray(folder, repeats)
        one, many = (_memory(folder, count) for count in (1, MANY))
        figures += [
            Figure(f"dataset in memory, {MANY} runs against 1", many.data, one.data, many.data / one.data, "MB"),
            Figure(f"all memory, {MANY} runs against 1", many.total, one.total, many.total / one.total, "MB"),
        ]
    return figures


def train_task(task: Task, on_step: Callable[[int], None] = lambda _: None) -> None:
    """A run on the mapped files beside it; the job of this benchmark."""
    torch.set_num_threads(task.options.threads)
    recipe = Recipe.from_json(task.recipe, str(task.folder))
    episodes = MappedEpisodes.open(task.folder.parent / DATA)
    train(recipe, task.folder, episodes, hooks=Hooks(on_step=on_step), device="cpu")


def _tasks(folder: Path, steps: int, count: int, log_every: int = 5) -> list[Task]:
    """Runs of this many updates in new folders."""
    settings = [
        *PUBLISHED,
        f"train.steps={steps}",
        "train.warmup_steps=0",
        "eval.every=0",
        f"train.log_every={log_every}",
    ]
    recipe = load_recipe(AGENT_ID).override(settings)
    made = Path(tempfile.mkdtemp(dir=folder))
    (made / DATA).symlink_to(folder / DATA)
    return [Task(made / f"s{seed}", recipe.override([f"train.seed={seed}"]).to_json()) for seed in range(count)]


def _grid(folder: Path, steps: int, engine: Callable[[], Engine]) -> Callable[[], object]:
    def work() -> None:
        outcomes = drive(_tasks(folder, steps, RUNS), engine(), train_task, seconds=0.05)
        failed = [outcome.said for outcome in outcomes if outcome.state != "done"]
        assert not failed, failed

    return work


def _ray(folder: Path, repeats: int) -> list[Figure]:
    """Runs of one update, to time the overhead of an engine; Ray's workers have run before."""
    from agentzoo.training.grid.cluster import RayEngine

    with RayEngine(folder, jobs=2) as engine:

        def on(chosen: Engine) -> Callable[[], object]:
            def work() -> None:
                waiting = _tasks(folder, 1, RUNS)
                ended = 0
                while ended < RUNS:
                    while waiting and chosen.free() > 0:
                        chosen.start(train_task, waiting.pop(0))
                    ended += len(chosen.ended(0.05))

            return work

        with LocalEngine(2) as local:
            figure = compare("a run of 1 update on Ray", on(engine), on(local), max(3, repeats), scale=1.0 / RUNS)
    return [figure]


class _Memory(NamedTuple):
    """Memory of all processes of a grid except the driver, in MB, with every page counted once."""

    data: float  # of the dataset's files
    total: float


def _memory(folder: Path, count: int) -> _Memory:
    tasks = _tasks(folder, 1_000_000, count, log_every=1)
    with LocalEngine(count) as engine:
        for task in tasks:
            engine.start(train_task, task)
        while not all(len(read_log(task.folder)) > ERRORS_EVERY for task in tasks):  # errors take memory, too
            time.sleep(0.1)
        workers = [process for task in tasks if (process := engine.process_of(task.folder))]
        data = sum(footprint(worker, folder / DATA).proportional for worker in workers)
        total = sum(each.memory_full_info().pss for each in psutil.Process().children(recursive=True))
    return _Memory(data / 1e6, total / 1e6)
