"""Exclusive access for one process of this machine. A separate file, so that `agentzoo list` imports no locks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from agentzoo.errors import StorageError


def lock_beside(path: Path) -> Path:
    """The lock file for changes of the file at `path`, whose content a process reads and writes again."""
    return path.with_name(f".{path.stem}.lock")


@contextlib.contextmanager
def exclusive(path: Path, variable: str) -> Iterator[None]:
    """Wait until no other process of this machine holds the lock file at `path`, and hold it.

    Args:
        path: the lock file; its folder is created.
        variable: the environment variable that sets another folder, for the message.

    Raises:
        StorageError: the folder cannot be written to.
    """
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except NotImplementedError:
        pass  # a network drive may have no locks
    except OSError as error:
        raise StorageError(f"nothing can be written in {path.parent}: {error}. Set {variable}.") from error
    try:
        yield
    finally:
        lock.release()
