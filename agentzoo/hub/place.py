"""Check that an agent may be staged in a folder of a zoo, before measuring or training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentzoo.config import AgentConfig
from agentzoo.errors import CheckpointError, StorageError
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.store.files import CONFIG, RECIPE, is_backbone
from agentzoo.store.locate import require_replaceable


def require_free_place(recipe: Recipe, final: Path, runs: Sequence[Path] = (), force: bool = False) -> None:
    """Raise unless an agent of this recipe may be staged at `final`: it is free, or holds the agent to replace.

    Args:
        runs: the runs that are staged or shown; none of them may be at `final`.
        force: also replace an agent of another environment, dataset or family.

    Raises:
        CheckpointError: `final` holds an agent of another environment, dataset or family. StorageError: `final` holds
            something other than a staged agent, or is one of the `runs`.
    """
    if final.exists():
        _require_apart(final, runs)
        if not force:
            _require_same_task(recipe, final)


def _require_apart(final: Path, runs: Sequence[Path]) -> None:
    """Raise StorageError unless the folder at `final` is a staged agent and none of the runs."""
    for run in runs:
        if run.resolve() == final.resolve():
            raise StorageError(f"{final} is the run itself and would be replaced. Stage into another --zoo.")
    require_replaceable(final)


def _require_same_task(recipe: Recipe, final: Path) -> None:
    """Raise CheckpointError unless the agent at `final` has the environment, dataset and family of `recipe`."""
    if is_backbone(final):
        raise CheckpointError(f"{final} holds a backbone, which agents start from. Stage into another --zoo.")
    config = read_record(AgentConfig, final / CONFIG)
    fields: list[tuple[str, Any, Any]] = [
        ("model.family", config.model.family, recipe.model.family),
        ("eval.env", config.env, recipe.eval.env),
        ("eval.env_options", config.env_options, recipe.eval.env_options),
    ]
    if (final / RECIPE).is_file():
        fields.append(("data.dataset", read_record(Recipe, final / RECIPE).data.dataset, recipe.data.dataset))
    other = [f"its {name} is {there!r} instead of {new!r}" for name, there, new in fields if there != new]
    if other:
        raise CheckpointError(
            f"{final} holds another agent, {config.agent_id}: {'; '.join(other)}. Replace it with --force "
            "(force=True), or stage into another --zoo."
        )
