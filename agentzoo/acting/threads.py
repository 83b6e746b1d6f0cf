"""The number of CPU threads: one per free core, and a single one for a few windows.

Two PyTorch threads on one free core wait for each other at every operation: a training step of 240 ms takes 2,600 ms,
an action of 1 ms takes 15. Settings of the user take precedence: `OMP_NUM_THREADS`, `MKL_NUM_THREADS`,
`torch.set_num_threads`, `--threads`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
HANDFUL = 8  # windows: up to this many, one thread is as fast and does not wait for a busy core
LOOK = 0.1  # seconds during which the load of the cores is measured

_chosen: int | None = None  # what `use_free_cores` set last


def allowed_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Cores this process may use: its affinity mask, limited by the CPU quota of its control group.

    Args:
        cgroup: folder of the control group's files; version 2 has `cpu.max`, version 1 `cpu/cpu.cfs_quota_us`.

    Returns:
        A positive number, possibly below 1: a quota may be half a core.
    """
    return min(float(len(_affinity())), _quota(cgroup))


def free_cores() -> int:
    """The smaller of `allowed_cores` and the idle cores (measured for 0.1 s), at least 1."""
    allowed = allowed_cores()
    idle = len(_affinity()) - _busy(_affinity(), LOOK)
    return max(1, math.floor(min(allowed, idle) + 0.3))  # a core that is 30 % busy counts as free


def set_by_user() -> bool:
    """Whether the user set PyTorch's number of threads, by an environment variable or `torch.set_num_threads`.

    PyTorch's default, and a number that `use_free_cores` set, do not count.
    """
    if any(os.environ.get(name) for name in VARIABLES):
        return True
    return torch.get_num_threads() not in {_chosen, *_defaults()}


def use_free_cores(asked: int | None = None, processes: int = 1) -> int:
    """Set PyTorch's number of threads for training in this process.

    Args:
        asked: the user's number (`--threads`); None keeps another setting of the user, else takes the free cores.
        processes: how many processes of this run share the machine's cores.

    Returns:
        The number of threads now in use.
    """
    global _chosen
    if asked is not None:
        torch.set_num_threads(asked)
    elif not set_by_user():
        _chosen = max(1, free_cores() // processes)
        torch.set_num_threads(_chosen)
    return torch.get_num_threads()


@contextmanager
def few_threads(windows: int) -> Iterator[None]:
    """Use one thread inside the block if `windows` are few, unless the user set a number of threads."""
    before = torch.get_num_threads()
    if before == 1 or windows > HANDFUL or set_by_user():
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


@cache
def _defaults() -> set[int]:
    """Default thread counts of PyTorch on this machine: its CPUs, or its physical cores."""
    cpus = os.cpu_count() or 1
    return {len(_affinity()), cpus, max(cpus // 2, 1)} - {1} if cpus > 1 else {1}


def _quota(cgroup: Path) -> float:
    """CPU quota of the control group in cores; infinite without a limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    try:
        allowed = float(quota) / float(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return math.inf
    return allowed if allowed > 0 else math.inf


def _busy(cores: set[int], seconds: float) -> float:
    """How many of `cores` are busy, measured for `seconds`; 0 where the system does not report it."""
    first = _ticks(cores)
    time.sleep(seconds)
    second = _ticks(cores)
    busy = 0.0
    for core, (idle, total) in second.items():
        elapsed = total - first[core][1] if core in first else 0
        if elapsed > 0:
            busy += 1.0 - (idle - first[core][0]) / elapsed
    return busy


def _ticks(cores: set[int]) -> dict[int, tuple[int, int]]:
    """Core -> (idle ticks, all ticks) since the machine started."""
    found = {}
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        name, *numbers = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cores:
            ticks = [int(number) for number in numbers[:8]]  # guest time is in user time already
            found[int(name[3:])] = (ticks[3] + ticks[4], sum(ticks))
    return found
