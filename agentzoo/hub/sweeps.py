"""Facts about a sweep over target returns, for a card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from agentzoo.evaluation.results import Result
from agentzoo.evaluation.scores import mean_interval

REACTS = 0.2  # if achieved returns span less than this share of the targets' span, the agent hardly reacts
TELLING = 10  # episodes per target that are needed to judge further gains


class SweepFacts(NamedTuple):
    """asked, achieved: (min, max). flat: the agent hardly reacts. enough: higher targets show no further gain."""

    asked: tuple[float, float]
    achieved: tuple[float, float]
    flat: bool
    enough: float | None


def sweep_facts(targets: Sequence[Result]) -> SweepFacts:
    """Summarize whether the agent follows its target, which a rank correlation does not show."""
    asked = extremes(one.target_return for one in targets)
    achieved = extremes(one.mean_return for one in targets)
    if achieved[1] - achieved[0] <= REACTS * (asked[1] - asked[0]):
        return SweepFacts(asked, achieved, asked[1] > asked[0], None)
    if min(one.episodes for one in targets) < TELLING:
        return SweepFacts(asked, achieved, False, None)
    best = max(targets, key=lambda one: one.mean_return)
    enough = min(one.target_return for one in targets if not _surely_less(one, best))
    return SweepFacts(asked, achieved, False, None if enough == asked[1] else enough)


def _surely_less(one: Result, best: Result) -> bool:
    """Whether `one` is below `best`: the 95 % interval of the difference, paired by episode seed, lies above 0."""
    if (one.seed, len(one.returns)) != (best.seed, len(best.returns)):
        return one.return_interval[1] < best.return_interval[0]
    return mean_interval(np.subtract(best.returns, one.returns))[0] > 0.0


def extremes(values: Iterable[float]) -> tuple[float, float]:
    """(min, max) of the values."""
    found = list(values)
    return min(found), max(found)
