"""Runs as processes of this machine, forked from one parent that has imported everything.

The parent (multiprocessing's fork server) imports PyTorch and the job's modules once. A run starts quickly and shares
the parent's memory pages until it changes them. Datasets are mapped files (`data.mapped`), which all runs share.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from agentzoo.errors import ConfigError
from agentzoo.parent import end_with_parent
from agentzoo.training.grid.tasks import Job, Outcome, Task, fail, forget_failure, work

WARM = "agentzoo.training.grid.warm"
GRACE = 10.0  # seconds for a stopped run to release its lock before it is killed
FAILED = 3  # exit code of a run that raised and sent the error
STOPPED = 130  # exit code of a run that was stopped
KILLED = 9  # SIGKILL, which the kernel sends when memory runs out


class _Running(NamedTuple):
    process: BaseProcess
    said: connection.Connection  # gives the error of a failed run
    job: Job
    task: Task
    gpu: int | None
    attempt: int


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """At most `jobs` runs side by side, each in its own process."""

    def __init__(self, jobs: int, gpus_per_run: float = 0.0, retries: int = 2) -> None:
        """
        Args:
            jobs: runs side by side; fewer if fewer fit on the GPUs.
            gpus_per_run: share of a GPU; 0 for none.
            retries: how often a run is started again after it was killed from outside.

        Raises:
            ConfigError: a run needs a GPU and there is none, or it needs more than one.
        """
        self._running: dict[Path, _Running] = {}
        self._room = _gpu_room(gpus_per_run)
        self.jobs = jobs if self._room is None else min(jobs, sum(self._room))
        self.retries = retries
        self._context: Any = None

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        _stop(self._running.values())
        self._running.clear()

    def free(self) -> int:
        """The number of tasks that can start now."""
        return self.jobs - len(self._running)

    def running(self) -> list[Path]:
        """Folders of the tasks that run."""
        return list(self._running)

    def start(self, job: Job, task: Task) -> None:
        """Start a task in a new process."""
        gpu = None
        if self._room is not None:
            gpu = next(i for i, room in enumerate(self._room) if room > 0)
            self._room[gpu] -= 1
        self._start(job, task, gpu, 1)

    def stop(self, folder: Path) -> None:
        """Stop a task; it gets no outcome."""
        found = self._running.pop(folder, None)
        if found is not None:
            _stop([found])
            self._give_back(found.gpu)

    def ended(self, seconds: float) -> list[Outcome]:
        """Outcomes since the last call; waits at most `seconds` for one."""
        if not self._running:
            return []
        connection.wait([each.process.sentinel for each in self._running.values()], seconds)
        outcomes = []
        for folder, each in list(self._running.items()):
            if each.process.is_alive():
                continue
            each.process.join()
            del self._running[folder]
            outcome = self._outcome(each)
            if outcome is None:
                self._start(each.job, each.task, each.gpu, each.attempt + 1)
            else:
                self._give_back(each.gpu)
                outcomes.append(outcome)
        return outcomes

    def process_of(self, folder: Path) -> int | None:
        """The process id of a running task."""
        found = self._running.get(folder)
        return None if found is None else found.process.pid

    def _start(self, job: Job, task: Task, gpu: int | None, attempt: int) -> None:
        environment = dict(os.environ)
        if gpu is not None:
            visible = environment.get("CUDA_VISIBLE_DEVICES")
            environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[gpu] if visible else str(gpu)
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = str(task.options.threads)
        context = self._processes(job)
        said, says = context.Pipe(duplex=False)
        process = context.Process(target=_main, args=(job, task, environment, says), name=task.folder.name)
        with _without_main():
            process.start()
        says.close()
        self._running[task.folder] = _Running(process, said, job, task, gpu, attempt)

    def _processes(self, job: Job) -> Any:
        if self._context is None:
            method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
            self._context = multiprocessing.get_context(method)
            if method == "forkserver":
                self._context.set_forkserver_preload([job.__module__, WARM])
        return self._context

    def _outcome(self, each: _Running) -> Outcome | None:
        """The outcome of a process; None if it is started again."""
        code, folder = each.process.exitcode, each.task.folder
        if code == 0:
            return Outcome(folder, "done")
        if code == FAILED:
            return Outcome(folder, "failed", each.said.recv())
        if each.attempt <= self.retries:
            return None
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        hint = " (out of memory?)" if code == -KILLED else ""
        return fail(folder, f"its process was ended {how}{hint}, {each.attempt} times")._replace(state="lost")

    def _give_back(self, gpu: int | None) -> None:
        if self._room is not None and gpu is not None:
            self._room[gpu] += 1


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Inside the block new processes do not import this process's script.

    They find a job by its module's name, and a script without a `__main__` guard would start its grid again in every
    run.
    """
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    main.__spec__ = None
    if "__file__" in kept:
        del main.__file__
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(main, name, value)


def _gpu_room(share: float) -> list[int] | None:
    """The number of runs that fit on each GPU; None if runs need none."""
    if share <= 0.0:
        return None
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        raise ConfigError(f"a run needs {share:g} of a GPU, but PyTorch finds none here; omit --gpus-per-run.")
    if share > 1.0:
        raise ConfigError(f"a run of a local grid uses at most one GPU, got --gpus-per-run {share:g}.")
    return [int(1.0 / share + 1e-9)] * count


def _stop(runs: Iterable[_Running]) -> None:
    """End what still runs, without a record of failure."""
    alive = [each for each in runs if each.process.is_alive()]
    for each in alive:
        each.process.terminate()
    for each in alive:
        each.process.join(GRACE)
        if each.process.is_alive():
            each.process.kill()
            each.process.join()
        forget_failure(each.task.folder)


def _main(job: Job, task: Task, environment: dict[str, str], says: Any) -> None:
    """The function that a run's process runs. Ctrl-C only reaches the driver, which then ends this process.

    Args:
        says: a connection that gets the error of a failed run.
    """
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    end_with_parent(STOPPED)  # else it would keep its folder locked after the driver was killed
    try:
        outcome = work(job, task)
    except KeyboardInterrupt:
        os._exit(STOPPED)
    if outcome.state != "done":
        says.send(outcome.said)
        raise SystemExit(FAILED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
