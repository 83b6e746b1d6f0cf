"""Memory-mapped datasets: any number of runs on a machine share one copy in memory.

A dataset is unpacked once from Minari's HDF5 into `.npy` files of its flat arrays. Arrays that a run derives from it
(returns-to-go, step counts, the best episodes, mean and std) are stored beside them. The files are mapped
copy-on-write: a process that writes to an array only changes its private copy of that page.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo import __version__
from agentzoo.data.episodes import Episodes
from agentzoo.data.frames import Frames
from agentzoo.data.minari import load_episodes, open_dataset
from agentzoo.data.names import datasets_root
from agentzoo.errors import DataError, StorageError
from agentzoo.store.cache import VARIABLE as CACHE_VARIABLE
from agentzoo.store.cache import cache_folder, forget_unused, make_private, mark_used
from agentzoo.store.exclusive import exclusive
from agentzoo.store.files import sha256, staging, with_advice, write_atomic
from agentzoo.types import ActionSpec, Config, IntArray, ObservationSpec

ARRAYS = ("observations", "actions", "rewards", "lengths", "terminated")
FRAMES = ("packed", "ends", "digests", "stacks")  # in place of the observations, where these are images
SPEC = "spec.json"


class _Spec(Config):
    dataset: str
    observation: ObservationSpec
    action: ActionSpec


class Footprint(NamedTuple):
    """Memory of mapped dataset files in one process, in bytes."""

    resident: int  # pages that this process has mapped
    proportional: int  # the same, each page divided by the number of processes that map it
    private: int  # pages that this process has changed


@dataclass(frozen=True)
class MappedEpisodes(Episodes):
    """Episodes whose arrays, and arrays derived from them, are memory-mapped files in `folder`."""

    folder: Path

    @classmethod
    def open(cls, folder: Path) -> MappedEpisodes:
        """The episodes stored in `folder` by `write_mapped`.

        Raises:
            DataError: a file is missing or broken.
        """
        with _readable(folder):
            spec = _Spec.from_json((folder / SPEC).read_text(), str(folder / SPEC))
            arrays: dict[str, Any] = {}
            if spec.observation.image is not None:
                parts = {name: _mapped(folder / f"{name}.npy") for name in FRAMES}
                arrays["observations"] = Frames(**parts, sides=spec.observation.image[1:])
            arrays |= {name: _mapped(folder / f"{name}.npy") for name in ARRAYS if name not in arrays}
        return cls(spec.dataset, spec.observation, spec.action, **arrays, folder=folder)

    def delayed(self) -> Episodes:
        """As `Episodes.delayed`."""
        return self._selection("delayed", lambda: self._plain().delayed())

    def timesteps(self) -> NDArray[np.int64]:
        """As `Episodes.timesteps`."""
        return self._array("timesteps", super().timesteps)

    def steps_left(self) -> NDArray[np.int64]:
        """As `Episodes.steps_left`."""
        return self._array("steps_left", lambda: self._plain().steps_left())

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
            with exclusive(self.folder / ".lock", CACHE_VARIABLE):
                if not path.exists():
                    _save_array(path, make())
        with _readable(path):
            return _mapped(path)

    def _chosen(self, chosen: IntArray) -> Episodes:
        name = hashlib.sha256(np.ascontiguousarray(chosen, dtype=np.int64).tobytes()).hexdigest()[:16]
        return self._selection(f"chosen-{name}", lambda: self._plain()._chosen(chosen))

    def _selection(self, name: str, make: Callable[[], Episodes]) -> Episodes:
        if self.observation.image is not None:
            return make()  # it shares the mapped frames
        folder = self.folder / name
        if not folder.exists():
            with exclusive(self.folder / ".lock", CACHE_VARIABLE):
                if not folder.exists():
                    write_mapped(make(), folder)
        return MappedEpisodes.open(folder)


def map_dataset(dataset_id: str, obs_keys: tuple[str, ...] | None = None) -> MappedEpisodes:
    """The dataset as `load_episodes` reads it, from memory-mapped files, which are created if missing.

    The folder's name holds the dataset's id and a hash of its files, the observation keys and the versions of NumPy and
    agentzoo. So a rebuilt dataset, or another version that derives other arrays, gets a new folder. Writing one
    deletes those that no run has used for 30 days. If several processes call this at once, one creates the files and
    the others wait.

    Raises:
        UnknownNameError, SpaceError, DataError: as `load_episodes`. StorageError: the cache cannot be written.
    """
    open_dataset(dataset_id)  # downloads it if possible
    digest = hashlib.sha256(repr((obs_keys, np.__version__, __version__)).encode())
    data = datasets_root() / dataset_id / "data"
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(data)} {sha256(path)}\n".encode())
    folder = cache_folder() / "episodes" / f"{dataset_id.replace('/', '--')}-{digest.hexdigest()[:16]}"
    mark_used(folder)  # before it is looked for: no other process deletes it from here on
    if not (folder / SPEC).exists():
        with suppress(OSError):  # `exclusive` reports it
            make_private(folder.parent)  # code is cached beside it
        with exclusive(folder.parent / ".lock", CACHE_VARIABLE):
            if not (folder / SPEC).exists():
                write_mapped(load_episodes(dataset_id, obs_keys), folder)
                forget_unused(folder.parent)
    return MappedEpisodes.open(folder)


def footprint(process: int, folder: Path) -> Footprint:
    """The memory that a process uses for files in `folder`, from Linux's `/proc/PID/smaps`.

    Raises:
        DataError: this system has no such file, or the process has ended.
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


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Inside, what cannot be read raises DataError, which says that `path` can be deleted."""
    try:
        yield
    except (OSError, ValueError, EOFError) as error:  # numpy raises EOFError for an empty file
        raise DataError(f"{path} cannot be read: {error}. Delete it; it will be created again.") from error


def _mapped(path: Path) -> NDArray[Any]:
    found: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    return found


def write_mapped(episodes: Episodes, folder: Path) -> None:
    """Write the files that `MappedEpisodes.open` reads, all or none: a hidden folder is renamed when complete."""
    with staging(folder.parent, ".mapping-") as draft:
        whole = draft / "whole"
        whole.mkdir()
        spec = _Spec(dataset=episodes.dataset, observation=episodes.observation, action=episodes.action)
        write_atomic(whole / SPEC, spec.to_json())
        for name in ARRAYS:
            values = getattr(episodes, name)
            if isinstance(values, Frames):
                for part in FRAMES:
                    _save_array(whole / f"{part}.npy", getattr(values, part))
            else:
                _save_array(whole / f"{name}.npy", values)
        try:
            if folder.exists():  # a run has begun it again after the cache was deleted
                shutil.rmtree(folder)
            whole.replace(folder)
        except OSError as error:
            raise StorageError(f"{folder} was not written: {error}. Repeat the command.") from error


def _save_array(path: Path, values: NDArray[Any]) -> None:
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                np.save(file, np.ascontiguousarray(values), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())  # else a power failure may leave the name without the content
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"{path} was not written: {with_advice(error, CACHE_VARIABLE)}") from error
