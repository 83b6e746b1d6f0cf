"""Handing the rows of a plan to an engine until none is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from agentzoo.errors import TrainingError
from agentzoo.training.grid.tasks import Job, Outcome, Task
from agentzoo.training.lock import held, holder

DRIVER_LOCK = "grid-driver.lock"


class Engine(AbstractContextManager["Engine"], Protocol):
    """What runs tasks. Leaving it stops those that run; their folders keep their last checkpoints."""

    def free(self) -> int:
        """How many tasks can be started now."""

    def running(self) -> list[Path]:
        """Folders of the tasks that were started and have not ended."""

    def start(self, job: Job, task: Task) -> None:
        """Begin a task."""

    def stop(self, folder: Path) -> None:
        """End a task before its time; it gets no outcome."""

    def ended(self, seconds: float) -> list[Outcome]:
        """What ended since the last call; waits at most `seconds` for something to end."""


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
    """Do all tasks, in this order as far as there is room; one that fails does not stop the others.

    Args:
        on_tick: is given the folders of the running tasks, every `seconds`.

    Returns:
        How each ended, in the order in which they did.
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
            on_tick(engine.running())
    return outcomes


def only_driver(out: Path) -> AbstractContextManager[None]:
    """The lock on a grid's folder: a second driver there is refused.

    Raises:
        TrainingError: another process drives a grid there.
    """
    who = holder(out, DRIVER_LOCK)
    if who is not None:
        raise TrainingError(
            f"process {who} works through a grid in {out}. Wait for it, stop it, or choose another --out; "
            f"`agentzoo grid status {out}` shows how far it is."
        )
    return held(out, DRIVER_LOCK)
