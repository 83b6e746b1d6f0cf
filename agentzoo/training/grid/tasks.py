"""One run of a grid in its own process: its log, its lock, and a record of its failure."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from agentzoo.errors import AgentzooError
from agentzoo.store.files import write_atomic
from agentzoo.training.lock import GRID_LOCK as GRID_LOCK
from agentzoo.training.lock import held
from agentzoo.training.tracking import Tracking
from agentzoo.types import Config

RUN_LOG = "run.log"
FAILURE = "failure.json"
LINES = 8  # of a failed run's log that are shown


@dataclass(frozen=True)
class RunOptions:
    """How all runs of a grid train.

    threads: CPU threads. device, cuda_graph: as `training.loop.train`. trust_env_module: import the module that an
    environment id names. trust_env_options: accept any option of an environment. tracking: trackers; a run is named as
    its folder.
    """

    threads: int = 1
    device: str | None = "cpu"
    trust_env_module: bool = False
    trust_env_options: bool = False
    tracking: Tracking = field(default_factory=Tracking)
    cuda_graph: bool = False


@dataclass(frozen=True)
class Task:
    """The task of a process; it is pickled.

    folder: the run's absolute path. recipe: JSON. evaluate: episodes to evaluate the finished run on, 0 for none.
    """

    folder: Path
    recipe: str
    evaluate: int = 0
    options: RunOptions = field(default_factory=RunOptions)


# Called with the task and a callback for the number of updates done; its errors are recorded. It must be a module-level
# function, so that another process can import it.
Job = Callable[[Task, Callable[[int], None]], None]


class Outcome(NamedTuple):
    """The end of a task. `lost`: it was killed from outside, so another attempt may succeed."""

    folder: Path
    state: Literal["done", "failed", "lost"]
    said: str = ""


class Failure(Config):
    """`failure.json`: why a run of a grid failed; deleted when it is started again."""

    error: str
    lines: tuple[str, ...]  # the last of its log
    time: float  # seconds since 1970


def work(job: Job, task: Task, on_step: Callable[[int], None] = lambda _: None) -> Outcome:
    """Run a task in this process. All output goes to the run's log, an error into `failure.json`."""
    task.folder.mkdir(parents=True, exist_ok=True)
    try:
        with held(task.folder, GRID_LOCK), _output_to(task.folder / RUN_LOG):
            forget_failure(task.folder)
            try:
                job(task, on_step)
            except AgentzooError as error:
                print(f"error: {error}", file=sys.stderr)
                return fail(task.folder, str(error))
            except Exception as error:
                traceback.print_exc()
                return fail(task.folder, f"{type(error).__name__}: {error}")
    except AgentzooError as error:  # another grid has the folder, or it cannot be written to
        return Outcome(task.folder, "failed", str(error))
    return Outcome(task.folder, "done")


def fail(folder: Path, error: str) -> Outcome:
    """Record that a run failed."""
    sys.stderr.flush()
    record = Failure(error=error[:2_000], lines=tuple(last_lines(folder)), time=time.time())
    write_atomic(folder / FAILURE, record.to_json())
    return Outcome(folder, "failed", error)


def last_lines(folder: Path, count: int = LINES) -> list[str]:
    """The last lines of a run's log; empty if there is none."""
    try:
        with (folder / RUN_LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 20_000))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line[:300] for line in text.splitlines() if line.strip()][-count:]


def read_failure(folder: Path) -> Failure | None:
    """The failure of a run; None if it has not failed."""
    path = folder / FAILURE
    try:
        return Failure.from_json(path.read_text(), str(path))
    except (OSError, AgentzooError):
        return None


def forget_failure(folder: Path) -> None:
    """Delete a run's failure record. A stopped run may leave one, since pydantic turns the interrupt into an error."""
    (folder / FAILURE).unlink(missing_ok=True)


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Append standard output and error of this process, also those of C code, to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    streams = sys.stdout, sys.stderr
    with path.open("a", buffering=1) as file:
        try:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
            sys.stdout = sys.stderr = file
            yield
        finally:
            sys.stdout, sys.stderr = streams
            file.flush()
            for descriptor, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)
