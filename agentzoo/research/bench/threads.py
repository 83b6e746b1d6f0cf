"""Threads beside other work: a step of training and an action with the count that agentzoo chooses, against PyTorch's.

Another process computes without pause, as a second training does. PyTorch still uses a thread for each core, and each
of its operations waits for the thread whose core is busy. `--threads` is not used: the peer has a thread for each core
that this process may use, as if the user had set `OMP_NUM_THREADS` to that number.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from agentzoo.acting import threads
from agentzoo.acting.loading import build_network
from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.recipe import load_recipe
from agentzoo.research.bench import PUBLISHED, Figure, compare
from agentzoo.research.bench.dtma import random_batch, training_step
from agentzoo.research.bench_sizes import OBS, io_of

SETTLE = 1.0  # seconds until the other process computes


def run(runs: int) -> list[Figure]:
    """`train_step` and `action` of dt, on a machine left alone and beside a busy process; ten times as many actions.

    The names say how many threads both have.
    """
    recipe = load_recipe("dt-hopper-medium").override(PUBLISHED)
    io = io_of(recipe.data.context)
    config = AgentConfig.of(recipe, io)
    step = training_step(build_network(config).train(), recipe, random_batch(io, recipe.train.batch_size))
    agent = Agent(build_network(config), config, recipe)
    obs = np.zeros(OBS, np.float32)

    def act() -> object:
        return agent.predict(obs, None, np.array([True]), True, reward=0.0)

    cores = max(1, int(threads.allowed_cores()))
    figures = []
    for where, busy in (("alone", 0), ("beside a busy process", 1)):
        with _busy(busy), _default_threads(cores):
            free = threads.use_free_cores()
            names = [f"{what}, {where}, {ours} to {cores}" for what, ours in (("train_step", free), ("action", 1))]
            figures.append(compare(names[0], _with(free, step), _with(cores, step), runs))
            figures.append(compare(names[1], _with(cores, act), _by_user(cores, act), 10 * runs))
    return figures


def _with(count: int, work: Callable[[], object]) -> Callable[[], object]:
    """`work` with `count` PyTorch threads."""

    def timed() -> None:
        torch.set_num_threads(count)
        work()

    return timed


def _by_user(count: int, work: Callable[[], object]) -> Callable[[], object]:
    """`work` with `count` threads chosen by the user, which agentzoo does not change."""

    def timed() -> None:
        os.environ[threads.VARIABLES[0]] = str(count)
        try:
            _with(count, work)()
        finally:
            del os.environ[threads.VARIABLES[0]]

    return timed


@contextmanager
def _default_threads(cores: int) -> Iterator[None]:
    """Inside the block PyTorch has its default number of threads, and no environment variable sets another."""
    before, set_before = torch.get_num_threads(), {k: os.environ.pop(k) for k in threads.VARIABLES if k in os.environ}
    torch.set_num_threads(cores)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        os.environ.update(set_before)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Run `count` other processes that compute without pause."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(SETTLE if others else 0.0)
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()
