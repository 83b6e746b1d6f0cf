"""The bookkeeping around an update: log rows, evaluations, checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentzoo.errors import TrainingError
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe
from agentzoo.store.tensors import save_tensors
from agentzoo.training import log, state
from agentzoo.training.action_errors import ActionErrors
from agentzoo.training.hooks import Evaluation, Hooks
from agentzoo.training.processes import from_main, gathered

BEST = "best.safetensors"
ERRORS_EVERY = 10  # rows of the log


class Run:
    """A running training. Every process calls the same methods; the main one writes."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        accelerator: Any,
        model: SequenceModel,
        hooks: Hooks,
        progress: state.Progress,
        errors: ActionErrors,
    ) -> None:
        self.recipe, self.folder, self.accelerator = recipe, folder, accelerator
        self.model, self.hooks, self.progress, self.errors = model, hooks, progress, errors
        self.sums: dict[str, Tensor] = {k: torch.tensor(v) for k, v in progress.sums.items()}
        self.main: bool = accelerator.is_main_process
        if not (folder / BEST).exists():  # `training.settle.claim` deletes it
            progress.best_return = None
        self.columns: list[str] = []
        self.row_began = time.perf_counter()
        self.row_first = progress.step

    def count(self, values: dict[str, Tensor]) -> None:
        """Add this update's values, without synchronizing the device."""
        if not self.columns:
            usual = [*log.COLUMNS, *log.EVALUATION, *self.errors.columns]
            self.columns = [*usual, *(name for name in values if name not in usual)]
            if self.main:
                log.start_log(self.folder, self.columns, self.progress.step - self.progress.unlogged)
        for name, value in values.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value.clone()

    def after_step(
        self, rate: float, optimizer: torch.optim.Optimizer, generator: torch.Generator, stops: bool = False
    ) -> None:
        """Log, evaluate and save when due. It also saves where the run ends: if it `stops`, or is out of patience.

        Raises:
            TrainingError: a non-finite loss, or a failed evaluation. The latter is raised after this update's
                checkpoint is saved, so that the run can continue without it.
        """
        config, step = self.recipe.train, self.progress.step
        last = step == config.steps
        evaluates = self.recipe.eval.every > 0 and (step % self.recipe.eval.every == 0 or last)
        saves = step % config.checkpoint_every == 0 or last or stops
        logs = step % config.log_every == 0
        failed, ends = None, False
        if logs or evaluates or saves:
            began = time.perf_counter()
            self._require_finite()
            self.progress.seconds += time.perf_counter() - began  # a GPU finishes the updates here
        if logs or evaluates or last:  # staging reads the last row
            measures = step % (ERRORS_EVERY * config.log_every) == 0 or evaluates or last
            found, failed = self._evaluate() if evaluates else (None, None)
            if evaluates:  # only the main process evaluates, but all must stop together
                self.progress.best_step = from_main(self.accelerator, self.progress.best_step)
                ends = bool(from_main(self.accelerator, int(failed is not None)))
            if not ends:
                self._row(rate, found, self._measure() if measures else {})
        self.progress.unlogged = ends
        if saves or ends or (evaluates and self.is_out_of_patience()):
            self._save(optimizer, generator)
        if ends:
            raise self._evaluation_error(failed) from failed
        self.hooks.on_step(step)

    def repeat_failed(self, rate: float, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
        """Evaluate and log the update of the checkpoint, if its evaluation failed; otherwise as `after_step`."""
        if self.progress.unlogged:
            self.count({name: torch.zeros_like(value) for name, value in self.sums.items()})
            self.after_step(rate, optimizer, generator)

    def is_out_of_patience(self) -> bool:
        """Whether the last `train.patience` updates gave no better evaluation."""
        patience, every = self.recipe.train.patience, self.recipe.eval.every
        if not patience or not every or self.hooks.evaluate is None or self.progress.unlogged:
            return False
        return self.progress.step // every * every - self.progress.best_step >= patience

    def _save(self, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
        self.progress.sums = {name: float(value) for name, value in self.sums.items()}
        states = gathered(self.accelerator, state.random_state(generator))
        if self.main:
            state.save_state(self.folder, self.model, optimizer, states, self.progress)
            self.hooks.on_save(self.progress.step)

    def _require_finite(self) -> None:
        broken = [name for name, value in self.sums.items() if not math.isfinite(float(value))]
        if broken:
            kept = self.folder / state.CHECKPOINT
            raise TrainingError(
                f"{broken[0]} is not finite in the {self.recipe.train.log_every} updates before {self.progress.step}. "
                f"{f'The last good checkpoint is {kept}. ' if kept.exists() else ''}Start again in another folder "
                "(--out) with a lower train.lr or train.clip (--set)."
            )

    def _evaluate(self) -> tuple[Evaluation | None, Exception | None]:
        """A short evaluation, or the error that ended it."""
        if self.hooks.evaluate is None or not self.main:
            return None, None
        try:
            with self._aside():
                found = self.hooks.evaluate(self.model)
        except Exception as error:  # whatever the environment raises; the updates so far are saved first
            return None, error
        if self.progress.best_return is None or found.mean_return > self.progress.best_return:
            self.progress.best_return, self.progress.best_step = found.mean_return, self.progress.step
            save_tensors(self.folder / BEST, self.model.state_dict(), {"step": str(self.progress.step)})
        return found, None

    def _evaluation_error(self, error: Exception | None) -> TrainingError:
        why = "in the main process" if error is None else f"with {type(error).__name__}: {error}"
        without = "" if self.recipe.train.patience else " `--set eval.every=0` continues without evaluations."
        return TrainingError(
            f"the short evaluation after update {self.progress.step} failed {why}. The checkpoint of this update is "
            f"saved: correct the environment and repeat the command to continue with its evaluation.{without}"
        )

    def _measure(self) -> dict[str, float]:
        if not self.main:
            return {}
        with self._aside(), self.accelerator.autocast():
            return self.errors.measure(self.model)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Evaluation mode inside; random numbers and the logged training time are unaffected."""
        before, began = state.random_state(torch.Generator()), time.perf_counter()
        self.model.eval()
        try:
            yield
        finally:
            self.model.train()
            state.restore_random_state(before, torch.Generator())
            self.row_began += time.perf_counter() - began

    def _row(self, rate: float, found: Evaluation | None, errors: dict[str, float]) -> None:
        every = self.recipe.train.log_every
        updates = self.progress.step % every or every  # in `sums`
        now = time.perf_counter()
        row: dict[str, Any] = {
            "step": self.progress.step,
            "lr": rate,
            "steps_per_s": (self.progress.step - self.row_first) / max(now - self.row_began, 1e-9),
            "seconds": round(self.progress.seconds, 1),
            "eval_return": found.mean_return if found else None,
            "eval_score": found.score if found else None,
            **errors,
            **{name: float(value) / updates for name, value in self.sums.items()},
        }
        if self.progress.step % self.recipe.train.log_every == 0:
            self.sums = {}
        self.row_began, self.row_first = time.perf_counter(), self.progress.step
        if self.main:
            log.append_row(self.folder, self.columns, row)
            tracked = {k: v for k, v in row.items() if v is not None and k != "step"}
            self.accelerator.log(tracked, step=self.progress.step)
            self.hooks.on_row(row)
