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
    with _held(path, -1, f" Set {variable}."):
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
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_held(lock, -1 if wait else 0, ""))
        except Timeout:
            raise StorageError(f"another command is changing {folder}. Repeat this one when that has ended.") from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # Windows keeps an open file
                lock.unlink()  # filelock does not take a lock whose file is gone


@contextlib.contextmanager
def _held(path: Path, seconds: float, hint: str) -> Iterator[None]:
    """Hold the lock file at `path`. `seconds`: how long to wait, -1 for ever. Raises filelock's Timeout after them."""
    lock = FileLock(path, timeout=seconds)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise
    except NotImplementedError:
        pass  # a network drive may have no locks
    except OSError as error:
        raise StorageError(f"nothing can be written in {path.parent}: {error}.{hint}") from error
    try:
        yield
    finally:
        lock.release()
