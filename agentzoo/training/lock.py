"""A lock on a folder: only one process at a time trains in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from agentzoo.errors import StorageError, TrainingError
from agentzoo.store.files import write_atomic

GRID_LOCK = "grid.lock"  # around training and evaluation of a grid's run; `LOCK` is around training alone
LOCK = "training.lock"  # the empty file stays after release: deleting it could let two processes in
PATIENCE = 0.3  # seconds; `holder` holds a free lock for a moment


@contextmanager
def held(folder: Path, name: str = LOCK) -> Iterator[None]:
    """Lock `folder` against other processes. The lock ends with its process, even if that is killed.

    Args:
        folder: created if it is missing.
        name: the lock file; a file beside it, with the suffix `.pid`, names the process that holds it.

    Raises:
        TrainingError: another process holds the lock; the message names it. StorageError: the folder cannot be written
            to.
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
        pass  # a network drive may have no locks
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
    """The id of the process that holds the lock, as text; None if no visible process does."""
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
        return "?"  # it has just started or ended, or belongs to another user
