"""Returns that score 0 and 100 on each environment.

Source: Farama-Foundation/D4RL, d4rl/infos.py (arXiv:2004.07219). Measured there on the `-v2`/`-v3` environments;
Gymnasium runs `-v5`, whose rewards and friction differ slightly. PointMaze and DoorKey have no agreed constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Reference(NamedTuple):
    """Undiscounted returns that score 0 and 100."""

    random: float
    expert: float


RENDERING = {"render_mode", "width", "height", "camera_id", "camera_name", "default_camera_config"}
D4RL_REFERENCES = {
    "Hopper": Reference(-20.272305, 3234.3),
    "HalfCheetah": Reference(-280.178953, 12135.0),
    "Walker2d": Reference(1.629008, 4592.3),
    "Ant": Reference(-325.6, 3879.7),
}


def reference_of(env_id: str, options: Iterable[str] = ()) -> Reference | None:
    """The D4RL references of a Gymnasium id such as `Hopper-v5`, or None where there are none.

    Args:
        options: names of those the environment is made with; but for pictures', they make it another one.
    """
    return None if set(options) - RENDERING else D4RL_REFERENCES.get(env_id.rsplit("-v", 1)[0])


def reference_in(metadata: Mapping[str, Any], env_id: str, options: Iterable[str] = ()) -> tuple[float, float] | None:
    """The returns that score 0 and 100 as a dataset's metadata gives them; None where it does not, or D4RL has some."""
    low, high = (_number(metadata.get(name)) for name in ("ref_min_score", "ref_max_score"))
    if reference_of(env_id, options) is not None or low is None or high is None:
        return None
    return (low, high) if low < high else None


def _number(value: Any) -> float | None:
    """A finite number of a stranger's file."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def normalized_score(returns: ArrayLike, reference: Reference) -> NDArray[np.float64]:
    """`100 (G - random) / (expert - random)` of undiscounted returns in raw reward; not clipped."""
    values = np.asarray(returns, dtype=np.float64)
    return 100.0 * (values - reference.random) / (reference.expert - reference.random)
