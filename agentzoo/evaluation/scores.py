"""Normalized scores and bootstrap intervals.

The references are in `agentzoo.data.references`. They were measured on older versions of the environments, so scores
are only roughly comparable with published tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from agentzoo.data.minari import stored_metadata
from agentzoo.data.references import D4RL_REFERENCES, Reference, normalized_score, reference_of
from agentzoo.env_ids import same_environment
from agentzoo.recipe import Recipe
from agentzoo.text import fixed
from agentzoo.training.environment import reference_for_data
from agentzoo.types import FloatArray

__all__ = [
    "D4RL_REFERENCES",
    "Reference",
    "mean_interval",
    "normalized_score",
    "over_seeds",
    "reference_for",
    "with_reference",
]

MAX_DRAWN = 2_000_000  # values resampled at once; each needs 24 bytes


def reference_for(env_id: str, options: Iterable[str], recipe: Recipe | None) -> Reference | None:
    """The agreed references of an environment, else those that the agent's recipe has from its dataset.

    Args:
        options: names of the environment's options.
        recipe: the agent's recipe; its references are valid only for its environment.
    """
    own = recipe.eval.reference if recipe is not None and same_environment(recipe.eval.env, env_id) else None
    return reference_of(env_id, options) or (None if own is None else Reference(*own))


def with_reference(recipe: Recipe) -> Recipe:
    """The recipe with the returns that score 0 and 100, if its dataset, on this machine, has them for its environment.

    A recipe that has references, or whose environment has agreed ones, does not change.
    """
    if recipe.eval.reference is not None:
        return recipe
    found = reference_for_data(stored_metadata(recipe.data.dataset), recipe.eval.env, recipe.eval.env_options)
    return recipe.replace(eval=recipe.eval.model_copy(update={"reference": found}))


def over_seeds(values: Sequence[float], digits: int) -> str:
    """Mean, standard deviation and 95 % interval over training seeds (n >= 2): `79.0 ± 11.2 [67.6, 90.1]`."""
    each = np.asarray(values, dtype=np.float64)
    figures = (float(each.mean()), float(each.std(ddof=1)), *mean_interval(each))
    mean, deviation, low, high = (fixed(one, digits) for one in figures)
    return f"{mean} ± {deviation} [{low}, {high}]"


def mean_interval(values: FloatArray, level: float = 0.95, resamples: int = 9_999) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of (n,) `values`; seeded, so the same data gives the same interval.

    A single value or equal values give an interval of zero width. Otherwise it equals `scipy.stats.bootstrap`'s.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2 or np.ptp(values) == 0.0:
        return float(values.mean()), float(values.mean())
    return _bootstrap(values.tobytes(), level, resamples)


@lru_cache(maxsize=1024)  # a card and its tables ask for the same intervals
def _bootstrap(stored: bytes, level: float, resamples: int) -> tuple[float, float]:
    """`mean_interval` of float64 values, given as bytes."""
    values = np.frombuffer(stored, dtype=np.float64)
    rng, rows = np.random.default_rng(0), max(1, MAX_DRAWN // len(values))
    means = [
        values[rng.integers(0, len(values), (min(rows, resamples - first), len(values)))].mean(axis=1)
        for first in range(0, resamples, rows)  # gives the same numbers for any `rows`
    ]
    outside = (1 - level) / 2
    low, high = np.percentile(np.concatenate(means), [100 * outside, 100 * (1 - outside)])
    return float(low), float(high)
