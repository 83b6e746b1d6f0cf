"""Datasets as files that processes map into memory: however many runs read one, this machine holds it once.

A dataset is unpacked from Minari's HDF5 once, into `.npy` files of its flat arrays. Everything a run derives from it
(return-to-go, step counts, the best episodes, mean and std) is kept beside them in the same way. The files are mapped
copy-on-write: a process that writes to such an array changes its own copy of that page alone.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.data.episodes import Episodes
from agentzoo.data.minari import datasets_root, load_episodes, open_dataset
from agentzoo.errors import DataError, StorageError
from agentzoo.store.exclusive import exclusive
from agentzoo.store.files import sha256, staging, write_atomic
from agentzoo.types import ActionSpec, Config, IntArray, ObservationSpec

ARRAYS = ("observations", "actions", "rewards", "lengths", "terminated")
SPEC = "spec.json"


class _Spec(Config):
    dataset: str
    observation: ObservationSpec
    action: ActionSpec


class Footprint(NamedTuple):
    """Memory of mapped dataset files in one process, in bytes."""

    resident: int  # pages that this process has mapped
    proportional: int  # the same, each page divided by the number of processes that map it
    private: int  # pages of its own: what it changed


def cache_root() -> Path:
    """`$AGENTZOO_CACHE`, else `agentzoo` in the user's cache folder. What lies there can be deleted at any time."""
    named = os.environ.get("AGENTZOO_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentzoo"


@dataclass(frozen=True)
class MappedEpisodes(Episodes):
    """Episodes whose arrays are files in `folder`; what is derived from them is kept there, too."""

    folder: Path

    @classmethod
    def open(cls, folder: Path) -> MappedEpisodes:
        """What `map_dataset` or a selection left in `folder`.

        Raises:
            DataError: a file is missing or broken.
        """
        try:
            spec = _Spec.from_json((folder / SPEC).read_text(), str(folder / SPEC))
            arrays = {name: _mapped(folder / f"{name}.npy") for name in ARRAYS}
        except (OSError, ValueError) as error:
            raise DataError(f"{folder} cannot be read: {error}. Delete it; it is made again.") from error
        return cls(spec.dataset, spec.observation, spec.action, **arrays, folder=folder)

    def delayed(self) -> Episodes:
        """As `Episodes.delayed`."""
        return self._selection("delayed", lambda: self._plain().delayed())

    def timesteps(self) -> NDArray[np.int64]:
        """As `Episodes.timesteps`."""
        return self._array("timesteps", super().timesteps)

    def steps_left(self) -> NDArray[np.int64]:
        """As `Episodes.steps_left`."""
        return self._array("steps_left", super().steps_left)

    def scaled_returns_to_go(self, scale: float) -> NDArray[np.float32]:
        """As `Episodes.scaled_returns_to_go`."""
        plain = super().scaled_returns_to_go
        return self._array(f"returns_to_go-{scale!r}", lambda: plain(scale))

    def statistics(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """As `Episodes.statistics`."""
        mean, std = self._array("statistics", lambda: np.stack(self._plain().statistics()))
        return mean, std

    def _plain(self) -> Episodes:
        return Episodes(**{field.name: getattr(self, field.name) for field in fields(Episodes)})

    def _array(self, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        path = self.folder / f"{name}.npy"
        if not path.exists():
            with exclusive(self.folder / ".lock", "AGENTZOO_CACHE"):
                if not path.exists():
                    _save_array(path, make())
        return _mapped(path)

    def _chosen(self, chosen: IntArray) -> MappedEpisodes:
        name = hashlib.sha256(np.ascontiguousarray(chosen, dtype=np.int64).tobytes()).hexdigest()[:16]
        return self._selection(f"chosen-{name}", lambda: self._plain()._chosen(chosen))

    def _selection(self, name: str, make: Callable[[], Episodes]) -> MappedEpisodes:
        folder = self.folder / name
        if not folder.exists():
            with exclusive(self.folder / ".lock", "AGENTZOO_CACHE"):
                if not folder.exists():
                    write_mapped(make(), folder)
        return MappedEpisodes.open(folder)


def map_dataset(dataset_id: str, obs_keys: tuple[str, ...] | None = None) -> MappedEpisodes:
    """The dataset as `load_episodes` reads it, from mapped files; they are made first if they are not there.

    The files' folder is named by the dataset, the observation keys and a hash of the dataset's own files, so a dataset
    that is built again gets other ones. Of processes that ask at once one makes them and the others wait.

    Raises:
        UnknownNameError, SpaceError, DataError: as `load_episodes`. StorageError: the cache cannot be written.
    """
    open_dataset(dataset_id)  # fetches it where it can be fetched
    digest = hashlib.sha256(repr((obs_keys, np.__version__)).encode())
    data = datasets_root() / dataset_id / "data"
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(data)} {sha256(path)}\n".encode())
    folder = cache_root() / "episodes" / f"{dataset_id.replace('/', '--')}-{digest.hexdigest()[:16]}"
    if not folder.exists():
        with exclusive(folder.parent / ".lock", "AGENTZOO_CACHE"):
            if not folder.exists():
                write_mapped(load_episodes(dataset_id, obs_keys), folder)
    return MappedEpisodes.open(folder)


def footprint(process: int, folder: Path) -> Footprint:
    """How much of the files in `folder` a process holds in memory, from Linux's `/proc/PID/smaps`.

    Raises:
        DataError: this system has no such file, or the process is gone.
    """
    totals = {"Rss": 0, "Pss": 0, "Private_Dirty": 0}
    inside, prefix = False, f"{folder.resolve()}/"
    try:
        lines = Path(f"/proc/{process}/smaps").read_text().splitlines()
    except OSError as error:
        raise DataError(f"the memory map of process {process} cannot be read: {error}.") from error
    for line in lines:
        name, _, rest = line.partition(":")
        if " " in name:  # the first line of a mapping: addresses, rights, ..., path
            inside = prefix in line
        elif inside and name in totals:
            totals[name] += 1024 * int(rest.split()[0])
    return Footprint(totals["Rss"], totals["Pss"], totals["Private_Dirty"])


def _mapped(path: Path) -> NDArray[Any]:
    found: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    return found


def write_mapped(episodes: Episodes, folder: Path) -> None:
    """The files that `MappedEpisodes.open` reads, all or none: a hidden folder is renamed once it is complete."""
    with staging(folder.parent, ".mapping-") as draft:
        whole = draft / "whole"
        whole.mkdir()
        spec = _Spec(dataset=episodes.dataset, observation=episodes.observation, action=episodes.action)
        write_atomic(whole / SPEC, spec.to_json())
        for name in ARRAYS:
            _save_array(whole / f"{name}.npy", getattr(episodes, name))
        whole.replace(folder)


def _save_array(path: Path, values: NDArray[Any]) -> None:
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                np.save(file, np.ascontiguousarray(values), allow_pickle=False)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"{path} was not written: {error}. Make room, or set AGENTZOO_CACHE.") from error
