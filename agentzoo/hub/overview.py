"""A quick summary of all agents, read without PyTorch, so that `agentzoo list` is fast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

from agentzoo.errors import AgentzooError, ConfigError
from agentzoo.recipes._table import Row, recipe_rows
from agentzoo.record import Config, read_record
from agentzoo.registry import CLONE, family_names
from agentzoo.store.files import CONFIG, RECIPE, RESULTS
from agentzoo.store.locate import check_links, staged_agents
from agentzoo.text import fixed

if TYPE_CHECKING:
    from agentzoo.evaluation.results import Result

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
    steps_to_goal: float | None = None  # mean over episodes and training seeds, where episodes end at a goal
    data_return: float | None = None  # mean return of the episodes of its data, held-out ones included
    score: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None  # duration of its training, on the machine that trained it
    on_gpu: bool = False  # whether a part of its training ran on a GPU
    seeds: tuple[tuple[float, float | None], ...] = ()  # (return, score) of each training seed, this one first
    clone: Summary | None = None  # behaviour cloning on the same data
    problem: str | None = None  # why a folder of the local zoo cannot be read; nothing else is known then

    def typical_return(self) -> float | None:
        """The mean over training seeds."""
        return fmean(one for one, _ in self.seeds) if self.seeds else self.mean_return

    def typical_score(self) -> float | None:
        """The mean over training seeds, where all have one."""
        scores = self._scores()
        return fmean(scores) if scores else self.score

    def as_shown(self) -> dict[str, Any]:
        """For JSON: return, score and interval are means over training seeds, as in the table; `seeds` has each."""
        low, high = self.score_interval() or (None, None)
        means = {"mean_return": self.typical_return(), "score": self.typical_score(), "low": low, "high": high}
        return {**self.model_dump(), **means, "clone": None if self.clone is None else self.clone.as_shown()}

    def _scores(self) -> list[float]:
        found = [score for _, score in self.seeds if score is not None]
        return found if 1 < len(found) == len(self.seeds) else []

    def shown_score(self) -> str:
        """`93.7 [92.4, 94.9]`, or an empty string without a score and an interval.

        Mean and interval are over training seeds if there are several, else over episodes.
        """
        score, interval = self.typical_score(), self.score_interval()
        if score is None or interval is None:
            return ""
        return f"{fixed(score, 1)} [{fixed(interval[0], 1)}, {fixed(interval[1], 1)}]"

    def score_interval(self) -> tuple[float, float] | None:
        """The interval of `typical_score`; None if the record has none."""
        if scores := self._scores():
            return interval_over(scores)
        return None if self.low is None or self.high is None else (self.low, self.high)


def interval_over(values: list[float]) -> tuple[float, float]:
    """`mean_interval`. For up to three numbers it is their range: a resample holds the lowest only once in 27 draws."""
    if len(values) <= 3:
        return min(values), max(values)
    from agentzoo.evaluation.scores import mean_interval  # imports NumPy, which `agentzoo list` rarely needs

    return mean_interval(values)  # type: ignore[arg-type]


def overview() -> list[Summary] | None:
    """Like `zoo.summaries`, but it checks only the shown fields.

    Returns:
        None if a folder cannot be read this way; `summaries` then reports the problem.
    """
    found = packaged()
    for agent_id, folder in staged_agents().items():
        try:
            found[agent_id] = summary_of(agent_id, folder, found.get(agent_id))
        except AgentzooError:
            return None
    return [found[name] for name in sorted(found)]


def packaged() -> dict[str, Summary]:
    """Agent id -> summary of every packaged recipe."""
    return {agent_id: _of_row(row) for agent_id, row in recipe_rows().items()}


def _of_row(row: Row) -> Summary:
    return Summary(staged=False, **row._asdict())


def summary_of(agent_id: str, folder: Path, recipe: Summary | None) -> Summary:
    """The summary of a staged agent.

    Args:
        recipe: the summary of the packaged recipe with this id, if there is one.

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
        fields |= {"steps": trained.train.steps, "dataset": trained.data.dataset, "on_gpu": trained.on_gpu()}
    if (folder / RESULTS).is_file():
        fields |= read_record(_Results, folder / RESULTS).fields("steps" in fields)
    start = recipe or Summary(agent_id=agent_id, staged=True, steps=0)
    return start.model_copy(update=fields)


class _Part(Config):
    """A part of a record; other fields are ignored."""

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


class _Stretch(_Part):
    devices: tuple[str, ...]


class _Recipe(_Part):
    train: _Train
    data: _Data
    ran: tuple[_Stretch, ...] = ()

    def on_gpu(self) -> bool:
        return any(not device.startswith("cpu") for one in self.ran for device in one.devices)


class _Headline(_Part):
    mean_return: float
    score: float | None
    score_interval: tuple[float, float] | None
    lengths: Annotated[tuple[int, ...], Field(min_length=1)]
    success_rate: float | None

    @property
    def ends_at_goal(self) -> bool:
        """As `Result.ends_at_goal`."""
        return self.success_rate is not None and len(set(self.lengths)) > 1


class _Dataset(_Part):
    mean_return: float


class _Yardstick(_Part):
    method: str
    result: _Headline


class _Training(_Part):
    seconds: Seconds
    updates: int | None = None


def measured(seeds: Sequence[_Headline | Result]) -> dict[str, Any]:
    """Fields of a `Summary` from the results of one or more training seeds; the interval is the first one's."""
    low, high = seeds[0].score_interval or (None, None)
    each = tuple((one.mean_return, one.score) for one in seeds)
    steps = fmean(fmean(one.lengths) for one in seeds) if seeds[0].ends_at_goal else None
    found = {"mean_return": each[0][0], "score": each[0][1], "seeds": each, "low": low, "high": high}
    return {**found, "steps_to_goal": steps}


class _Results(_Part):
    headline: _Headline
    dataset: _Dataset
    training: _Training
    seeds: tuple[_Headline, ...] = ()
    yardsticks: tuple[_Yardstick, ...] = ()

    def fields(self, has_recipe: bool) -> dict[str, Any]:
        """Fields of a `Summary`; updates only if there is a recipe."""
        head = self.headline
        found = {
            **measured((head, *self.seeds)),
            "data_return": self.dataset.mean_return,
            "seconds": self.training.seconds,
        }
        clones = [one.result for one in self.yardsticks if one.method == CLONE]
        if clones:
            found["clone"] = Summary(agent_id=CLONE, staged=False, **measured(clones))
        if has_recipe and self.training.updates:
            found["steps"] = self.training.updates
        return found
