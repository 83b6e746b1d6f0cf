"""Exclusive access for one process of this machine. A separate file, so that `agentzoo list` imports no locks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

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
    with _held(path, hint=f" Set {variable}."):
        yield


@contextlib.contextmanager
def only_writer(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock of an agent's folder, which a command copies, measures for minutes and replaces.

    Args:
        wait: until another process has ended; by default it is an error.

    Raises:
        StorageError: another process of this machine holds the lock, or it cannot be written.
    """
    folder = folder.resolve()
    lock = folder.with_name(f".{folder.name}.lock")
    busy = "" if wait else f"another command is changing {folder}. Repeat this one when that has ended."
    with _held(lock, busy=busy):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # Windows keeps an open file
                lock.unlink()  # filelock does not take a lock whose file is gone


@contextlib.contextmanager
def _held(path: Path, hint: str = "", busy: str = "") -> Iterator[None]:
    """Hold the lock file at `path`. `busy`: the error if another process holds it; by default it is waited for."""
    lock = FileLock(path, timeout=0 if busy else -1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise StorageError(busy) from None
    except NotImplementedError:
        pass  # a network drive may have no locks
    except OSError as error:
        raise StorageError(f"nothing can be written in {path.parent}: {error}.{hint}") from error
    try:
        yield
    finally:
        lock.release()
