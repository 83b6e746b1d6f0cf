"""Files in D4RL's HDF5 layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

ID = "d4rl/hopper/tiny-v2"


def columns(steps: int, terminals: list[int], timeouts: list[int] | None = None) -> dict[str, Any]:
    """D4RL's names; observation and reward of step t are t, so that what arrives says where it was."""
    found: dict[str, Any] = {
        "observations": np.repeat(np.arange(steps, dtype=np.float32)[:, None], 11, axis=1),
        "actions": np.full((steps, 3), 0.5, dtype=np.float32),
        "rewards": np.arange(steps, dtype=np.float32),
        "terminals": np.isin(np.arange(steps), terminals),
    }
    if timeouts is not None:
        found["timeouts"] = np.isin(np.arange(steps), timeouts)
    return found


def write_h5(path: Path, arrays: dict[str, Any]) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values
    return path
