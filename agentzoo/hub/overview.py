"""What is here, at a glance: read without PyTorch, so that `agentzoo list` answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from agentzoo.errors import AgentzooError, ConfigError
from agentzoo.recipes._table import Row, recipe_rows
from agentzoo.record import Config, read_record
from agentzoo.registry import family_names
from agentzoo.store.files import CONFIG, RECIPE, RESULTS
from agentzoo.store.locate import check_links, staged_agents
from agentzoo.text import fixed

Seconds = Annotated[float, Field(ge=0.0)]


class Summary(Config):
    """One line of `agentzoo list`."""

    agent_id: str
    staged: bool
    family: str | None = None
    env: str | None = None
    target: float | None = None
    steps: int | None = None
    dataset: str | None = None
    mean_return: float | None = None
    data_return: float | None = None  # mean return of the episodes it was trained on
    score: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None  # of its training, as measured there
    problem: str | None = None  # why a folder of the local zoo cannot be read; nothing else is known then

    def shown_score(self) -> str:
        """`93.7 [92.4, 94.9]`, or nothing where there is no score with an interval."""
        if self.score is None or self.low is None or self.high is None:
            return ""
        return f"{fixed(self.score, 1)} [{fixed(self.low, 1)}, {fixed(self.high, 1)}]"


def overview() -> list[Summary] | None:
    """What `zoo.summaries` finds, with checks of the shown fields alone.

    Returns:
        None where a folder cannot be read at a glance: `summaries` then says what is wrong with it.
    """
    found = packaged()
    for agent_id, folder in staged_agents().items():
        try:
            found[agent_id] = summary_of(agent_id, folder, found.get(agent_id))
        except AgentzooError:
            return None
    return [found[name] for name in sorted(found)]


def packaged() -> dict[str, Summary]:
    """Agent id -> line of every packaged recipe."""
    return {agent_id: _of_row(row) for agent_id, row in recipe_rows().items()}


def _of_row(row: Row) -> Summary:
    return Summary(staged=False, **row._asdict())


def summary_of(agent_id: str, folder: Path, recipe: Summary | None) -> Summary:
    """The line of a staged agent.

    Args:
        recipe: the line of the packaged recipe of this id, where there is one.

    Raises:
        CheckpointError, ConfigError: a file cannot be used.
    """
    check_links(folder)
    config = read_record(_Config, folder / CONFIG)
    if config.model.family not in family_names():
        raise ConfigError(f"{folder / CONFIG} cannot be used: no family {config.model.family!r}.")
    fields: dict[str, Any] = {
        "agent_id": agent_id,
        "staged": True,
        "family": config.model.family,
        "env": config.env,
        "target": config.target_return,
    }
    if (folder / RECIPE).exists():
        trained = read_record(_Recipe, folder / RECIPE)
        fields |= {"steps": trained.train.steps, "dataset": trained.data.dataset}
    if (folder / RESULTS).is_file():
        fields |= read_record(_Results, folder / RESULTS).fields("steps" in fields)
    start = recipe or Summary(agent_id=agent_id, staged=True, steps=0)
    return start.model_copy(update=fields)


class _Part(Config):
    """Some fields of a record; the others are for those who load it."""

    model_config = ConfigDict(extra="ignore")


class _Model(_Part):
    family: str


class _Config(_Part):
    model: _Model
    env: str | None
    target_return: float


class _Train(_Part):
    steps: int


class _Data(_Part):
    dataset: str


class _Recipe(_Part):
    train: _Train
    data: _Data


class _Headline(_Part):
    mean_return: float
    score: float | None
    score_interval: tuple[float, float] | None


class _Dataset(_Part):
    mean_return: float


class _Training(_Part):
    seconds: Seconds
    updates: int | None = None


class _Results(_Part):
    headline: _Headline
    dataset: _Dataset
    training: _Training

    def fields(self, has_recipe: bool) -> dict[str, Any]:
        """Of a `Summary`; updates only where the recipe says what they are of."""
        head, low_high = self.headline, self.headline.score_interval
        found: dict[str, Any] = {
            "mean_return": head.mean_return,
            "score": head.score,
            "data_return": self.dataset.mean_return,
            "seconds": self.training.seconds,
        }
        if low_high is not None:
            found |= {"low": low_high[0], "high": low_high[1]}
        if has_recipe and self.training.updates:
            found["steps"] = self.training.updates
        return found
