"""Returns that score 0 and 100 on each environment.

Sources: Farama-Foundation/D4RL, d4rl/infos.py (arXiv:2004.07219), measured on the `-v2`/`-v3` environments. Gymnasium
runs `-v5`, whose rewards and friction differ slightly. PointMaze and DoorKey have no agreed constants.
Atari: a random player scores 0, a professional gamer 100 (Wang et al. 2016, arXiv:1511.06581, table 2), as in Chen et
al. 2021, arXiv:2106.01345. Both are scores of whole games without sticky actions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentzoo.env_ids import without_module
from agentzoo.types import RENDERING


class Reference(NamedTuple):
    """Undiscounted returns that score 0 and 100."""

    random: float
    expert: float


D4RL_REFERENCES = {
    "Hopper": Reference(-20.272305, 3234.3),
    "HalfCheetah": Reference(-280.178953, 12135.0),
    "Walker2d": Reference(1.629008, 4592.3),
    "Ant": Reference(-325.6, 3879.7),
}
GAMER_REFERENCES = {
    "agentzoo/Boxing": Reference(0.1, 12.1),
    "agentzoo/Breakout": Reference(1.7, 30.5),
    "agentzoo/Freeway": Reference(0.0, 29.6),
    "agentzoo/Pong": Reference(-20.7, 14.6),
    "agentzoo/Qbert": Reference(163.9, 13455.0),
    "agentzoo/Seaquest": Reference(68.4, 42054.7),
}


def reference_of(env_id: str, options: Iterable[str] = ()) -> Reference | None:
    """The references of an id such as `Hopper-v5` (D4RL's) or `agentzoo/Pong-v5` (a gamer's); None if it has none.

    Args:
        options: names of the environment's options. Any option except for rendering makes it a different task, without
            references.
    """
    name = _task(env_id)
    return None if set(options) - RENDERING else D4RL_REFERENCES.get(name) or GAMER_REFERENCES.get(name)


def source_of(env_id: str) -> str:
    """The source of an environment's references, for a sentence in brackets."""
    name = _task(env_id)
    if name in GAMER_REFERENCES:
        return "a random player's and a professional gamer's, as in papers on Atari"
    if name in D4RL_REFERENCES:
        return "D4RL's references, measured on older versions of the environment"
    return "the dataset's references"


def _task(env_id: str) -> str:
    """An id without its module and version."""
    return without_module(env_id).rsplit("-v", 1)[0]


def reference_in(metadata: Mapping[str, Any], env_id: str, options: Iterable[str] = ()) -> tuple[float, float] | None:
    """The returns that score 0 and 100 in a dataset's metadata; None if it has none or `reference_of` has some."""
    low, high = (_number(metadata.get(name)) for name in ("ref_min_score", "ref_max_score"))
    if reference_of(env_id, options) is not None or low is None or high is None:
        return None
    return (low, high) if low < high else None


def _number(value: Any) -> float | None:
    """`value` if it is a finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def normalized_score(returns: ArrayLike, reference: Reference) -> NDArray[np.float64]:
    """`100 (G - random) / (expert - random)` of undiscounted returns in raw reward; not clipped."""
    values = np.asarray(returns, dtype=np.float64)
    return 100.0 * (values - reference.random) / (reference.expert - reference.random)
