"""Methods and tasks: their names, and rliable's statistics over the tasks that methods share.

A method is an agent's id without its task: `dt`, `gpt2-dt-scratch`. A task is a dataset: `hopper-medium`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from itertools import chain, combinations, count
from typing import NamedTuple

import numpy as np

from agentzoo.evaluation.statistics import (
    Estimate,
    Profile,
    Scores,
    aggregate,
    performance_profile,
    probability_of_improvement,
)
from agentzoo.types import FloatArray

MAX_TASKS = 12  # all subsets of this many tasks can be tried
THRESHOLDS = np.linspace(0.0, 110.0, 56)  # of profiles; more where a score is outside
MOST_THRESHOLDS = 500
_DATASET = re.compile(r"^(?:zoo/)?(?P<task>.+?)(?:-v\d+)?$")


class Methods(NamedTuple):
    """Methods over the tasks that all of them were trained on."""

    tasks: tuple[str, ...]
    means: Mapping[str, Estimate]  # interquartile, by method, best first
    runs: Mapping[str, int]
    profiles: Mapping[str, Profile]  # all at `thresholds_of` these runs
    improvement: Mapping[tuple[str, str], Estimate]  # how likely a run of the first beats one of the second

    @property
    def single(self) -> tuple[str, ...]:
        """Methods with one run per task; their intervals have zero width and no meaning."""
        return tuple(name for name, runs in self.runs.items() if runs == len(self.tasks))

    @property
    def thresholds(self) -> FloatArray:
        """The thresholds of all profiles."""
        return next(iter(self.profiles.values())).thresholds


def task_of(dataset: str) -> str:
    """`zoo/hopper/medium-v0` -> `hopper-medium`; in any other namespace, the whole name with dashes."""
    found = _DATASET.match(dataset)
    return (found["task"] if found else dataset).replace("/", "-")


def method_of(agent_id: str, family: str, task: str) -> str:
    """`unimask-doorkey` on the task `doorkey-train-500` is `unimask`: an id may hold the first words of its task."""
    if f"-{task}" in agent_id:
        return agent_id.replace(f"-{task}", "", 1)
    rest = agent_id.removeprefix(f"{family}-")
    return family if rest != agent_id and task.startswith(rest) else agent_id


def unused(name: str, taken: Collection[str]) -> str:
    """`name`, or `name (2)` and so on if it is taken."""
    numbered = (f"{name} ({number})" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def compare_methods(scores: Mapping[str, Scores]) -> Methods | None:
    """Statistics over the tasks that most methods share; None if no two methods share a task.

    Args:
        scores: method -> task -> the normalized score of each run.

    Raises:
        DataError: a task without runs, or a number that is not finite.
    """
    tasks = _shared(scores)
    methods = {name: {task: runs[task] for task in tasks} for name, runs in scores.items() if set(tasks) <= runs.keys()}
    if not tasks or len(methods) < 2:
        return None
    means = {name: aggregate(runs) for name, runs in methods.items()}
    order = sorted(means, key=lambda name: -means[name].value)
    levels = thresholds_of(methods)
    return Methods(
        tasks,
        {name: means[name] for name in order},
        {name: sum(map(len, methods[name].values())) for name in order},
        {name: performance_profile(methods[name], levels) for name in order},
        {
            (first, second): probability_of_improvement(methods[first], methods[second])
            for first in order
            for second in order
            if first != second
        },
    )


def thresholds_of(methods: Mapping[str, Scores]) -> FloatArray:
    """`THRESHOLDS`, continued in equal steps until no score is outside, so that every profile goes from 1 to 0."""
    values = [score for runs in methods.values() for each in runs.values() for score in each]
    step = float(THRESHOLDS[1] - THRESHOLDS[0])
    low = min(0, math.ceil(min(values) / step) - 1)  # below the lowest score, where the share above is 1
    high = max(len(THRESHOLDS) - 1, math.ceil(max(values) / step))
    return np.linspace(step * low, step * high, min(high - low + 1, MOST_THRESHOLDS))


def _shared(scores: Mapping[str, Scores]) -> tuple[str, ...]:
    """The set of tasks with the most (method, task) pairs in which every method has every task."""
    known = sorted({task for runs in scores.values() for task in runs})
    if len(known) > MAX_TASKS:
        known = sorted(known, key=lambda task: -sum(task in runs for runs in scores.values()))[:MAX_TASKS]
    best: tuple[int, tuple[str, ...]] = (0, ())
    for size in range(1, len(known) + 1):
        for tasks in combinations(known, size):
            sharing = sum(set(tasks) <= runs.keys() for runs in scores.values())  # methods
            if sharing > 1 and sharing * size > best[0]:
                best = (sharing * size, tasks)
    return best[1]
