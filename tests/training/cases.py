"""Small trainings, whole or stopped."""

from __future__ import annotations

from pathlib import Path

import torch
from data.cases import episodes_of
from models.cases import coin_episodes

from agentzoo.data.episodes import Episodes
from agentzoo.models.dt import DTConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.store.tensors import read_tensors
from agentzoo.training.hooks import Hooks
from agentzoo.training.log import read_log
from agentzoo.training.loop import train


def recipe(steps: int = 30, **fields: object) -> Recipe:
    settings = {"batch_size": 8, "warmup_steps": 5, "checkpoint_every": 10, "log_every": 5, "steps": steps, **fields}
    settings.setdefault("precision", "fp32")
    return Recipe(
        agent_id="dt-test",
        model=DTConfig(embed_dim=8, n_layers=1),
        data=DataConfig(dataset="coins", context=2, rtg_scale=1.0, held_out=0.0),
        train=TrainConfig(**settings),  # type: ignore[arg-type]
        eval=EvalConfig(env="tests/Counting-v0", target_return=1.0, every=0),
    )


def run(folder: Path, made: Recipe, hooks: Hooks | None = None) -> dict[str, torch.Tensor]:
    train(made, folder, coin_episodes(), hooks=hooks, device="cpu")
    return read_tensors(folder / "model.safetensors")[0]


def train_shared(folder: Path, hooks: Hooks | None = None) -> None:
    """The training that processes share here, on windows of one to three steps."""
    made = recipe(steps=20, batch_size=64, log_every=1, checkpoint_every=5, warmup_steps=0, lr=1e-3)
    made = made.override(["model.dropout=0.0", "data.context=3"])
    data = episodes_of([1, 2, 3, 4, 5], [6], [7, 8], [1, 0, 2, 0, 1, 1], [2, 2])
    train(made, folder, data, hooks=hooks, device="cpu")


class Stopped(Exception):
    """Thrown out of a hook, as a user who presses Ctrl-C."""


def stop_at(step: int) -> Hooks:
    def check(now: int) -> None:
        if now == step:
            raise Stopped

    return Hooks(on_step=check)


def repeatable(folder: Path) -> list[list[str]]:
    """What a log says of the updates, without how long they took."""
    kept = ("step", "loss", "lr", "grad_norm", "action_mse")
    return [[row[name] for name in kept] for row in read_log(folder)]


def evaluated(made: Recipe, every: int) -> Recipe:
    return made.replace(eval=made.eval.model_copy(update={"every": every}))


def one_window() -> Episodes:
    return episodes_of([1.0])
