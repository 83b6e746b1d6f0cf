"""Facts about a sweep over target returns, for a card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from agentzoo.evaluation.results import Result
from agentzoo.evaluation.scores import mean_interval

MIN_REACTION = 0.2  # if achieved returns span at most this share of the targets' span, the agent hardly reacts
MIN_EPISODES = 10  # per target, to judge whether higher targets gain more


class SweepFacts(NamedTuple):
    """What a sweep shows.

    asked, achieved: (min, max) in raw env units. flat: the agent hardly reacts to its target. saturates_at: the target
    above which returns gain no more; None if they still rise or the episodes are too few to judge.
    """

    asked: tuple[float, float]
    achieved: tuple[float, float]
    flat: bool
    saturates_at: float | None

    @property
    def gains_nothing(self) -> bool:
        """Whether even the lowest target returns as much as any."""
        return self.saturates_at == self.asked[0]


def sweep_facts(targets: Sequence[Result]) -> SweepFacts:
    """Whether the agent follows its target, and by how much: a rank correlation ignores the size of a change."""
    asked = extremes(one.target_return for one in targets)
    achieved = extremes(one.mean_return for one in targets)
    if asked[0] == asked[1]:  # a single target
        return SweepFacts(asked, achieved, False, None)
    if achieved[1] - achieved[0] <= MIN_REACTION * (asked[1] - asked[0]):
        return SweepFacts(asked, achieved, True, None)
    if min(one.episodes for one in targets) < MIN_EPISODES:
        return SweepFacts(asked, achieved, False, None)
    best = max(targets, key=lambda one: one.mean_return)
    saturates_at = min(one.target_return for one in targets if not _surely_less(one, best))
    return SweepFacts(asked, achieved, False, None if saturates_at == asked[1] else saturates_at)


def _surely_less(one: Result, best: Result) -> bool:
    """Whether `one` is below `best`: the 95 % interval of the difference, paired by episode seed, lies above 0."""
    if (one.seed, len(one.returns)) != (best.seed, len(best.returns)):
        return one.return_interval[1] < best.return_interval[0]
    return mean_interval(np.subtract(best.returns, one.returns))[0] > 0.0


def extremes(values: Iterable[float]) -> tuple[float, float]:
    """(min, max) of the values."""
    found = list(values)
    return min(found), max(found)
