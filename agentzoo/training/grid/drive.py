"""Gives the rows of a plan to an engine until none is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from agentzoo.errors import TrainingError
from agentzoo.training.grid.tasks import Job, Outcome, Task
from agentzoo.training.lock import held, holder

DRIVER_LOCK = "grid-driver.lock"


class Engine(AbstractContextManager["Engine"], Protocol):
    """Runs tasks. Leaving the context stops running tasks; their folders keep their last checkpoints."""

    def free(self) -> int:
        """The number of tasks that can start now."""

    def running(self) -> list[Path]:
        """Folders of the tasks that have started and not ended."""

    def start(self, job: Job, task: Task) -> None:
        """Start a task."""

    def stop(self, folder: Path) -> None:
        """Stop a task; it gets no outcome."""

    def ended(self, seconds: float) -> list[Outcome]:
        """Outcomes since the last call; waits at most `seconds` for one."""


def drive(
    tasks: Sequence[Task],
    engine: Engine,
    job: Job,
    *,
    on_start: Callable[[Task], None] = lambda _: None,
    on_end: Callable[[Outcome], None] = lambda _: None,
    on_tick: Callable[[list[Path]], None] = lambda _: None,
    seconds: float = 0.5,
) -> list[Outcome]:
    """Run all tasks in this order, as many at once as fit. A failed task does not stop the others.

    Args:
        on_tick: called every `seconds` with the folders of the running tasks.

    Returns:
        The outcomes in the order in which the tasks ended.
    """
    waiting, outcomes = list(tasks), []
    with engine:
        while waiting or engine.running():
            while waiting and engine.free() > 0:
                task = waiting.pop(0)
                engine.start(job, task)
                on_start(task)
            for outcome in engine.ended(seconds):
                outcomes.append(outcome)
                on_end(outcome)
            running = engine.running()
            on_tick(running)
            if waiting and not running:  # a cluster without room; `ended` waits only for tasks
                time.sleep(seconds)
    return outcomes


def only_driver(out: Path) -> AbstractContextManager[None]:
    """The lock on a grid's folder, for one driver.

    Raises:
        TrainingError: another process drives a grid in this folder.
    """
    who = holder(out, DRIVER_LOCK)
    if who is not None:
        raise TrainingError(
            f"process {who} runs a grid in {out}. Wait for it, stop it, or choose another --out; "
            f"`agentzoo grid status {out}` shows its progress."
        )
    return held(out, DRIVER_LOCK)
