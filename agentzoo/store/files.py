"""Files and folders that appear whole or not at all, even if the process is killed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from agentzoo.errors import AgentzooError, CheckpointError, StorageError

# What an agent's folder holds.
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
RECIPE = "train_config.json"
RESULTS = "results.json"
RESULT = "result.json"  # an evaluation kept beside a run's weights
STORED_RESULT = "result-as-staged.json"  # another, of its weights as a staged agent holds them
CARD = "README.md"
LOG = "training_log.csv"
SWEEP_PLOT = "targets.png"
VIDEO = "replay.mp4"

MAX_JSON = 4 * 1024 * 1024  # bytes

# in the name of a folder being written: on a shared drive, process ids of other machines mean nothing
HOST = re.sub(r"[^A-Za-z0-9]", "_", platform.node()) or "here"


def in_home(name: str) -> Path:
    """The path `name`, in which `~` is a home folder. Where there is no such user, `~` stays a part of the name."""
    return Path(os.path.expanduser(name))  # noqa: PTH111  Path's own raises then


def read_text(path: Path) -> str:
    """A small text file: one of an agent's folder, or one that the user names.

    Raises:
        CheckpointError: missing, unreadable, not text or far too large.
    """
    try:
        if path.exists() and not path.is_file():  # reading a pipe blocks, a device never ends
            raise CheckpointError(f"{path} is not a regular file.")
        if path.stat().st_size > MAX_JSON:
            raise CheckpointError(f"{path} holds {path.stat().st_size} bytes; such files hold a few thousand.")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if path.name == CONFIG and (path.parent / RECIPE).is_file() and not (path.parent / WEIGHTS).exists():
            raise CheckpointError(
                f"{path.parent} holds an unfinished training. Continue it with `agentzoo train {path.parent}`, a "
                "fine-tune by repeating its `agentzoo finetune` command."
            ) from None
        if path.name not in (CONFIG, WEIGHTS, RECIPE, RESULTS):
            raise CheckpointError(f"there is no file {path}.") from None
        raise CheckpointError(
            f"{path} is missing: an agent's folder holds {CONFIG}, {WEIGHTS} and, to be trained again, {RECIPE}."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def write_atomic(path: Path, content: bytes | str, mode: int | None = None) -> None:
    """Write to a temporary name in the same folder, flush to disk, rename over `path`, also if that is a link.

    Args:
        mode: the permissions of the file; by default those of the old file, or what the umask leaves of a new one.

    Raises:
        StorageError: no space or no permission. An old file at `path` stays, and no temporary file is left.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is None and path.is_file():
            mode = stat.S_IMODE(path.stat().st_mode)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        raise StorageError(f"{path} was not written: {error}.{_kept(path)}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    with contextlib.suppress(OSError):  # the content is written; not every file system flushes folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # else a power failure may undo the rename
        finally:
            os.close(folder)


def require_writable(path: Path) -> None:
    """Raise StorageError, before the work whose result goes there, unless `write_atomic` can write this file."""
    if path.is_dir():
        raise StorageError(f"{path} is a folder; name the file to write.")
    if path.exists() and not path.is_file():
        raise StorageError(f"{path} is a device or a pipe, which a file would replace; name a file to write.")
    own = (CONFIG, WEIGHTS, RECIPE, *([RESULTS] if (path.parent / CONFIG).exists() else ()))
    if path.name in own and path.exists():
        raise StorageError(f"{path} is a file of an agent, which would be lost. Name another file to write.")
    try:
        folder = next(folder for folder in path.absolute().parents if folder.exists())  # the others are made by writing
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}. Name another file.") from error


@contextlib.contextmanager
def not_written(target: Path) -> Iterator[None]:
    """Raise StorageError for an OSError inside, which left `target` as it was: a full disk, no permission."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError):
            if not str(error).startswith(f"{target.parent}{os.sep}"):  # of another folder; it says enough
                raise
            error = error.__cause__ if isinstance(error.__cause__, OSError) else error
        # shutil.copytree lists (source, copy, reason) of every file
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) and error.args[0] else error
        raise StorageError(f"{target} was not written: {reason}.{_kept(target)}") from error


def _kept(path: Path) -> str:
    """A sentence for an error that left what was at `path`."""
    return " Its previous content is unchanged." if os.path.lexists(path) else ""


def with_advice(error: OSError, variable: str) -> str:
    """The message of an error of the disk as a sentence, and what to do; `variable` names another folder."""
    cause = error.__cause__ if isinstance(error, StorageError) and isinstance(error.__cause__, OSError) else error
    full = cause.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "Make room" if full else "Check the folder's permissions"
    return f"{str(error).rstrip('.')}. {advice}, or set {variable} to another folder."


@contextlib.contextmanager
def staging(parent: Path, prefix: str) -> Iterator[Path]:
    """A temporary folder of this process in `parent`, deleted at the end. Leftovers of killed processes of this machine
    are deleted first.

    Args:
        prefix: start of its name, e.g. `.staging-`; the machine's name and the process's id follow.

    Raises:
        StorageError: `parent` cannot be written to.
    """
    own = f"{prefix}{HOST}-"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        put_back(parent)
        for stale in parent.glob(f"{own}*"):
            if not _alive(stale.name.removeprefix(own).partition("-")[0]):
                shutil.rmtree(stale, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{own}{os.getpid()}-", dir=parent))
    except OSError as error:
        raise StorageError(f"nothing can be written in {parent}: {error}.") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_back(parent: Path) -> None:
    """Clean up after processes of this machine that were killed inside `swap_in`: an old folder gets its name back if
    the new one is missing."""
    for aside in parent.glob(f".replaced-*-{HOST}-*"):
        name, _, process = aside.name.removeprefix(".replaced-").rpartition("-")
        if _alive(process) or not name.endswith(f"-{HOST}"):
            continue
        name = name.removesuffix(f"-{HOST}")
        if (parent / name).exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                aside.replace(parent / name)


def _alive(process: str) -> bool:
    """Whether a process with this id runs; True for a text that is not an id."""
    if not process.isdecimal():
        return True
    try:
        return bool(psutil.pid_exists(int(process)))
    except OverflowError:  # no process has so large an id
        return False


def swap_in(new: Path, target: Path) -> None:
    """Rename the finished folder `new` to `target`, then delete the old folder.

    Between the two renames the old folder is beside the target as `.replaced-...`. If the process is killed there,
    `put_back` restores it.
    """
    target = target.resolve()  # a link stays a link, to the new folder
    put_back(target.parent)
    if not target.exists():
        new.replace(target)
        return
    aside = target.with_name(f".replaced-{target.name}-{HOST}-{os.getpid()}")
    target.replace(aside)
    try:
        new.replace(target)
    except BaseException:
        aside.replace(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Delete temporary files of a process that was killed while it wrote tensors or records."""
    for pattern in (".*.safetensors.*", ".*.json.*"):
        for stale in folder.glob(pattern):
            stale.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_backbone(folder: Path) -> bool:
    """Whether this holds a backbone: a network whose `config.json` is in transformers' format."""
    try:
        tree = json.loads(read_text(folder / CONFIG))
    except (AgentzooError, ValueError, RecursionError):
        return False
    return isinstance(tree, dict) and "model_type" in tree and "agent_id" not in tree
