"""Files of strangers: HDF5 is looked at before it is read, and errors of libraries become ours.

HDF5 has three ways to make another file's bytes appear as an array: external links, external storage and virtual
datasets. With them a dataset can turn any file of this machine into observations, so a file that uses one is refused,
as is one that declares more than it holds.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentzoo.errors import AgentzooError, DataError, shown
from agentzoo.store.tensors import memory

MOST_OBJECTS = 5_000_000  # groups and arrays; a million episodes hold five each
DEEPEST = 20  # groups inside groups
MOST_RATIO = 1_100  # of an array's size and the bytes it is stored in: deflate reaches 1,030
UNSTORED = 1 << 20  # bytes an array may declare beyond that: small arrays lie in the header

NUMBERS = "biuf"  # kinds of numpy types that data has: bool, integers, floats
BROKEN = (
    *(OSError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, OverflowError),
    *(AssertionError, MemoryError, SyntaxError, RecursionError, zipfile.BadZipFile, zlib.error),
)  # what h5py, minari, numpy and zipfile raise for a file that was damaged or made to be

_checked: dict[Path, tuple[int, int, int]] = {}  # file -> what it was when it was found sound


@contextmanager
def readable(path: Path | str, what: str) -> Iterator[None]:
    """While `path` is read as `what` ("an HDF5 file"): whatever a library says of a broken file is a DataError."""
    try:
        yield
    except AgentzooError:
        raise
    except BROKEN as error:
        raise DataError(f"{path} cannot be read as {what}: {error or type(error).__name__}") from error


def check_hdf5(path: Path) -> None:
    """Look at every link and array of a file, reading no data. A file that has not changed is looked at once.

    Raises:
        DataError: it is no HDF5 file; a link or array leads to another file; a link names another object of the file,
            which no dataset needs; or an array declares more than the file can hold. Names the object.
    """
    import h5py

    with readable(path, "an HDF5 file"):
        if not path.is_file():
            raise DataError(f"{path} is missing or no regular file.")
        status = path.stat()
        known = (status.st_ino, status.st_size, status.st_mtime_ns)
        if _checked.get(path.resolve()) == known:
            return
        with h5py.File(path, "r") as file:
            _Walk(path, status.st_size).group(file.id, "", 0)
        _checked[path.resolve()] = known


class _Walk:
    """One pass over the objects of a file."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self.seen: set[int] = set()  # addresses: a file may link an object twice, or a group into itself
        self.declared = 0  # bytes of all arrays

    def group(self, group: Any, name: str, depth: int) -> None:
        """Every link of a group (an `h5py.h5g.GroupID`)."""
        import h5py

        if depth > DEEPEST:
            raise DataError(f"{self.path}: {shown(name)} lies deeper than {DEEPEST} groups.")
        links: list[tuple[bytes, int, int]] = []
        group.links.iterate(lambda key, info: links.append((key, info.type, info.u)), info=True)
        for key, kind, address in links:
            where = f"{name}/{key.decode(errors='replace')}"
            if kind != h5py.h5l.TYPE_HARD:
                raise DataError(
                    f"{self.path}: {shown(where)} is a link to another object or file instead of data. Files with "
                    "links are not read; copy the data into one file."
                )
            if address in self.seen:
                continue
            self.seen.add(address)
            if len(self.seen) > MOST_OBJECTS:
                raise DataError(f"{self.path} holds more than {MOST_OBJECTS:,} groups and arrays.")
            found = h5py.h5o.open(group, key)
            if isinstance(found, h5py.h5g.GroupID):
                self.group(found, where, depth + 1)
            elif isinstance(found, h5py.h5d.DatasetID):
                self.array(found, where)

    def array(self, array: Any, where: str) -> None:
        """Where an array's bytes are, and how many it declares."""
        import h5py

        how = array.get_create_plist()
        if how.get_external_count() > 0:
            raise DataError(f"{self.path}: {shown(where)} is stored in another file, which is not read.")
        if how.get_layout() == h5py.h5d.VIRTUAL:
            raise DataError(f"{self.path}: {shown(where)} is a view of other files, which are not read.")
        declared = array.get_type().get_size()
        for side in array.shape or ():
            declared *= int(side)
        stored = array.get_storage_size()
        self.declared += declared
        if declared > MOST_RATIO * stored + UNSTORED or stored > self.size:
            raise DataError(
                f"{self.path}: {shown(where)} declares {declared:,} bytes, of which the file stores {stored:,}. It is "
                "damaged, or made to fill the memory."
            )
        if self.declared > memory():
            raise DataError(
                f"{self.path} declares {self.declared:,} bytes of arrays; this machine has {memory():,} of memory."
            )
