"""The records of an agent's folder."""

from __future__ import annotations

from pathlib import Path

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.errors import CheckpointError
from agentzoo.evaluation.results import Result, Results
from agentzoo.evaluation.rollout import is_deterministic
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.store.files import CONFIG, LOG, RECIPE, RESULTS, SWEEP_PLOT, VIDEO, write_atomic


def read_records(folder: Path) -> tuple[AgentConfig, Recipe, Results]:
    """The three records that a card needs.

    Raises:
        CheckpointError: a record is missing. ConfigError: a record cannot be used.
    """
    return (
        read_record(AgentConfig, folder / CONFIG),
        read_record(Recipe, folder / RECIPE),
        read_record(Results, folder / RESULTS),
    )


def write_settings(folder: Path, recipe: Recipe) -> None:
    """Write the recipe, and its target return and history into the config."""
    write_atomic(folder / RECIPE, recipe.to_json())
    config = read_record(AgentConfig, folder / CONFIG)
    asked = {"target_return": recipe.eval.target_return, "history": recipe.eval.history}
    write_atomic(folder / CONFIG, config.model_copy(update=asked).to_json())


def unlike_record(agent: Agent, head: Result) -> str:
    """How a loaded agent acts and how its headline was measured, where they differ; else an empty string.

    For example `history is None, measured with 5`.
    """
    acts = {
        "target_return": (agent.target_return, head.target_return),
        "acting": (agent.acting, head.acting),
        "history": (agent.history_in_use, head.history),
        "deterministic": (is_deterministic(agent), head.deterministic),
    }
    return "; ".join(f"{name} is {own}, measured with {then}" for name, (own, then) in acts.items() if own != then)


def require_promised(folder: Path) -> None:
    """Raise CheckpointError unless all files that the card shows or names exist."""
    results = read_records(folder)[2]
    studies = [one.picture for one in results.studies if one.picture is not None]
    shown = [VIDEO] * results.filmed + [SWEEP_PLOT] * bool(results.targets and results.plotted)
    missing = [name for name in (LOG, *shown, *studies) if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} lacks {', '.join(missing)}, which its card shows. Loading from the Hub downloads only the files "
            "an agent needs; `agentzoo hub pull` downloads all."
        )
