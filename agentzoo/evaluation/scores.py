"""D4RL-normalized scores and bootstrap intervals.

The references are `agentzoo.data.references`: measured on older versions of the environments, so these scores
compare with a published table only roughly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from agentzoo.data.minari import stored_metadata
from agentzoo.data.references import D4RL_REFERENCES, Reference, normalized_score, reference_in, reference_of
from agentzoo.recipe import Recipe
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

MOST_DRAWN = 2_000_000  # values resampled at once; each takes 24 bytes


def reference_for(env_id: str, options: Iterable[str], recipe: Recipe | None) -> Reference | None:
    """D4RL's references of an environment, else those the agent's recipe took from its dataset.

    Args:
        options: names of those the environment is made with.
        recipe: the agent's; its references hold for its own environment only.
    """
    own = None if recipe is None or recipe.eval.env != env_id else recipe.eval.reference
    return reference_of(env_id, options) or (None if own is None else Reference(*own))


def with_reference(recipe: Recipe) -> Recipe:
    """The recipe with the returns that score 0 and 100, if its dataset is on this machine and gives them.

    A recipe that names some, or is of an environment that D4RL has some for, stays as it is.
    """
    if recipe.eval.reference is not None:
        return recipe
    found = reference_in(stored_metadata(recipe.data.dataset), recipe.eval.env, recipe.eval.env_options)
    return recipe.replace(eval=recipe.eval.model_copy(update={"reference": found}))


def over_seeds(values: Sequence[float], digits: int) -> str:
    """`79.0 ± 11.2 [67.6, 90.1]`: mean, standard deviation and 95 % interval of one number a training seed, n >= 2."""
    each = np.asarray(values, dtype=np.float64)
    low, high = mean_interval(each)
    return f"{each.mean():.{digits}f} ± {each.std(ddof=1):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def mean_interval(values: FloatArray, level: float = 0.95, resamples: int = 9_999) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of (n,) `values`; seeded, so the same data gives the same interval.

    One value, or values all equal, give an interval of zero width. Others are those of `scipy.stats.bootstrap`.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2 or np.ptp(values) == 0.0:
        return float(values.mean()), float(values.mean())
    rng, rows = np.random.default_rng(0), max(1, MOST_DRAWN // len(values))
    means = [
        values[rng.integers(0, len(values), (min(rows, resamples - first), len(values)))].mean(axis=1)
        for first in range(0, resamples, rows)  # the same numbers whatever `rows` is
    ]
    outside = (1 - level) / 2
    low, high = np.percentile(np.concatenate(means), [100 * outside, 100 * (1 - outside)])
    return float(low), float(high)
