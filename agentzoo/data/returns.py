"""Returns and lengths of a local dataset, without reading observations: seconds instead of a minute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agentzoo.data.hdf5 import check_hdf5, readable
from agentzoo.data.metadata import MAIN
from agentzoo.data.minari import open_dataset, read_episodes
from agentzoo.data.names import datasets_root
from agentzoo.errors import DataError


def read_returns(dataset_id: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(E,) returns and (E,) lengths in any order, without empty episodes.

    Raises:
        UnknownNameError: no such dataset here. DataError: it cannot be read, or holds no finite return.
    """
    path = datasets_root() / dataset_id / "data" / MAIN
    open_dataset(dataset_id, download=False)  # checks names and files
    with readable(f"dataset {dataset_id!r}", "a Minari dataset"):
        rewards = _from_hdf5(path) if path.is_file() else _from_minari(dataset_id)
        returns = np.array([float(np.sum(each, dtype=np.float64)) for each in rewards if len(each)])
        lengths = np.array([len(each) for each in rewards if len(each)], dtype=np.int64)
    if not len(returns) or not np.isfinite(returns).all():
        raise DataError(f"dataset {dataset_id!r} holds no episode with a step, or a return that is not finite.")
    return returns, lengths


def _from_hdf5(path: Path) -> list[NDArray[np.float64]]:
    import h5py

    check_hdf5(path)
    with h5py.File(path, "r") as file:
        rewards = [np.asarray(file[name]["rewards"], dtype=np.float64) for name in file]
    if any(each.ndim != 1 for each in rewards):
        raise ValueError("rewards are not one number per step")
    return rewards


def _from_minari(dataset_id: str) -> list[NDArray[np.float64]]:
    episodes = read_episodes(open_dataset(dataset_id, download=False))
    return [np.asarray(episode.rewards, dtype=np.float64) for episode in episodes]
