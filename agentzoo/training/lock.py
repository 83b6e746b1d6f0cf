"""One process at a time trains in a folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from agentzoo.errors import StorageError, TrainingError

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

LOCK = "training.lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """No other process writes a run in `folder` meanwhile. The lock dies with its process, however that ends.

    Raises:
        TrainingError: another process holds it; names that. StorageError: the folder cannot be written to.
    """
    if fcntl is None:
        yield
        return
    file = _lock(folder)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # while it is held: `_lock` sees that the file it opened is gone
        file.close()


def _lock(folder: Path) -> TextIO:
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            file = path.open("a+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    break
            except BlockingIOError:
                file.seek(0)
                who = file.read().strip()
                file.close()
                raise TrainingError(
                    f"{folder} is being trained by process {who or 'of another user'}. Wait for it, stop it, or choose "
                    "another --out."
                ) from None
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                    raise
                break  # a network drive without locks
            file.close()  # its owner deleted it between our two calls
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
    except OSError as error:
        raise StorageError(f"{path} was not written: {error}.") from error
    return file
