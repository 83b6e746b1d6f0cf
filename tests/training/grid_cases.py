"""Grids small enough for tests: real recipes made tiny, on the shipped 20 episodes of Hopper."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from agentzoo.data.minari import load_episodes
from agentzoo.store.files import RECIPE, WEIGHTS
from agentzoo.store.tensors import read_tensors
from agentzoo.training.grid.plan import Plan, Row, expand, make_plan
from agentzoo.training.grid.tasks import Task
from agentzoo.training.loop import train

SETTINGS = (
    "model.embed_dim=8",
    "model.n_layers=1",
    "data.context=4",
    "train.batch_size=4",
    "train.warmup_steps=5",
    "train.log_every=5",
    "train.checkpoint_every=20",
    "train.precision=fp32",
    "eval.every=0",
)


def settings_for(dataset: str, steps: int) -> list[str]:
    return [*SETTINGS, f"data.dataset={dataset}", f"train.steps={steps}"]


def small_rows(dataset: str, seeds: str, steps: int, name: str | None = None) -> list[Row]:
    return expand("dt-hopper-medium", seeds, settings_for(dataset, steps), name)


def small_plan(out: Path, dataset: str, seeds: str = "0-1", steps: int = 60, evaluate: int = 0) -> Plan:
    return make_plan(out, small_rows(dataset, seeds, steps), evaluate)


def serial_weights(row: Row, folder: Path) -> dict[str, torch.Tensor]:
    """What `agentzoo train --threads 1` ends with, from the dataset as Minari gives it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        data = row.recipe.data
        train(row.recipe, folder / row.folder, load_episodes(data.dataset, data.obs_keys), device="cpu")
    finally:
        torch.set_num_threads(threads)
    return weights(folder / row.folder)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / WEIGHTS)[0]


def assert_equal_to_the_bit(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


def break_run(row: Row, out: Path) -> None:
    """Make a run raise once it starts: its checkpoint is no checkpoint."""
    folder = out / row.folder
    folder.mkdir(parents=True)
    (folder / RECIPE).write_text(row.recipe.to_json())
    (folder / "checkpoint.safetensors").write_bytes(b"broken")


def wait_for(what: Callable[[], bool], seconds: float = 120.0) -> None:
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds, "it did not happen"
        time.sleep(0.02)


def wrap_the_interrupt(task: Task, on_step: Callable[[int], None]) -> None:
    """A job that turns its interrupt into another error, as pydantic does. It touches the file that `recipe` names."""
    Path(task.recipe).touch()
    try:
        for _ in range(1_200):
            time.sleep(0.05)
    except KeyboardInterrupt:
        raise ValueError("the interrupt, in a library's own words") from None


def only(tasks: list[Task]) -> Task:
    (task,) = tasks
    return task
