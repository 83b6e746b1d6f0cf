"""`agentzoo hub remeasure`: measure a staged agent again with another target return, history or size of weights."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from agentzoo.acting.modes import check_history
from agentzoo.data.minari import load_episodes
from agentzoo.data.targets import Target, choose_target
from agentzoo.errors import ConfigError
from agentzoo.evaluation.results import Result, Results
from agentzoo.hub.card import write_card
from agentzoo.hub.records import read_records, require_promised, write_settings
from agentzoo.hub.staging_measurements import Measuring, Tally
from agentzoo.hub.stored_weights import Stored, store_weights
from agentzoo.recipe import Recipe
from agentzoo.store.exclusive import only_writer
from agentzoo.store.files import RESULTS, SWEEP_PLOT, WEIGHTS, write_atomic
from agentzoo.store.locate import written_whole
from agentzoo.text import counted


def remeasure(
    staged: Path,
    *,
    target: str | None = None,
    history: int | None = None,
    weights: Stored | None = None,
    sweep_episodes: int = 20,
    drop_seeds: bool = False,
    trust_env_module: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
    on_episodes: Callable[[int, int], None] = lambda *_: None,
) -> Result:
    """Give a staged agent another target return or history, or smaller weights, and return the new headline.

    These settings play no part in training, so log and studies stay. The sweep stays if only the target changes. With
    another target or history the rows of other runs and of the best checkpoint go, with `weights` those of other seeds
    and of the best checkpoint; those of `baselines.json` stay. A clone ignores the target: a new one alone only changes
    its records. The folder is replaced as a whole or not at all.

    Args:
        staged: the agent's folder.
        target: a rule or a number (`data.targets`); by default the present one.
        history: the number of newest steps that acting reads, 0 for the whole window; by default the present one.
        weights: how to store them, as in `stage`; by default as they are. A smaller type rounds for good.
        drop_seeds: drop the rows of other training seeds, whose weights are not in the folder.
        sweep_episodes: episodes for each of eight target returns if history or weights change; 0 drops the sweep.
        on_progress: called with each step that begins.
        on_episodes: called with the number of episodes played so far and of those in all.

    Raises:
        CheckpointError: a record or a file that the card shows is missing, or a number is too large for float16.
        ConfigError: an unknown rule, a history longer than the window, or other training seeds without `drop_seeds`.
        StorageError: another command is changing the folder.
    """
    with only_writer(staged), written_whole(staged) as folder:
        config, recipe, results = read_records(staged)
        require_promised(staged)
        before, recipe = recipe.eval, _asked(target, history, recipe, results, config.io.context)
        rereads = recipe.eval.history != before.history
        changed, asks = rereads or weights is not None, target is not None and recipe.model.acts_on_target()
        reacts = rereads or (asks and recipe.eval.target_return != before.target_return)  # other rows no longer hold
        rounds = weights is not None and weights != ("int8" if results.int8 else "float16")
        if (reacts or rounds) and not drop_seeds:
            _require_one_seed(staged, results)
        shutil.copytree(staged, folder, dirs_exist_ok=True)
        write_settings(folder, recipe)
        if weights is not None:
            limit = max(recipe.model.staged_bytes, (staged / WEIGHTS).stat().st_size)
            store_weights(folder, weights, limit, on_progress)
        if target is not None and not recipe.model.acts_on_target():
            results = results.model_copy(update=_renamed(results, recipe.eval.target_return))
        if target is None or changed or asks:
            measuring = Measuring(folder, results.dataset, trust_env_module, on_progress, Tally(on_episodes))
            results = results.model_copy(update=_measured(measuring, sweep_episodes if changed else None))
        results = results.model_copy(update=_emptied(reacts, rounds, drop_seeds))
        write_atomic(folder / RESULTS, results.to_json())
        write_card(folder, zoo=staged.resolve().parent)
    return results.headline


def _asked(target: str | None, history: int | None, recipe: Recipe, results: Results, context: int) -> Recipe:
    """The recipe with the new target and history, where they are given."""
    if target is not None:
        recipe = recipe.with_target(_choose(target, recipe, results))
    reads = recipe.eval.history if history is None else history or None
    check_history(reads, context)
    return recipe.with_history(None if reads == context else reads)


def _emptied(reacts: bool, rounds: bool, drop_seeds: bool) -> dict[str, Any]:
    """The rows that no longer hold, empty. `reacts`: agents act differently under the new settings."""
    if reacts:
        return {"best": None, "baselines": (), "seeds": ()}
    if rounds:
        return {"best": None, "seeds": ()}
    return {"seeds": ()} if drop_seeds else {}


def _require_one_seed(staged: Path, results: Results) -> None:
    if results.seeds:
        raise ConfigError(
            f"{staged} shows {counted(len(results.seeds), 'other training seed')}, whose weights it does not hold. "
            "Drop their rows (--drop-seeds); `agentzoo hub seeds` then measures finished runs of them anew."
        )


def _choose(target: str, recipe: Recipe, results: Results) -> Target:
    """The target; only a percentile needs the dataset."""
    returns = np.array([results.dataset.best_return])
    if target == "p90":
        returns = load_episodes(recipe.data.dataset, recipe.data.obs_keys).best(recipe.data.best_fraction).returns
    return choose_target(target, returns, recipe.eval.env, recipe.eval.env_options)


def _measured(measuring: Measuring, sweep_episodes: int | None) -> dict[str, Any]:
    """The new rows. If `sweep_episodes` is None, no sweep is played and its present rows stay."""
    measuring.plan(0, sweep_episodes or 0)
    found = measuring.headline()
    if sweep_episodes is not None:
        (measuring.folder / SWEEP_PLOT).unlink(missing_ok=True)
        found |= {"targets": (), "spearman": None, "plotted": False} | measuring.targets(sweep_episodes)
    return {**found, "filmed": measuring.film()}


def _renamed(results: Results, target: float) -> dict[str, Any]:
    """The rows of a clone, with the new target."""

    def one(row: Result) -> Result:
        command = None if row.command is None else re.sub(r"--target \S+", f"--target {target:.12g}", row.command)
        return row.model_copy(update={"target_return": target, "command": command})

    rows = {"headline": one(results.headline), "best": None if results.best is None else one(results.best)}
    return {**rows, "seeds": tuple(map(one, results.seeds)), "acting": tuple(map(one, results.acting))}
