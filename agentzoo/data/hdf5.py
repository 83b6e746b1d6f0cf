"""Checks untrusted HDF5 files before they are read; errors of other libraries become DataError.

HDF5 has three ways to make another file's bytes appear as an array: external links, external storage and virtual
datasets. With them a dataset could turn any file of this machine into observations, so a file that uses one is
rejected. A file that declares more data than it holds is rejected, too.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentzoo.errors import AgentzooError, DataError, printable
from agentzoo.store.tensors import memory

MAX_OBJECTS = 5_000_000  # groups and arrays; a million episodes hold five each
DEEPEST = 20  # groups inside groups
MAX_RATIO = 1_100  # largest compression ratio of an array; deflate reaches 1,030
UNSTORED = 1 << 20  # bytes an array may declare beyond that, since small arrays are stored in the header

CACHED = 1 << 22  # bytes of arrays and their index that HDF5 may write only when it closes a file
CHUNK = 1 << 17  # bytes of images that are compressed together
LEVEL = 4  # of gzip

NUMBERS = "biuf"  # kinds of numpy types that data has: bool, integers, floats
BROKEN = (
    *(OSError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, OverflowError),
    *(AssertionError, MemoryError, SyntaxError, RecursionError, zipfile.BadZipFile, zlib.error),
)  # what h5py, minari, numpy and zipfile raise for damaged or malicious files

_checked: dict[Path, tuple[int, int, int]] = {}  # file -> (inode, size, modification time) when it passed the check


@contextmanager
def readable(path: Path | str, what: str) -> Iterator[None]:
    """Read `path` as `what` ("an HDF5 file") inside the block; errors of libraries become DataError."""
    try:
        yield
    except AgentzooError:
        raise
    except BROKEN as error:
        raise DataError(f"{path} cannot be read as {what}: {error or type(error).__name__}") from error


def check_hdf5(path: Path) -> None:
    """Check every link and array of a file without reading data. An unchanged file is checked once.

    Raises:
        DataError: not an HDF5 file; a link or array points to another file; a link names another object of the file,
            which no dataset needs; or an array declares more than the file can hold. The message names the object.
    """
    import h5py

    with readable(path, "an HDF5 file"):
        if not path.is_file():
            raise DataError(f"{path} is missing or is not a regular file.")
        status = path.stat()
        known = (status.st_ino, status.st_size, status.st_mtime_ns)
        if _checked.get(path.resolve()) == known:
            return
        with h5py.File(path, "r") as file:
            _Walk(path, status.st_size).group(file.id, "", 0)
        _checked[path.resolve()] = known


def require_space(path: Path, episode: Any) -> None:
    """Raise OSError unless the disk of `path` has room for these arrays, which may lie in dicts and tuples.

    On a full disk HDF5 crashes the process or raises a RuntimeError.
    """
    folder = next(folder for folder in path.parents if folder.exists())
    if shutil.disk_usage(folder).free < _size(episode) + CACHED:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _size(values: Any) -> int:
    """Bytes of all arrays."""
    if isinstance(values, Mapping):
        return sum(map(_size, values.values()))
    return sum(map(_size, values)) if isinstance(values, tuple | list) else int(getattr(values, "nbytes", 0))


def is_pictures(observations: Any) -> bool:
    """Whether these are images, (L, ...) uint8 with two axes or more each."""
    return str(getattr(observations, "dtype", "")) == "uint8" and observations.ndim >= 3


def make_room(path: Path, episode: int, pictures: Any) -> None:
    """Create an empty, compressed array to which Minari's writer appends an episode's images.

    Without it the writer stores them uncompressed, or as JPEG, which changes them.
    """
    import h5py

    shape = pictures.shape[1:]
    with h5py.File(path, "a") as file:
        file.create_dataset(
            f"episode_{episode}/observations",
            shape=(0, *shape),
            maxshape=(None, *shape),
            dtype="uint8",
            chunks=(max(1, CHUNK // math.prod(shape)), *shape),
            compression="gzip",
            compression_opts=LEVEL,
        )


class _Walk:
    """Visits all objects of a file."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self.seen: set[int] = set()  # addresses: a file may link an object twice, or a group into itself
        self.declared = 0  # bytes of all arrays

    def group(self, group: Any, name: str, depth: int) -> None:
        """Check every link of a group (an `h5py.h5g.GroupID`)."""
        import h5py

        if depth > DEEPEST:
            raise DataError(f"{self.path}: {printable(name)} lies deeper than {DEEPEST} groups.")
        links: list[tuple[bytes, int, int]] = []
        group.links.iterate(lambda key, info: links.append((key, info.type, info.u)), info=True)
        for key, kind, address in links:
            where = f"{name}/{key.decode(errors='replace')}"
            if kind != h5py.h5l.TYPE_HARD:
                raise DataError(
                    f"{self.path}: {printable(where)} is a link to another object or file instead of data. Files with "
                    "links are not read; copy the data into one file."
                )
            if address in self.seen:
                continue
            self.seen.add(address)
            if len(self.seen) > MAX_OBJECTS:
                raise DataError(f"{self.path} holds more than {MAX_OBJECTS:,} groups and arrays.")
            found = h5py.h5o.open(group, key)
            if isinstance(found, h5py.h5g.GroupID):
                self.group(found, where, depth + 1)
            elif isinstance(found, h5py.h5d.DatasetID):
                self.array(found, where)

    def array(self, array: Any, where: str) -> None:
        """Check where an array's bytes are stored, and how many it declares."""
        import h5py

        how = array.get_create_plist()
        if how.get_external_count() > 0:
            raise DataError(f"{self.path}: {printable(where)} is stored in another file, which is not read.")
        if how.get_layout() == h5py.h5d.VIRTUAL:
            raise DataError(f"{self.path}: {printable(where)} is a view of other files, which are not read.")
        declared = array.get_type().get_size()
        for side in array.shape or ():
            declared *= int(side)
        stored = array.get_storage_size()
        self.declared += declared
        if declared > MAX_RATIO * stored + UNSTORED or stored > self.size:
            raise DataError(
                f"{self.path}: {printable(where)} declares {declared:,} bytes, of which the file stores {stored:,}. It "
                "is damaged, or made to exhaust the memory."
            )
        if self.declared > memory():
            raise DataError(
                f"{self.path} declares {self.declared:,} bytes of arrays; this machine has {memory():,} of memory."
            )
