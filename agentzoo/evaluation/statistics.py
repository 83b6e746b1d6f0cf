"""Statistics over training seeds and tasks: interquartile mean, performance profile, probability of improvement.

A run is one training seed, a task is one dataset; every function reads one number per run and task, usually the mean
score over an evaluation's episodes. Intervals are over runs. They answer a different question than intervals over the
episodes of one run (`scores.mean_interval`): would a new training do as well?

Source: Agarwal et al. 2021, arXiv:2108.13264 (rliable); `convergence` names its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.errors import DataError
from agentzoo.types import FloatArray

Scores = Mapping[str, Sequence[float]]  # task -> the score of each run; tasks may have different numbers of runs
RESAMPLES = 2_000
AGGREGATE_RESAMPLES = 50_000  # as in rliable
AT_ONCE = 1_000  # resamples in memory, where runs are repeated until all tasks have equally many


class Estimate(NamedTuple):
    """A figure with its 95 % interval over runs."""

    value: float
    low: float
    high: float


class Profile(NamedTuple):
    """Share of runs and tasks above each threshold; all arrays are (T,)."""

    thresholds: FloatArray
    share: FloatArray
    low: FloatArray
    high: FloatArray


class Converged(NamedTuple):
    """When a training was first as good as at its end; `seconds` are those of updates, without evaluations."""

    updates: int
    seconds: float


def interquartile_mean(values: FloatArray) -> float:
    """Mean of what is left of (n,) values without the floor(n / 4) lowest and as many of the highest.

    Raises:
        DataError: there are no values, or one is not finite.
    """
    return float(_middle_half(_checked(values)))


def aggregate(scores: Scores, resamples: int = AGGREGATE_RESAMPLES) -> Estimate:
    """The interquartile mean over all runs of all tasks, with a stratified percentile bootstrap.

    Each resample draws the runs of every task separately, with replacement. All tasks have the same weight: if they
    have different numbers of runs, runs are repeated until all tasks have equally many, as rliable expects. With one
    run per task there is nothing to draw from: the interval has zero width and no meaning.

    Args:
        scores: at least one run for each task.
        resamples: how often the runs are drawn. Draws are seeded: the same scores give the same interval.

    Raises:
        DataError: no task, a task without runs, or a number that is not finite.
    """
    tasks = _tasks(scores)
    count = math.lcm(*map(len, tasks))

    def joined(runs: Sequence[FloatArray]) -> FloatArray:  # of every resample, the runs of all tasks
        return np.concatenate([np.repeat(each, count // each.shape[-1], axis=-1) for each in runs], axis=-1)

    chosen = _resampled(tasks, resamples)
    parts = (joined([each[i : i + AT_ONCE] for each in chosen]) for i in range(0, resamples, AT_ONCE))
    low, high = np.percentile(np.concatenate([_middle_half(part) for part in parts]), [2.5, 97.5])
    return Estimate(interquartile_mean(joined(tasks)), float(low), float(high))


def performance_profile(scores: Scores, thresholds: FloatArray, resamples: int = RESAMPLES) -> Profile:
    """Share of all runs of all tasks whose score exceeds each of (T,) thresholds, with pointwise 95 % bands.

    It is the share of runs within a task, averaged over tasks.

    Raises:
        DataError: as `aggregate`.
    """
    tasks = _tasks(scores)
    levels = _checked(thresholds)

    def shares(runs: Sequence[FloatArray]) -> FloatArray:
        return np.asarray(np.mean([(each[..., None] > levels).mean(axis=-2) for each in runs], axis=0))

    low, high = np.percentile(shares(_resampled(tasks, resamples)), [2.5, 97.5], axis=0)
    return Profile(levels, shares(tasks), low, high)


def probability_of_improvement(ours: Scores, theirs: Scores, resamples: int = RESAMPLES) -> Estimate:
    """The probability that a run of ours beats a run of theirs on the same task, averaged over the common tasks.

    A tie counts one half, so two equal methods have 0.5.

    Raises:
        DataError: they share no task. Otherwise as `aggregate`.
    """
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        raise DataError(f"no task in common: {', '.join(sorted(ours))} against {', '.join(sorted(theirs))}.")
    first, second = _tasks({task: ours[task] for task in shared}), _tasks({task: theirs[task] for task in shared})

    def won(one: Sequence[FloatArray], other: Sequence[FloatArray]) -> FloatArray:
        differences = [np.sign(x[..., :, None] - y[..., None, :]) for x, y in zip(one, other, strict=True)]
        return np.asarray(np.mean([(0.5 + 0.5 * each).mean(axis=(-2, -1)) for each in differences], axis=0))

    drawn = won(_resampled(first, resamples), _resampled(second, resamples, seed=1))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(float(won(first, second)), float(low), float(high))


def convergence(updates: Sequence[int], scores: Sequence[float], margin: float = 2.0) -> int:
    """The first of the evaluated `updates` whose score is within `margin` points of the last one, or above it.

    Differs: Reid et al. 2022 (arXiv:2201.12122, section 5.1) take the best score in place of the last. The staged
    weights are the last ones.

    Args:
        updates: numbers of updates, ascending.
        scores: the score at each, in normalized points.
        margin: the largest distance that counts as reached.

    Raises:
        DataError: no evaluation, numbers of different length, or one that is not finite.
    """
    reached = _checked(scores)
    if len(updates) != len(reached):
        raise DataError(f"{len(updates)} updates and {len(reached)} scores; each evaluation needs one of both.")
    return int(updates[int(np.argmax(reached >= reached[-1] - margin))])


def convergence_in(log: Sequence[Mapping[str, str]]) -> Converged | None:
    """`convergence` of a training by the short evaluations in its log (`training.log.read_log`).

    None if fewer than two of them have a normalized score, or if the log has no times.
    """
    rows = [row for row in log if row.get("eval_score")]
    if len(rows) < 2:
        return None
    updates = [int(row["step"]) for row in rows]
    found = convergence(updates, [float(row["eval_score"]) for row in rows])
    seconds = rows[updates.index(found)].get("seconds")
    return Converged(found, float(seconds)) if seconds else None


def _middle_half(values: FloatArray) -> FloatArray:
    """(..., n) -> (...): the mean without the floor(n / 4) lowest and as many of the highest."""
    ordered = np.sort(values, axis=-1)
    cut = values.shape[-1] // 4
    return np.asarray(ordered[..., cut : values.shape[-1] - cut].mean(axis=-1))


def _checked(values: Sequence[float] | FloatArray) -> FloatArray:
    found: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not len(found):
        raise DataError(f"expected a list of numbers, got shape {found.shape}.")
    if not np.isfinite(found).all():
        raise DataError(f"expected finite numbers, got {found[~np.isfinite(found)][0]}.")
    return found


def _tasks(scores: Scores) -> list[FloatArray]:
    if not scores:
        raise DataError("there are no scores; name at least one task with a run.")
    return [_checked(runs) for runs in scores.values()]


def _resampled(tasks: Sequence[FloatArray], resamples: int, seed: int = 0) -> list[FloatArray]:
    """(resamples, R) draws with replacement of the R runs of each task."""
    runs = [len(each) for each in tasks]
    drawn = np.random.default_rng(seed).integers(np.repeat(runs, runs), size=(resamples, sum(runs)))
    parts = np.split(drawn, np.cumsum(runs)[:-1], axis=1)
    return [each[part] for each, part in zip(tasks, parts, strict=True)]
