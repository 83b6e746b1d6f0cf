"""One process at a time trains in a folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from agentzoo.errors import StorageError, TrainingError
from agentzoo.store.files import write_atomic

LOCK = "training.lock"  # stays, empty, when it is released: deleting a lock's file would let two processes in
PATIENCE = 0.3  # seconds; `holder` takes a free lock for a moment


@contextmanager
def held(folder: Path, name: str = LOCK) -> Iterator[None]:
    """No other process writes a run in `folder` meanwhile. The lock dies with its process, however that ends.

    Args:
        folder: is made where it is missing.
        name: of the lock's file; a file beside it, with the suffix `.pid`, names the process that holds it.

    Raises:
        TrainingError: another process holds it; names that. StorageError: the folder cannot be written to.
    """
    path = folder / name
    lock = FileLock(path)
    owner = path.with_suffix(".pid")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=PATIENCE, poll_interval=0.05)
    except Timeout:
        raise TrainingError(
            f"{folder} is being trained by process {_named(owner)}. Wait for it, stop it, or choose another --out."
        ) from None
    except NotImplementedError:
        pass  # a network drive without locks
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise StorageError(f"{path} was not written: {error}.") from error
    try:
        write_atomic(owner, f"{os.getpid()}\n")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def holder(folder: Path, name: str = LOCK) -> str | None:
    """The id of the process that holds the lock, as text; None where none does, or none can be seen from here."""
    path = folder / name
    if not path.exists():
        return None
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return _named(path.with_suffix(".pid"))
    except (OSError, NotImplementedError):
        return None
    lock.release()
    return None


def _named(owner: Path) -> str:
    try:
        return owner.read_text(encoding="utf-8").strip() or "?"
    except OSError:
        return "?"  # it has just begun or ended, or belongs to another user
