"""Threads: as many as there are free cores, one for a handful of windows, and what the user set wins."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import make_agent

from agentzoo.acting import threads
from agentzoo.recipe import load_recipe
from agentzoo.research.bench import threads as benchmark


@pytest.fixture(autouse=True)
def unchosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a fresh process on four CPUs: PyTorch has its default of four threads, no variable is set."""
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_chosen", None)
    monkeypatch.setattr(threads, "_defaults", lambda: {4})
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({}, math.inf),
    ],
)
def test_a_control_group_limits_the_cores(files: dict[str, str], cores: float, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert threads.allowed_cores(tmp_path) == min(cores, threads.allowed_cores(tmp_path / "none"))


def test_one_core_of_affinity_is_one_thread() -> None:
    script = "from agentzoo.acting.threads import use_free_cores; print(use_free_cores())"
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        ["taskset", "-c", str(core), sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"


def test_a_busy_core_is_not_free() -> None:
    """A process that computes all the time on the one core this one may use; never less than one is free."""
    cores = sorted(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(busy.pid, {cores[0]})
        assert threads._busy({cores[0]}, 0.3) > 0.8
        assert 1 <= threads.free_cores() <= len(cores)
    finally:
        busy.kill()
        busy.wait()


def test_a_handful_of_windows_takes_one_thread_and_leaves_the_number_as_it_was() -> None:
    with threads.few_threads(threads.HANDFUL):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 4
    with threads.few_threads(threads.HANDFUL + 1):
        assert torch.get_num_threads() == 4


def test_what_the_user_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(3)
    with threads.few_threads(1):
        assert torch.get_num_threads() == 3
    assert threads.use_free_cores() == 3
    assert threads.use_free_cores(asked=2) == 2
    torch.set_num_threads(4)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    with threads.few_threads(1):
        assert torch.get_num_threads() == 4
    assert threads.use_free_cores() == 4


def test_a_training_takes_the_free_cores_and_shares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "free_cores", lambda: 3)
    assert threads.use_free_cores() == 3
    assert threads.use_free_cores(processes=2) == 1  # its own choice is not the user's
    assert threads.use_free_cores(processes=8) == 1


def test_predict_for_one_environment_runs_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, seen = make_agent(), []
    act = agent.model.act
    monkeypatch.setattr(agent.model, "act", lambda batch: (seen.append(torch.get_num_threads()), act(batch))[1])
    agent.predict(agent.observation_space.sample(), reward=0.0)
    assert seen == [1]
    assert torch.get_num_threads() == 4


def test_the_benchmark_shows_threads_beside_a_busy_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a ratio is depends on the machine; which counts were compared does not. A small network, to be quick."""
    small = load_recipe("dt-hopper-medium").override(["model.embed_dim=8", "model.n_layers=1", "train.batch_size=2"])
    monkeypatch.setattr(benchmark, "load_recipe", lambda _: small)
    cores = max(1, int(threads.allowed_cores()))
    monkeypatch.setattr(threads, "_defaults", lambda: {cores})
    figures = benchmark.run(1)
    assert [one.figure for one in figures][1::2] == [
        f"action, {where}, 1 to {cores}" for where in ("alone", "beside a busy process")
    ]
    beside = re.fullmatch(r"train_step, beside a busy process, (\d+) to (\d+)", figures[2].figure)
    assert beside is not None
    assert 1 <= int(beside[1]) <= max(1, cores - 1)  # a core is left to the other process
    assert torch.get_num_threads() == 4
