"""The numbers that an agent's page and the leaderboard compare: one quantity per task, and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from agentzoo.evaluation.baselines import METHODS, comparable
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.scores import mean_interval
from agentzoo.hub.lines import NAMES
from agentzoo.hub.paper_scores import Published
from agentzoo.site.entries import Entry
from agentzoo.site.plot import Axis, Mark
from agentzoo.text import amount, fixed

Unit = Literal["score", "steps", "return"]
TITLES = {"score": "normalized score", "steps": "steps of an episode, fewer are better", "return": "return"}


class Quantity(NamedTuple):
    """(value, low, high) of one evaluation or one paper."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def printed(cls, paper: Published) -> Quantity:
        """A paper's number and its spread."""
        return (
            cls(paper.score)
            if paper.spread is None
            else cls(paper.score, paper.score - paper.spread, paper.score + paper.spread)
        )

    def said(self, unit: Unit) -> str:
        """`84.6 [81.1, 87.9]`."""
        write = (lambda value: fixed(value, 1)) if unit == "score" else amount
        if self.low is None or self.high is None:
            return write(self.value)
        return f"{write(self.value)} [{write(self.low)}, {write(self.high)}]"


def unit_of(entry: Entry) -> Unit:
    """A task's unit: scores if there are references, steps if episodes end at a goal (as in papers), else returns."""
    head = entry.head
    if head is None or head.score is not None:
        return "score"
    return "steps" if entry.ends_at_goal else "return"


def quantity(result: Result, unit: Unit) -> Quantity | None:
    """The quantity of one evaluation; None if its record lacks it."""
    if unit == "score":
        return None if result.score is None else Quantity(result.score, *(result.score_interval or ()))
    if unit == "return":
        return Quantity(result.mean_return, *result.return_interval)
    return Quantity(result.mean_length, *mean_interval(np.array(result.lengths))) if result.lengths else None


def mean_of(results: Sequence[Result], unit: Unit) -> Quantity | None:
    """The mean over several trainings with an interval over them; for one training, its own."""
    found = [one for one in (quantity(result, unit) for result in results) if one is not None]
    if len(found) < 2:
        return found[0] if found else None
    values = np.array([one.value for one in found])
    return Quantity(float(values.mean()), *mean_interval(values))


def marks(entry: Entry) -> list[Mark]:
    """The rows of an agent's plot: itself, its seeds, simpler methods, other families, papers."""
    head, unit = entry.head, unit_of(entry)
    if head is None or entry.results is None:
        return []
    rows = [("this agent", quantity(head, unit), "own")]
    rows += [(f"training seed {one.training_seed}", quantity(one, unit), "seed") for one in entry.results.seeds]
    if entry.results.seeds:
        rows.append((f"mean of {len(entry.trainings)} seeds", mean_of(entry.trainings, unit), "own"))
    alike = comparable(head, entry.rows)
    for method in METHODS:
        if several := [one.result for one in alike if one.method == method]:
            seeds = f", {len(several)} seeds" if len(several) > 1 else ""
            rows.append((f"{NAMES[method].replace('`', '')}{seeds}", mean_of(several, unit), "method"))
    others: dict[str, list[Result]] = {}
    for one in entry.results.baselines:
        others.setdefault(one.agent_id, []).append(one)
    for name, results in others.items():
        seeds = f", {len(results)} seeds" if len(results) > 1 else ""
        rows.append((f"{name}{seeds}", mean_of(results, unit), "other"))
    for paper in entry.published:
        if paper.unit == unit:
            rows.append((f"published: {short_source(paper.source)}", Quantity.printed(paper), "published"))
    return [Mark(label, one.said(unit), *one, kind) for label, one, kind in rows if one is not None]


def short_source(source: str) -> str:
    """`Chen et al. 2021, arXiv:2106.01345` -> `Chen et al. 2021`."""
    return source.partition(", arXiv")[0].partition(" (arXiv")[0]


def axis_of(found: Sequence[Mark], unit: Unit) -> Axis:
    """An axis from 0 to beyond the farthest row; for scores at least to 100."""
    ends = [value for mark in found for value in (mark.value, mark.low, mark.high) if value is not None]
    return Axis.over(TITLES[unit], [*ends, *([100.0] if unit == "score" else [])], room=0.03, zero=True)
