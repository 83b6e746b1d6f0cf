"""The user's cache folder for files that are executed or trusted: other users must not be able to write to it.

A folder is private if it belongs to the user and others may not write to it. The same must hold for the folders above
it, up to the home folder or the root. Above the cache folder, folders of root are accepted, and shared folders in which
only owners may rename (the sticky bit, as on /tmp).
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

from agentzoo.errors import StorageError

VARIABLE = "AGENTZOO_CACHE"
UNUSED_DAYS = 30
_DELETED = ".deleted-"


def cache_folder() -> Path:
    """The folder for files that agentzoo can make again; it can be deleted at any time.

    It is `$AGENTZOO_CACHE`, else `$XDG_CACHE_HOME/agentzoo`, else `~/.cache/agentzoo`.

    Raises:
        StorageError: there is no home folder.
    """
    own, shared = os.environ.get(VARIABLE), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own).absolute()
    try:
        return Path(shared or Path.home() / ".cache").absolute() / "agentzoo"
    except RuntimeError as error:
        raise StorageError(f"there is no cache folder: {error}. Set {VARIABLE}.") from None


def private_folder(name: str) -> Path:
    """The folder `name` in the cache folder, created if it is missing.

    Raises:
        StorageError: it cannot be created, or others may write to it.
    """
    folder = cache_folder() / name
    try:
        make_private(folder)
        require_private(folder)
        require_private(folder.parent)
        for above in {*_up_to_home(folder.parent), *_up_to_home(folder.parent.resolve())}:
            _require_safe_parent(above)
    except OSError as error:
        raise error if isinstance(error, StorageError) else StorageError(f"{folder} cannot be used: {error}.") from None
    return folder


def make_private(folder: Path) -> None:
    """Create the folder and missing folders above it, writable by the user alone, whatever the umask."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def mark_used(path: Path) -> None:
    """Note the time at which a file or folder of the cache was used last, for `forget_unused`."""
    with suppress(OSError):
        os.utime(path)


def forget_unused(folder: Path) -> None:
    """Delete what lies in `folder` and was neither written nor marked as used in the last `UNUSED_DAYS` days.

    A process that has mapped such a file keeps its data. What cannot be deleted stays. A folder gets another name
    first, so nobody finds one that is half deleted; if the process ends there, the next call deletes the rest.
    """
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if entry.name != ".lock"]
    for entry in found:
        with suppress(OSError):  # another process may delete it first
            leftover = entry.name.startswith(_DELETED)
            if not leftover and entry.stat(follow_symlinks=False).st_mtime > oldest:
                continue
            if not entry.is_dir(follow_symlinks=False):
                Path(entry).unlink()
                continue
            aside = folder / (entry.name if leftover else f"{_DELETED}{entry.name}")
            shutil.rmtree(Path(entry).replace(aside))


def require_private(path: Path) -> None:
    """Raise StorageError unless this file or folder belongs to the user, is no link, and others cannot write to it."""
    found, user = path.lstat(), _user()
    if user is None:
        return
    is_link = stat.S_ISLNK(found.st_mode)
    if is_link or found.st_uid != user:
        why = "is a link" if is_link else "does not belong to this user"
        raise StorageError(f"{path} {why}. Delete it, or set {VARIABLE} to a folder of yours.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StorageError(f"others may write to {path}. Run: chmod go-w {path}")


def _up_to_home(folder: Path) -> list[Path]:
    """The folders above `folder`, up to the home folder if that is one of them."""
    above = list(folder.parents)
    try:
        home = Path.home()
    except RuntimeError:  # a process without a home folder
        return above
    return above[: above.index(home) + 1] if home in above else above


def _require_safe_parent(folder: Path) -> None:
    found, user = folder.stat(), _user()
    if user is None:
        return
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    if shared or found.st_uid not in (0, user):
        raise StorageError(
            f"others may write to {folder}, so files below it cannot be trusted. Run: chmod go-w {folder}, or set "
            f"{VARIABLE} to a folder of yours."
        )


def _user() -> int | None:
    """The user's id; None on a system whose files have no owners and modes."""
    ask = getattr(os, "getuid", None)
    return None if ask is None else int(ask())
