"""Training: one loop for every family, resumable at any moment.

On one CPU thread, a run that is killed and resumed equals the uninterrupted one bit for bit.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from agentzoo.data.episodes import Episodes
from agentzoo.data.windows import WindowSampler
from agentzoo.errors import ConfigError, warn
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.record import checked
from agentzoo.registry import get_family
from agentzoo.store.files import WEIGHTS
from agentzoo.store.tensors import save_tensors
from agentzoo.training import log, state
from agentzoo.training.action_errors import ActionErrors
from agentzoo.training.gradients import EagerGradients, Gradients, GraphGradients, LossModule
from agentzoo.training.hooks import Hooks
from agentzoo.training.interrupt import deferred
from agentzoo.training.lock import held
from agentzoo.training.machine import check_machine, training_device, warn_of_slow_precision
from agentzoo.training.optim import lr_factor, make_optimizer
from agentzoo.training.processes import Share, check_launch, gathered, make_accelerator, part
from agentzoo.training.run import Run
from agentzoo.training.settle import claim, record_stretch, with_data, with_precision
from agentzoo.training.tracking import Tracking, tracking
from agentzoo.types import Average, IOSpec


def build_model(recipe: Recipe, episodes: Episodes) -> SequenceModel:
    """A fresh network for a dataset: weights from `train.seed`, and normalization from all its observations, even those
    of episodes that `data.best_fraction` leaves out.

    Raises:
        ConfigError: a window of `data.context` steps of this data is too large.
    """
    sizes = {"observation": episodes.observation, "action": episodes.action, "context": recipe.data.context}
    io = checked(IOSpec, f"a network for {episodes.dataset}", **sizes)
    torch.manual_seed(recipe.train.seed)
    model = get_family(recipe.model.family).model(recipe.model, io)
    if recipe.data.normalization != "none":
        set_normalization(model, episodes)
    return model


def set_normalization(model: SequenceModel, episodes: Episodes) -> None:
    """Set the network's mean and std buffers from all observations of the data."""
    mean, std = episodes.statistics()
    model.obs_mean.copy_(torch.from_numpy(mean))
    model.obs_std.copy_(torch.from_numpy(std))


def prepare_data(recipe: Recipe, episodes: Episodes) -> tuple[Episodes, Episodes | None]:
    """(training, held-out) episodes: the recipe's best share of them, with rewards dense or delayed.

    Raises:
        DataError: an episode is to be held out, and there is only one.
    """
    chosen = episodes.best(recipe.data.best_fraction)
    chosen = chosen.delayed() if recipe.data.rewards == "delayed" else chosen
    return chosen.held_out(recipe.data.held_out) if recipe.data.held_out else (chosen, None)


def train(
    recipe: Recipe,
    folder: Path,
    episodes: Episodes,
    *,
    start: SequenceModel | None = None,
    hooks: Hooks | None = None,
    trackers: Tracking | None = None,
    device: str | None = None,
    cuda_graph: bool = False,
) -> SequenceModel:
    """Train `recipe` on `episodes`, or continue the run in `folder`.

    Under `torchrun` all processes train one network: each takes its share of every global batch of `train.batch_size`
    windows, and only the main one writes.

    Args:
        recipe: the whole recipe; a folder with another recipe is refused.
        folder: receives `train_config.json`, `training_log.csv`, `checkpoint.safetensors` (every `checkpoint_every`
            updates and at Ctrl-C), `best.safetensors` (best short evaluation) and, at the end, `model.safetensors`.
        episodes: the whole dataset; the recipe's selection is applied here.
        start: initial weights (fine-tuning); by default a fresh network.
        hooks, trackers: callbacks for evaluation and progress; further targets of the log.
        device: "cpu", "cuda", "cuda:1" or "mps"; by default the fastest.
        cuda_graph: replay a CUDA graph instead of starting each operation; for small networks on a GPU.

    Returns:
        The trained network, on the CPU, in eval mode.

    Raises:
        TrainingError: a non-finite loss (the last good checkpoint stays), changed data, or a folder that holds another
            recipe or is in use by another process. ConfigError: a missing device or tracker, a batch that the
            processes cannot share, or a fine-tune's recipe without `start`. CheckpointError: a broken checkpoint.
            KeyboardInterrupt: Ctrl-C, after a checkpoint is saved.
    """
    trackers = trackers or Tracking()
    check_machine(device, trackers.trackers, cuda_graph)
    check_launch()
    recipe = with_data(with_precision(recipe, folder, device), folder, episodes)
    place = training_device(device)
    accelerator = make_accelerator(place, recipe.train.precision, str(folder), list(trackers.trackers))
    share = Share.of(recipe.train.batch_size, accelerator)
    if start is None:
        recipe = _from_scratch(recipe)
    claim(folder, recipe)
    _warn(recipe, folder, accelerator)
    model = start if start is not None else build_model(recipe, episodes)
    model.begin_training(fresh=start is None)
    main: bool = accelerator.is_main_process
    # nothing is written before all files that the recipe names have been found
    with held(folder) if main else nullcontext():
        claim(folder, recipe, main)
        stopped = _train(recipe, folder, episodes, model, hooks or Hooks(), accelerator, share, trackers, cuda_graph)
        model = model.to("cpu").eval()
        if main:
            save_tensors(folder / WEIGHTS, model.state_dict())
    part(accelerator)
    if stopped:  # the program that called stops as well, although nothing was left to train
        raise KeyboardInterrupt
    return model


def _from_scratch(recipe: Recipe) -> Recipe:
    """`recipe` with its files pinned; raises ConfigError if it continues from another agent's weights."""
    if recipe.base is not None:
        raise ConfigError(
            f"the recipe {recipe.agent_id!r} fine-tunes {recipe.base!r}; repeat it with `agentzoo finetune "
            f"{recipe.base_repo or recipe.base} --recipe FILE`. If {recipe.base} is a run of yours, name its folder."
        )
    return recipe.pinned()


def _warn(recipe: Recipe, folder: Path, accelerator: Any) -> None:
    """Warn of unexpected settings, once."""
    if not accelerator.is_main_process:
        return
    if recipe.train.warmup_steps >= recipe.train.steps:
        warn(
            f"train.warmup_steps={recipe.train.warmup_steps} is not below train.steps={recipe.train.steps}: the "
            "learning rate never reaches train.lr. Lower train.warmup_steps.",
            depth=3,
        )
    patience, every = recipe.train.patience, recipe.eval.every
    # where the first evaluation stays the best
    earliest = every + math.ceil(patience / every) * every if patience else 0
    if earliest >= recipe.train.steps:
        warn(
            f"train.patience={patience} has no effect: with an evaluation every {every:,} updates (eval.every), "
            f"training can stop after {earliest:,} updates at the earliest, and train.steps={recipe.train.steps}. "
            "Lower eval.every or train.patience.",
            depth=3,
        )
    rows = log.read_log(folder)
    if rows and not (folder / state.CHECKPOINT).exists():
        warn(
            f"{folder} has a log of {int(rows[-1]['step']):,} updates but no {state.CHECKPOINT}: training and "
            "the log start again at update 0.",
            depth=3,
        )
    warn_of_slow_precision(recipe.train.precision, accelerator.device.type)


def _set_rate(optimizer: torch.optim.Optimizer, config: TrainConfig, step: int) -> float:
    rate = config.lr * lr_factor(step, config)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]
    return rate


def _train(
    recipe: Recipe,
    folder: Path,
    episodes: Episodes,
    model: SequenceModel,
    hooks: Hooks,
    accelerator: Any,
    share: Share,
    trackers: Tracking,
    cuda_graph: bool,
) -> bool:
    """Make the remaining updates of `model`; returns whether Ctrl-C was pressed in the last one."""
    model.train()
    config, choice = recipe.train, recipe.data
    data, held_out = prepare_data(recipe, episodes)
    # With a placement named, accelerate does not look for sharded parameters, which takes a second of imports.
    placement = [True, True]
    losses, prepared = accelerator.prepare(LossModule(model), make_optimizer(model, config), device_placement=placement)
    eager = EagerGradients(model, losses, prepared, accelerator)
    gradients: Gradients = GraphGradients(eager) if cuda_graph else eager
    raw: torch.optim.Optimizer = getattr(prepared, "optimizer", prepared)
    sampler = WindowSampler(data, choice.context, choice.rtg_scale, accelerator.device, choice.drawn)
    generator = torch.Generator().manual_seed(config.seed * 1_000_003)  # the same in every process
    torch.manual_seed(config.seed * 1_000_003 + 500_000 + share.rank)
    errors = ActionErrors(data, held_out, choice.context, choice.rtg_scale, accelerator.device)
    progress = state.Progress()
    if (folder / state.CHECKPOINT).exists():
        progress = state.load_state(folder, model, raw, generator, share.rank, share.processes, config.seed)
        hooks.on_resume(progress.step)
    devices = gathered(accelerator, str(accelerator.device))
    run = Run(recipe, folder, accelerator, model, hooks, progress, errors)
    began_at = config.steps if run.is_out_of_patience() else progress.step
    if accelerator.is_main_process and began_at < config.steps:
        recipe = record_stretch(folder, recipe, began_at, devices)
    with tracking(accelerator, trackers, recipe, folder, began_at), deferred(hooks.on_interrupt) as interrupt:
        run.repeat_failed(_set_rate(raw, config, max(progress.step - 1, 0)), raw, generator)
        for step in range(began_at, config.steps):
            if run.is_out_of_patience():
                break
            began = time.perf_counter()
            rate = _set_rate(raw, config, step)
            model.begin_step(step, config.steps)
            batch, weights = share.sample(sampler, generator)
            shown = gradients(batch, weights)
            clip = math.inf if config.clip is None else config.clip
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)  # accelerate's also imports sharded tensors
            prepared.step()
            stops = interrupt.asked
            if share.processes > 1:
                stopping = torch.tensor(float(stops), device=accelerator.device)
                averages: dict[str, Average] = {**model.averages, "loss": "windows"}  # its terms are weighted already
                shown = share.mean({**shown, "_stops": stopping}, weights, averages)
                stops = bool(shown.pop("_stops") > 0)
            run.count({"loss": shown["loss"], "grad_norm": norm, **shown})
            progress.step = step + 1
            progress.seconds += time.perf_counter() - began
            run.after_step(rate, raw, generator, stops)
            if stops and progress.step < config.steps:
                raise KeyboardInterrupt
        return interrupt.asked
