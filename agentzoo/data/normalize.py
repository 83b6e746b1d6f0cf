"""Mean and standard deviation of observations, as the networks store them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentzoo.types import FloatArray

EPSILON = 1e-6


def observation_statistics(observations: FloatArray) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(T, S) -> mean (S,) and population std + 1e-6 (S,), summed in float64.

    Source: kzl/decision-transformer@e2d82e6, gym/experiment.py.
    """
    mean = observations.mean(axis=0, dtype=np.float64)
    std = observations.std(axis=0, dtype=np.float64) + EPSILON
    return mean.astype(np.float32), std.astype(np.float32)
