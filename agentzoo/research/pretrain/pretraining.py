"""The loop of pre-training: AdamW, warm-up and cosine, a CSV log, and a checkpoint for exact resuming.

On one CPU thread, a run that is killed and resumed equals the uninterrupted one bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from agentzoo.errors import CheckpointError, ConfigError, TrainingError
from agentzoo.recipe import there_and_asked
from agentzoo.research.pretrain.settings import PretrainSettings
from agentzoo.store.files import remove_unfinished, write_atomic
from agentzoo.store.tensors import read_tensors, save_tensors
from agentzoo.training import log, state
from agentzoo.training.optim import EagerAdamW

SETTINGS = "pretrain.json"
Row = dict[str, Any]


class PretrainTask(Protocol):
    """A pre-training task: a network, the loss of a batch, and an evaluation on held-out data."""

    @property
    def module(self) -> nn.Module:
        """The trained network."""

    def loss(self, generator: torch.Generator) -> Tensor:
        """The loss of a batch drawn with `generator`."""

    def evaluate(self) -> dict[str, float]:
        """Figures on held-out data; always the same names."""


def pretrain(
    task: PretrainTask,
    settings: PretrainSettings,
    folder: Path,
    *,
    on_step: Callable[[int], None] = lambda _: None,
    on_row: Callable[[Row], None] = lambda _: None,
) -> Row:
    """Train, or resume the run in `folder`, which `claim` has checked; returns the last row of the log.

    Raises:
        TrainingError: a non-finite loss; the last good checkpoint stays.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    torch.manual_seed(settings.seed + 1)  # dropout
    matrices = [p for p in task.module.parameters() if p.ndim >= 2]
    vectors = [p for p in task.module.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = EagerAdamW(groups, lr=settings.lr, betas=(0.9, 0.95), fused=True)
    step, seconds = 0, 0.0
    if (folder / state.CHECKPOINT).exists():
        step, seconds = _load(folder, task.module, optimizer, generator)
        on_step(step)
    columns, row = _start_log(folder, step, task)
    task.module.train()
    summed, norms, count, began = 0.0, 0.0, 0, time.perf_counter()
    while step < settings.steps:
        rate = settings.lr * rate_factor(step, settings)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = task.loss(generator)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(task.module.parameters(), settings.clip)
        value = loss.item()
        if not math.isfinite(value) or not math.isfinite(float(norm)):
            raise TrainingError(
                f"the loss is not finite at update {step}. Start again in another --out with a lower lr or clip."
            )
        optimizer.step()
        step, summed, norms, count = step + 1, summed + value, norms + float(norm), count + 1
        last = step == settings.steps
        logs = step % settings.log_every == 0 or last
        if logs:
            spent = time.perf_counter() - began
            seconds += spent
            figures = {}
            if step % settings.evaluate_every == 0 or last:
                task.module.eval()
                figures = task.evaluate()
                task.module.train()
            row = {"step": step, "loss": summed / count, "lr": rate, "grad_norm": norms / count}
            row |= {"steps_per_s": count / spent, "seconds": round(seconds, 1), **figures}
            log.append_row(folder, columns, row)
            on_row(row)
            summed, norms, count, began = 0.0, 0.0, 0, time.perf_counter()
        if (step % settings.checkpoint_every == 0 and logs) or last:
            _save(folder, task.module, optimizer, generator, step, seconds)
        on_step(step)
    return row


def claim(folder: Path, settings: PretrainSettings, writes: bool = False) -> None:
    """Check that the folder is empty or holds a run with these settings. `writes`: store the settings there.

    Raises:
        TrainingError: it holds a run with other settings; the message names them. ConfigError: intervals that do not
            fit.
    """
    path = folder / SETTINGS
    for name in ("checkpoint_every", "evaluate_every"):
        if getattr(settings, name) % settings.log_every:
            raise ConfigError(f"{name} must be a multiple of log_every, which is {settings.log_every}.")
    if writes:
        remove_unfinished(folder)
    if not path.exists():
        if writes:
            write_atomic(path, settings.to_json())
        return
    found = type(settings).from_json(path.read_text(), str(path))
    changed = {name: (getattr(found, name), value) for name, value in settings if getattr(found, name) != value}
    if changed:
        raise TrainingError(
            f"{folder} holds a run of other settings ({there_and_asked(changed)}). Choose another --out, or delete it."
        )


def rate_factor(step: int, settings: PretrainSettings) -> float:
    """The factor of `lr` at update `step` (0-based): linear warm-up, then a cosine to a tenth."""
    if step < settings.warmup_steps:
        return (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / max(settings.steps - settings.warmup_steps, 1)
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * done))


def _save(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator, step: int, sec: float
) -> None:
    tensors: dict[str, Tensor] = {f"model/{name}": p for name, p in module.named_parameters()}
    tensors |= state.optimizer_state(module, optimizer)
    tensors |= {"random/torch": torch.get_rng_state(), "random/batches": generator.get_state()}
    save_tensors(folder / state.CHECKPOINT, tensors, {"step": str(step), "seconds": repr(sec)})


def _load(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator
) -> tuple[int, float]:
    path = folder / state.CHECKPOINT
    tensors, metadata = read_tensors(path)
    try:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(tensors[f"model/{name}"])
        state.restore_optimizer(module, optimizer, tensors)
        torch.set_rng_state(tensors["random/torch"])
        generator.set_state(tensors["random/batches"])
        return int(metadata["step"]), float(metadata["seconds"])
    except (KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} does not fit this run: {error}. Train in another folder, or delete the file to start again."
        ) from error


def _start_log(folder: Path, step: int, task: PretrainTask) -> tuple[list[str], Row]:
    """The columns of the log and its last valid row. A new log starts with an evaluation of the untrained network."""
    rows = [row for row in log.read_log(folder) if int(row["step"]) <= step] if step else []
    if rows:
        log.start_log(folder, list(rows[0]), step)
        return list(rows[0]), {name: float(value) if value else None for name, value in rows[-1].items()}
    task.module.eval()
    figures = task.evaluate()
    columns, row = [*log.COLUMNS, *figures], {"step": 0, **figures}
    log.start_log(folder, columns, -1)
    log.append_row(folder, columns, row)
    return columns, row
