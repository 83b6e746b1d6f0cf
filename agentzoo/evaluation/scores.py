"""D4RL-normalized scores and bootstrap intervals.

Source: Farama-Foundation/D4RL, d4rl/infos.py (arXiv:2004.07219). The references were measured on the `-v2`/`-v3`
environments; Gymnasium runs `-v5`, whose rewards and friction differ slightly, so these scores compare with a
published table only roughly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.types import FloatArray


class Reference(NamedTuple):
    """Returns that score 0 and 100."""

    random: float
    expert: float


D4RL_REFERENCES = {
    "Hopper": Reference(-20.272305, 3234.3),
    "HalfCheetah": Reference(-280.178953, 12135.0),
    "Walker2d": Reference(1.629008, 4592.3),
    "Ant": Reference(-325.6, 3879.7),
}


def reference_of(env_id: str) -> Reference | None:
    """The D4RL references of a Gymnasium id such as `Hopper-v5`, or None where there are none."""
    return D4RL_REFERENCES.get(env_id.rsplit("-v", 1)[0])


def normalized_score(returns: FloatArray, reference: Reference) -> NDArray[np.float64]:
    """`100 (G - random) / (expert - random)` of undiscounted returns in raw reward; not clipped."""
    values = np.asarray(returns, dtype=np.float64)
    return 100.0 * (values - reference.random) / (reference.expert - reference.random)


def mean_interval(values: FloatArray, level: float = 0.95, resamples: int = 9_999) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of (n,) `values`; seeded, so the same data gives the same interval.

    One value, or values all equal, give an interval of zero width.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2 or np.ptp(values) == 0.0:
        return float(values.mean()), float(values.mean())
    from scipy.stats import bootstrap

    result = bootstrap(
        (values,),
        np.mean,
        confidence_level=level,
        n_resamples=resamples,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)
