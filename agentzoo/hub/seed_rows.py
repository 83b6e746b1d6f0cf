"""`agentzoo hub seeds`: show runs of a staged agent's recipe with other training seeds on its card."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentzoo.errors import ConfigError
from agentzoo.evaluation.results import Results
from agentzoo.hub.card import write_card
from agentzoo.hub.finished_runs import load_finished
from agentzoo.hub.records import read_records, require_promised
from agentzoo.hub.staging_measurements import Measuring, Tally
from agentzoo.recipe import Recipe, differences
from agentzoo.store.exclusive import only_writer
from agentzoo.store.files import RESULTS, write_atomic
from agentzoo.store.locate import written_whole

ACTING = ("target_return", "target_rule", "history", "reference")  # set by staging, for all seeds alike


def add_seeds(
    staged: Path,
    runs: Sequence[Path],
    *,
    trust_env_module: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
    on_episodes: Callable[[int, int], None] = lambda *_: None,
) -> Results:
    """Measure runs as the staged agent is measured, and add them to its record and its card.

    The agent itself is not measured again. A row replaces one of the same training seed. The folder is replaced as a
    whole or not at all.

    Args:
        staged: the agent's folder.
        runs: finished runs of its recipe, each with another training seed.
        on_progress: called with each step that begins.
        on_episodes: called with the number of episodes played so far and of those in all.

    Returns:
        The record with all rows, in the order of their training seeds.

    Raises:
        CheckpointError: a run is not finished, or a record or a file that the card shows is missing. ConfigError: a run
            of another recipe, or with a training seed that is taken. StorageError: another command is changing the
            folder.
    """
    with only_writer(staged), written_whole(staged) as folder:
        _, recipe, results = read_records(staged)
        require_promised(staged)
        require_other_seeds(recipe, runs, trust_env_module)
        shutil.copytree(staged, folder, dirs_exist_ok=True)
        measuring = Measuring(folder, results.dataset, trust_env_module, on_progress, tally := Tally(on_episodes))
        tally.plan(recipe.eval.episodes * len(runs))
        rows = {one.training_seed: one for one in (*results.seeds, *map(measuring.other_seed, runs))}
        seeds = tuple(sorted(rows.values(), key=lambda one: one.training_seed or 0))
        results = results.model_copy(update={"seeds": seeds})
        write_atomic(folder / RESULTS, results.to_json())
        write_card(folder, zoo=staged.resolve().parent)
    return results


def require_other_seeds(recipe: Recipe, runs: Sequence[Path], trust: bool) -> None:
    """Raise ConfigError unless the runs are trainings by `recipe`, each with a training seed of its own.

    What staging sets, such as the target return, may differ, and so may the precision, which is that of the machine.
    """
    known = {recipe.train.seed}
    for path in runs:
        other = load_finished(path, trust).recipe
        assert other is not None
        if other.train.seed in known:
            raise ConfigError(f"{path} has training seed {other.train.seed} again; each run needs another seed.")
        known.add(other.train.seed)
        acting = {name: getattr(recipe.eval, name) for name in ACTING}
        precision = {"precision": recipe.train.precision}
        other = other.replace(eval=other.eval.model_copy(update=acting), train=other.train.model_copy(update=precision))
        hint = " A run of another recipe is a --baseline of `agentzoo hub stage`, not another seed."
        require_alike(path, recipe, differences(recipe.unseeded(), other.unseeded()), hint)


def require_alike(path: Path, recipe: Recipe, changed: Mapping[str, tuple[Any, Any]], hint: str = "") -> None:
    """Raise ConfigError, with the fields that differ, unless `changed` is empty."""
    if changed:
        differs = "; ".join(f"{name} is {new!r} instead of {old!r}" for name, (old, new) in changed.items())
        raise ConfigError(f"{path} cannot be shown beside {recipe.agent_id}: {differs}.{hint}")
