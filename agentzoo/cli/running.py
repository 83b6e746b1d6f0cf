"""A training run in the terminal, shared by `train` and `finetune`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from agentzoo.acting.threads import use_free_cores
from agentzoo.agent import Agent
from agentzoo.cli.console import console, errors_console, plain, word
from agentzoo.data.episodes import Episodes
from agentzoo.envs.env_options import trust_flags
from agentzoo.errors import ConfigError
from agentzoo.evaluation.during import check_environment, default_folder, short_evaluation, train_in
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe
from agentzoo.text import amount, counted, fixed
from agentzoo.training.hooks import Evaluation
from agentzoo.training.log import read_log, still_falling
from agentzoo.training.machine import device_line, gpu_names, training_device
from agentzoo.training.planning import value_in
from agentzoo.training.processes import local_process_count, process_count, process_index
from agentzoo.training.progress_bar import RunProgress, run_progress
from agentzoo.training.settle import claim, with_precision
from agentzoo.training.tracking import Tracking


def tracking_of(
    trackers: list[str] | None, project: str | None, run_name: str | None, group: str | None, tags: str | None
) -> Tracking:
    """The tracking settings from the command's options. ConfigError: one that needs a tracker, and none is named."""
    idle = {"--project": project, "--run-name": run_name, "--group": group, "--tags": tags}
    given = [option for option, value in idle.items() if value is not None]
    if given and not trackers:
        raise ConfigError(f"{', '.join(given)} has no effect without --track; name a tracker, or omit it.")
    named = None if tags is None else tuple(tag.strip() for tag in tags.split(",") if tag.strip())
    return Tracking(tuple(trackers or ()), project, run_name, group, named)


def settings_with(settings: list[str] | None, seed: int | None) -> list[str]:
    """The settings of `--set` and `--seed`. ConfigError: both name a seed, and not the same."""
    found = value_in(settings or [], "train.seed")
    if seed is not None and found not in (None, str(seed)):
        raise ConfigError(f"--seed is {seed}, but a setting is train.seed={found}; name one.")
    return [*(settings or []), *([] if seed is None else [f"train.seed={seed}"])]


def run_training(
    recipe: Recipe,
    episodes: Episodes,
    out: Path | None,
    *,
    start: SequenceModel | None = None,
    threads: int | None,
    trackers: Tracking,
    device: str | None,
    cuda_graph: bool,
    trust: bool,
    license_id: str | None = None,
) -> None:
    """Train with a progress bar and save the agent. With several processes, only the main one prints and saves.

    Args:
        start: as in `loop.train`; it is evaluated before and after training.
        trust: import the module that the environment's id names.
        license_id: of the agent that `start` comes from.
    """
    main = process_index() == 0
    if not main:
        console.quiet = errors_console.quiet = True
        warnings.simplefilter("ignore")
    used = use_free_cores(threads, local_process_count())
    check_environment(recipe, episodes, trust)
    folder = out or default_folder(recipe)
    recipe = with_precision(recipe, folder, device)
    claim(folder, recipe)  # before the evaluation of `start`
    _introduce(recipe, episodes, folder, device, used)
    measure = short_evaluation(recipe, trust) if start is not None and main and recipe.eval.every else None
    before = None if measure is None or start is None else measure(start)
    _train(
        recipe,
        episodes,
        folder,
        start=start,
        trackers=trackers,
        device=device,
        cuda_graph=cuda_graph,
        trust_env_module=trust,
        license_id=license_id,
    )
    if not main:
        return
    if measure is not None and before is not None:
        after = Agent.from_pretrained(folder, device="cpu", trust_env_module=trust)
        _compare(before, measure(after.model), recipe.eval.every_episodes)
    falls = still_falling(read_log(folder))
    if falls is not None:
        errors_console.print(
            f"the loss still fell by {100 * falls:.0f} % over the last fifth of training; more updates (train.steps) "
            "may fit better",
        )
    named, flags = word(folder), trust_flags(recipe.eval.env, recipe.eval.env_options)
    if "tensorboard" in trackers.trackers:
        console.print(f"`tensorboard --logdir {named}` shows its log")
    console.print(
        f"done: `agentzoo evaluate {named}{flags}` measures it, `agentzoo record {named} demo.mp4{flags}` shows it."
    )


def _compare(before: Evaluation, after: Evaluation, episodes: int) -> None:
    """Print the scores before and after fine-tuning, measured on the same episodes."""
    console.print(f"before: {_reached(before)}, after: {_reached(after)} (the same {counted(episodes, 'episode')})")


def _reached(one: Evaluation) -> str:
    score = "" if one.score is None else f"score {fixed(one.score, 1)}, "
    return f"{score}return {amount(one.mean_return, ',')}"


def _introduce(recipe: Recipe, episodes: Episodes, folder: Path, device: str | None, threads: int) -> None:
    console.print(
        f"{recipe.agent_id}: {counted(len(episodes), 'step')} of {plain(recipe.data.dataset)} -> {plain(folder)}"
    )
    used = training_device(device)
    line = device_line(used, gpu_names(), process_count())
    if line:
        errors_console.print(line)
    cores = f", {counted(threads, 'thread')}" if used.type == "cpu" else ""
    errors_console.print(f"{recipe.train.precision} on {used}{cores}")


def _train(recipe: Recipe, episodes: Episodes, folder: Path, **given: Any) -> None:
    """`during.train_in` with a progress bar; `given` are its options."""
    with run_progress(recipe, errors_console) as shown:
        try:
            train_in(folder, recipe, episodes, hooks=shown.hooks(), **given)
        except KeyboardInterrupt:
            shown.say(_stopped(shown))
            raise


def _stopped(shown: RunProgress) -> str:
    if shown.done is None:
        return "stopped before the first update; the same command continues"
    return f"stopped at update {shown.done:,}; the same command continues from update {shown.saved:,}"
