"""Baselines: simpler methods measured on the same data and episodes, and the comparison of an agent with them.

`hub_cards/baselines.json` holds one row per training run of each method. The results of an agent hold a copy of the
rows for its dataset, so that a card depends only on its own folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentzoo.evaluation.results import Baseline, Result
from agentzoo.recipe import DatasetId
from agentzoo.record import read_record
from agentzoo.registry import CLONE as CLONE
from agentzoo.store.exclusive import exclusive, lock_beside
from agentzoo.store.files import write_atomic
from agentzoo.store.locate import ZOO_VARIABLE
from agentzoo.types import Config

BASELINES = "baselines.json"
SEVERAL = 3  # from this number of training seeds on, seeds are resampled too
RESAMPLES = 9_999
ROUNDING = 1e-12  # of weighted means, relative to the largest value

Floats = NDArray[np.float64]
Verdict = Literal["beats", "ties", "loses"]


class Baselines(Config):
    """`baselines.json`: the rows of each dataset, by method and training seed."""

    datasets: dict[DatasetId, Annotated[tuple[Baseline, ...], Field(max_length=100)]] = Field(default_factory=dict)

    def with_row(self, dataset: str, row: Baseline) -> Baselines:
        """A copy with this row added; it replaces a row of the same method and training seed."""
        key = (row.method, row.result.training_seed)
        kept = [one for one in self.datasets.get(dataset, ()) if (one.method, one.result.training_seed) != key]
        rows = sorted([*kept, row], key=lambda one: (METHODS.index(one.method), one.result.training_seed or 0))
        return Baselines(datasets=dict(sorted({**self.datasets, dataset: tuple(rows)}.items())))


METHODS = ("bc", "td3+bc", "iql", "cql")


def read_baselines(path: Path) -> Baselines:
    """Read the record at `path`; an empty record if there is no file.

    Raises:
        ConfigError: its content cannot be used.
    """
    return read_record(Baselines, path) if path.is_file() else Baselines()


def write_baselines(path: Path, baselines: Baselines) -> None:
    """Write the record atomically."""
    write_atomic(path, baselines.to_json())


def add_row(path: Path, dataset: str, row: Baseline) -> None:
    """Add a row to the record at `path` (`Baselines.with_row`); rows that other processes add at the same time stay.

    Raises:
        ConfigError: its content cannot be used. StorageError: it cannot be written.
    """
    with exclusive(lock_beside(path), ZOO_VARIABLE):
        write_baselines(path, read_baselines(path).with_row(dataset, row))


class Comparison(NamedTuple):
    """The mean difference between two sides and its 95 % interval."""

    difference: float
    low: float
    high: float
    less_is_better: bool = False

    @property
    def verdict(self) -> Verdict:
        """The result for the first side; a tie if the interval contains 0."""
        if self.low <= 0.0 <= self.high:
            return "ties"
        return "beats" if (self.difference > 0.0) != self.less_is_better else "loses"


def paired_difference(ours: Floats, theirs: Floats, resamples: int = RESAMPLES) -> tuple[float, float, float]:
    """Mean of `ours` minus mean of `theirs`, and its 95 % interval by a paired bootstrap.

    Column e of both sides is the same episode seed, so both sides use the same resampled episodes. Training seeds are
    resampled too if a side has at least three; fewer are averaged.

    Args:
        ours, theirs: (training seeds, episodes).
    """
    drawn, rng = _episode_weights(ours.shape[1], resamples)
    difference = _resampled(ours, drawn, rng) - _resampled(theirs, drawn, rng)
    found = np.array([ours.mean() - theirs.mean(), *np.percentile(difference, [2.5, 97.5])])
    rounding = ROUNDING * max(np.abs(ours).max(), np.abs(theirs).max())
    mean, low, high = np.where(np.abs(found) <= rounding, 0.0, found)  # else equal returns would not be a tie
    return float(mean), float(low), float(high)


def _episode_weights(episodes: int, resamples: int) -> tuple[Floats, np.random.Generator]:
    """(R, E) weights of the resampled episodes, and a generator for what is drawn next."""
    drawn, state = _draw_weights(episodes, resamples)
    rng = np.random.default_rng()
    rng.bit_generator.state = state
    return drawn, rng


@lru_cache(maxsize=4)  # 8 MB each; a table compares many agents on the same number of episodes
def _draw_weights(episodes: int, resamples: int) -> tuple[Floats, Mapping[str, Any]]:
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=resamples) / episodes
    drawn.flags.writeable = False
    return drawn, rng.bit_generator.state


def _resampled(values: Floats, episodes: Floats, rng: np.random.Generator) -> Floats:
    """(R,) means of (seeds, E) values with (R, E) episode weights; seeds are resampled if there are enough."""
    seeds = len(values)
    each = episodes @ values.T  # (R, seeds)
    if seeds < SEVERAL:
        return np.asarray(each.mean(axis=1))
    weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=len(episodes)) / seeds
    return np.asarray((each * weights).sum(axis=1))


class Compared(NamedTuple):
    """An agent compared with behaviour cloning on its dataset."""

    returns: Comparison
    score: Comparison | None  # in points; None if the environment has no references
    steps: Comparison | None  # fewer are better; None if episodes do not end at a goal
    seeds: int  # training seeds of the agent
    clones: int  # training seeds of the clone
    episodes: int

    @property
    def resampled(self) -> bool:
        """Whether training seeds were resampled on at least one side."""
        return max(self.seeds, self.clones) >= SEVERAL

    @property
    def verdict(self) -> Verdict:
        """The result by return; if returns tie, by steps to the goal."""
        if self.returns.verdict == "ties" and self.steps is not None:
            return self.steps.verdict
        return self.returns.verdict


def comparable(head: Result, rows: Sequence[Baseline]) -> list[Baseline]:
    """The rows measured on the same episodes as `head`: same environment, options, seed and number of episodes."""
    return [one for one in rows if _on_same_episodes(one.result, head)]


def _on_same_episodes(one: Result, other: Result) -> bool:
    """Whether two evaluations played the same episodes; options count if both records hold them."""
    if None not in (one.env_options, other.env_options) and one.env_options != other.env_options:
        return False
    first, second = ((each.env, each.seed, len(each.returns), len(each.lengths)) for each in (one, other))
    return first == second


def compare_with_clones(own: Sequence[Result], rows: Sequence[Baseline]) -> Compared | None:
    """Compare an agent with behaviour cloning; None if no clone was measured on the same episodes.

    Args:
        own: the headline result first, then other training seeds of the same recipe.
    """
    head = own[0]
    clones = [one.result for one in comparable(head, rows) if one.method == CLONE]
    own = [one for one in own if _on_same_episodes(one, head)]
    if not clones or len(head.returns) != len(head.lengths):
        return None
    difference, low, high = paired_difference(_table(own, "returns"), _table(clones, "returns"))
    score = None
    if head.reference is not None:
        points = 100.0 / (head.reference.expert - head.reference.random)
        score = Comparison(points * difference, points * low, points * high)
    steps = None
    if head.success_rate is not None:
        steps = Comparison(*paired_difference(_table(own, "lengths"), _table(clones, "lengths")), less_is_better=True)
    return Compared(Comparison(difference, low, high), score, steps, len(own), len(clones), len(head.returns))


def _table(results: Sequence[Result], field: Literal["returns", "lengths"]) -> Floats:
    """(training seeds, episodes)."""
    return np.array([getattr(one, field) for one in results], dtype=np.float64)
