"""Training: one loop for every family, resumable at any moment.

Run on one thread of a CPU, a run that was killed and resumed equals the uninterrupted one to the bit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from agentzoo.config import read_record
from agentzoo.data.episodes import Episodes
from agentzoo.data.windows import WindowSampler
from agentzoo.errors import ConfigError, TrainingError
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe, differences
from agentzoo.registry import get_family
from agentzoo.store.files import RECIPE, WEIGHTS, remove_unfinished, write_atomic
from agentzoo.store.tensors import save_tensors
from agentzoo.training import log, state
from agentzoo.training.lock import held
from agentzoo.training.machine import check_machine, pick_precision, tracking, warn_of_slow_precision
from agentzoo.training.optim import lr_factor, make_optimizer
from agentzoo.types import Batch, IOSpec, Losses

BEST = "best.safetensors"


class Evaluation(NamedTuple):
    """What a short evaluation during training found."""

    mean_return: float  # or another figure of which more is better
    score: float | None  # D4RL-normalized, where there are references


@dataclass(frozen=True)
class Hooks:
    """What the caller wants to hear or do; every one may stay as it is."""

    evaluate: Callable[[SequenceModel], Evaluation] | None = None
    on_resume: Callable[[int], None] = lambda _: None  # how many updates the checkpoint has that it goes on from
    on_step: Callable[[int], None] = lambda _: None
    on_row: Callable[[dict[str, Any]], None] = lambda _: None


def build_model(recipe: Recipe, episodes: Episodes) -> SequenceModel:
    """A fresh network for a dataset: weights from `train.seed`, normalization, if any, from all its observations, also
    those of episodes that `data.best_fraction` leaves out.
    """
    io = IOSpec(observation=episodes.observation, action=episodes.action, context=recipe.data.context)
    torch.manual_seed(recipe.train.seed)
    model = get_family(recipe.model.family).model(recipe.model, io)
    if recipe.data.normalization != "none":
        set_normalization(model, episodes)
    return model


def set_normalization(model: SequenceModel, episodes: Episodes) -> None:
    """Mean and std of all observations of the data into the network's buffers."""
    mean, std = episodes.statistics()
    model.obs_mean.copy_(torch.from_numpy(mean))
    model.obs_std.copy_(torch.from_numpy(std))


def prepare_data(recipe: Recipe, episodes: Episodes) -> Episodes:
    """The episodes the recipe asks for: the best share, rewards dense or delayed."""
    chosen = episodes.best(recipe.data.best_fraction)
    return chosen.delayed() if recipe.data.rewards == "delayed" else chosen


def train(
    recipe: Recipe,
    folder: Path,
    episodes: Episodes,
    *,
    start: SequenceModel | None = None,
    hooks: Hooks | None = None,
    trackers: list[str] | None = None,
    device: str | None = None,
) -> SequenceModel:
    """Train `recipe` on `episodes`, or go on with the run in `folder`.

    Args:
        recipe: the whole recipe; a folder of another recipe is refused.
        folder: gets `train_config.json`, `training_log.csv`, `checkpoint.safetensors` (every
            `train.checkpoint_every` updates), `best.safetensors` (best short evaluation) and, at the end,
            `model.safetensors`.
        episodes: the dataset as loaded; the recipe's selection is applied here.
        start: weights to start from (fine-tuning); a fresh network by default.
        hooks: evaluation and progress.
        trackers: names accelerate knows: "tensorboard", "wandb", "trackio".
        device: "cpu" or "cuda"; the fastest there is by default.

    Returns:
        The trained network, on the CPU, in eval mode.

    Raises:
        TrainingError: a non-finite loss (the last good checkpoint stays), or a folder of another recipe or that another
            process trains in. ConfigError: a device or tracker that is not here, or a fine-tune's recipe without the
            weights it starts from.
    """
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    check_machine(device, trackers or ())
    recipe = with_precision(recipe, folder, device)
    AcceleratorState._reset_state(True)  # it would keep device and precision of the process's first training
    accelerator = Accelerator(
        cpu=device == "cpu",
        mixed_precision="bf16" if recipe.train.precision == "bf16" else "no",
        log_with=trackers or None,
        project_dir=str(folder),
    )
    if start is None:
        if recipe.base is not None:
            raise ConfigError(
                f"the recipe {recipe.agent_id!r} goes on from {recipe.base!r}; `agentzoo finetune {recipe.base} "
                "--recipe FILE` repeats it."
            )
        recipe = recipe.pinned()
    claim(folder, recipe)
    if recipe.train.warmup_steps >= recipe.train.steps:
        warnings.warn(
            f"train.warmup_steps={recipe.train.warmup_steps} is no less than train.steps={recipe.train.steps}: the "
            "learning rate never gets to train.lr.",
            UserWarning,
            stacklevel=2,
        )
    warn_of_slow_precision(recipe.train.precision, accelerator.device.type)
    data = prepare_data(recipe, episodes)
    model = start if start is not None else build_model(recipe, episodes)
    model.begin_training(fresh=start is None)
    main: bool = accelerator.is_main_process
    # nothing is written before all that the recipe names was found
    with held(folder) if main else nullcontext(), tracking(accelerator, recipe.agent_id, trackers or ()):
        claim(folder, recipe, main)
        trained = _train(recipe, folder, data, model, hooks or Hooks(), accelerator)
        if main:
            save_tensors(folder / WEIGHTS, trained.state_dict())
    return trained


def _train(
    recipe: Recipe, folder: Path, data: Episodes, model: SequenceModel, hooks: Hooks, accelerator: Any
) -> SequenceModel:
    """Make the updates that are left.

    Returns:
        The trained network.
    """
    model.train()
    optimizer = make_optimizer(model, recipe.train)
    losses, prepared = accelerator.prepare(_Losses(model), optimizer)
    choice = recipe.data
    sampler = WindowSampler(data, choice.context, choice.rtg_scale, accelerator.device, choice.drawn)
    rank = accelerator.process_index
    generator = torch.Generator().manual_seed(recipe.train.seed * 1_000_003 + rank)
    torch.manual_seed(recipe.train.seed * 1_000_003 + 500_000 + rank)
    raw: torch.optim.Optimizer = getattr(prepared, "optimizer", prepared)
    progress = state.Progress()
    if (folder / state.CHECKPOINT).exists():
        progress = state.load_state(folder, model, raw, generator, rank, accelerator.num_processes)
        hooks.on_resume(progress.step)
    run = _Run(recipe, folder, accelerator, model, hooks, progress)

    config = recipe.train
    for step in range(progress.step, config.steps):
        if run.is_out_of_patience():
            break
        began = time.perf_counter()
        rate = config.lr * lr_factor(step, config)
        for group in raw.param_groups:
            group["lr"] = rate * group["scale"]
        model.begin_step(step, config.steps)
        batch = sampler.sample(config.batch_size, generator)
        prepared.zero_grad()
        with accelerator.autocast():
            terms = losses(batch)
        loss = torch.stack(list(terms.values())).sum()
        accelerator.backward(loss)
        limit = config.clip if config.clip is not None else math.inf
        norm = accelerator.clip_grad_norm_(model.parameters(), limit)
        prepared.step()
        shown = {**terms, **model.figures()}
        run.count({"loss": loss.detach(), "grad_norm": norm, **{k: v.detach() for k, v in shown.items()}})
        progress.step = step + 1
        progress.seconds += time.perf_counter() - began
        run.after_step(rate, raw, generator)
    return model.to("cpu").eval()


def with_precision(recipe: Recipe, folder: Path, device: str | None) -> Recipe:
    """The recipe with `train.precision` settled: that of the run in `folder`, else what this machine is fast at."""
    if recipe.train.precision != "auto":
        return recipe
    path = folder / RECIPE
    found = read_record(Recipe, path).train.precision if path.exists() else "auto"
    settled = {"precision": pick_precision("auto", device) if found == "auto" else found}
    return recipe.replace(train=recipe.train.model_copy(update=settled))


def claim(folder: Path, recipe: Recipe, writes: bool = False) -> None:
    """Check that the folder is free or this recipe's; `writes`: make it so.

    Raises:
        TrainingError: it holds a run of another recipe, and names what differs, or a staged agent.
    """
    path = folder / RECIPE
    if writes:
        remove_unfinished(folder)
    if path.exists():
        found = read_record(Recipe, path)
        changed = [f"{name}: {old!r} there, {new!r} asked" for name, (old, new) in differences(found, recipe).items()]
        if changed:
            raise TrainingError(
                f"{folder} holds a run of {found.agent_id!r} with another recipe ({'; '.join(changed)}). "
                "Choose another --out, or delete it."
            )
        if (folder / WEIGHTS).exists() and not (folder / state.CHECKPOINT).exists():
            raise TrainingError(
                f"{folder} holds a trained {found.agent_id!r} without the {state.CHECKPOINT} to go on from; training "
                "would begin anew over it. Choose another --out."
            )
    elif writes:
        write_atomic(path, recipe.to_json())


class _Losses(torch.nn.Module):
    """`model.loss` as a forward pass: several processes synchronize gradients around `forward` only."""

    def __init__(self, model: SequenceModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Losses:
        """The loss terms of a batch."""
        return self.model.loss(batch)


class _Run:
    """The bookkeeping around an update: log rows, evaluations, checkpoints."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        accelerator: Any,
        model: SequenceModel,
        hooks: Hooks,
        progress: state.Progress,
    ) -> None:
        self.recipe, self.folder, self.accelerator = recipe, folder, accelerator
        self.model, self.hooks, self.progress = model, hooks, progress
        self.sums: dict[str, torch.Tensor] = {k: torch.tensor(v) for k, v in progress.sums.items()}
        self.main: bool = accelerator.is_main_process
        self.columns: list[str] = []
        self.row_began = time.perf_counter()
        self.row_first = progress.step

    def count(self, values: dict[str, torch.Tensor]) -> None:
        """Add this update's values; no synchronization with the device."""
        if not self.columns:
            usual = [*log.COLUMNS, "eval_return", "eval_score"]
            self.columns = [*usual, *(name for name in values if name not in usual)]
            if self.main:
                log.start_log(self.folder, self.columns, self.progress.step)
        for name, value in values.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value.clone()

    def after_step(self, rate: float, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
        """Log, evaluate and save when it is time."""
        config, step = self.recipe.train, self.progress.step
        last = step == config.steps
        evaluates = self.recipe.eval.every > 0 and (step % self.recipe.eval.every == 0 or last)
        saves = step % config.checkpoint_every == 0 or last
        if step % config.log_every == 0 or evaluates or saves:
            self._require_finite()
        if step % config.log_every == 0 or evaluates or last:  # what is staged reads the last row
            self._row(rate, self._evaluate() if evaluates else None)
        if evaluates:  # only the main process evaluates, all must stop together
            self.progress.best_step = _from_main(self.accelerator, self.progress.best_step)
        if saves:
            self.progress.sums = {name: float(value) for name, value in self.sums.items()}
            states = _gather(self.accelerator, state.random_state(generator))
            if self.main:
                state.save_state(self.folder, self.model, optimizer, states, self.progress)
        self.hooks.on_step(step)

    def is_out_of_patience(self) -> bool:
        """True once `train.patience` updates brought no better evaluation."""
        patience, every = self.recipe.train.patience, self.recipe.eval.every
        if not patience or not every or self.hooks.evaluate is None:
            return False
        return self.progress.step // every * every - self.progress.best_step >= patience

    def _require_finite(self) -> None:
        broken = [name for name, value in self.sums.items() if not math.isfinite(float(value))]
        if broken:
            kept = self.folder / state.CHECKPOINT
            raise TrainingError(
                f"{broken[0]} is not finite in the {self.recipe.train.log_every} updates before {self.progress.step}. "
                f"{f'{kept} is of before. ' if kept.exists() else ''}Begin anew in another --out with a lower train.lr "
                "or train.clip (--set)."
            )

    def _evaluate(self) -> Evaluation | None:
        if self.hooks.evaluate is None or not self.main:
            return None
        before, began = torch.get_rng_state(), time.perf_counter()
        self.model.eval()
        found = self.hooks.evaluate(self.model)
        self.model.train()
        torch.set_rng_state(before)  # an evaluation must not change what is trained
        if self.progress.best_return is None or found.mean_return > self.progress.best_return:
            self.progress.best_return, self.progress.best_step = found.mean_return, self.progress.step
            save_tensors(self.folder / BEST, self.model.state_dict(), {"step": str(self.progress.step)})
        self.row_began += time.perf_counter() - began  # the row counts updates
        return found

    def _row(self, rate: float, found: Evaluation | None) -> None:
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
            **{name: float(value) / updates for name, value in self.sums.items()},
        }
        if self.progress.step % self.recipe.train.log_every == 0:
            self.sums = {}
        self.row_began, self.row_first = time.perf_counter(), self.progress.step
        if self.main:
            log.append_row(self.folder, self.columns, row)
            self.accelerator.log({k: v for k, v in row.items() if v is not None}, step=self.progress.step)
            self.hooks.on_row(row)


def _from_main(accelerator: Any, value: int) -> int:
    if accelerator.num_processes == 1:
        return value
    from accelerate.utils import broadcast_object_list

    shared = [value]
    broadcast_object_list(shared)
    return shared[0]


def _gather(accelerator: Any, value: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    if accelerator.num_processes == 1:
        return [value]
    from accelerate.utils import gather_object

    gathered: list[dict[str, torch.Tensor]] = gather_object([value])
    return gathered
