"""Files that appear whole or not at all, and tensors that load strictly or not at all. safetensors only, no pickle."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from agentzoo.errors import CheckpointError, StorageError

MAX_HEADER = 10 * 1024 * 1024  # bytes; safetensors itself allows 100 MB
MAX_FILE = 4 * 1024**3
MAX_NAME, MAX_DIMENSIONS = 200, 8  # of one tensor
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write to a temporary name in the same folder, flush to disk, rename over `path`.

    Raises:
        StorageError: no space or no permission; what was at `path` is untouched and nothing is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)  # mkstemp makes it private
        Path(temporary).replace(path)
        temporary = None
    except OSError as error:
        raise StorageError(f"{path} was not written: {error}. What was there before is unchanged.") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the new content is there; not every file system flushes folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # or the rename itself may be lost with the power
        finally:
            os.close(folder)


@contextlib.contextmanager
def staging(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder of this process in `parent` to write in, gone in the end. What killed processes left is tidied up first.

    Args:
        prefix: what its name begins with, e.g. `.staging-`; the process's id follows.
    """
    parent.mkdir(parents=True, exist_ok=True)
    put_back(parent)
    for stale in parent.glob(f"{prefix}*"):
        if not _alive(stale.name.removeprefix(prefix).partition("-")[0]):
            shutil.rmtree(stale, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_back(parent: Path) -> None:
    """Tidy up after processes killed inside `swap_in`: an old folder gets its name back if the new one never came."""
    for aside in parent.glob(".replaced-*"):
        name, _, process = aside.name.removeprefix(".replaced-").rpartition("-")
        if _alive(process):
            continue
        if (parent / name).exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                aside.replace(parent / name)


def _alive(process: str) -> bool:
    """Whether the process of this id runs; what is no id may belong to anybody."""
    if not process.isdecimal():
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def swap_in(new: Path, target: Path) -> None:
    """Rename the finished folder `new` to `target`; what was there is deleted once it is replaced.

    Between the two renames the old folder lies beside the target as `.replaced-...`: at no moment is there neither, and
    `put_back` renames it back should the process be killed just then.
    """
    put_back(target.parent)
    if not target.exists():
        new.replace(target)
        return
    aside = target.with_name(f".replaced-{target.name}-{os.getpid()}")
    target.replace(aside)
    try:
        new.replace(target)
    except BaseException:
        aside.replace(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """`tensors` as one safetensors file, atomically. Same tensors, same bytes."""
    plain = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    write_atomic(path, to_bytes(plain, metadata=dict(metadata) if metadata else None))


def remove_unfinished(folder: Path) -> None:
    """What a process left that was killed while it wrote tensors."""
    for stale in folder.glob(".*.safetensors.*"):
        stale.unlink(missing_ok=True)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor of a safetensors file, and its metadata.

    Raises:
        CheckpointError: missing, truncated, or a header that does not describe the file.
    """
    check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{path} is broken: {error}. Fetch or train it again.") from error


def check_header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> (dtype, shape) of every tensor, read without allocating any.

    Raises:
        CheckpointError: as `read_tensors`.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise CheckpointError(f"{path} is no regular file.")
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
                raise CheckpointError(f"{path} is no safetensors file, or truncated: {size} bytes, header of {length}.")
            header = json.loads(file.read(length).decode())  # bytes would be read as UTF-16 where they look like it
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} has no readable header: {error}.") from None
    if size > MAX_FILE:
        raise CheckpointError(f"{path} holds {size} bytes, more than any agent ({MAX_FILE}).")
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} has a header that is no object.")
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            shape = tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            plain = len(shape) <= MAX_DIMENSIONS and len(name) <= MAX_NAME and name.isprintable()
            whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
            if not plain or not whole or not begin <= end <= size - 8 - length:
                raise ValueError(f"shape {shape}, bytes {begin!r} to {end!r} of {size - 8 - length}")
            if entry["dtype"] not in DTYPES:
                raise ValueError(f"dtype {entry['dtype']!r}")
            found[name] = (entry["dtype"], shape)
            spans.append((begin, end))
        except (KeyError, TypeError, ValueError) as error:
            said = str(error)[:200]
            raise CheckpointError(f"{path}: entry {name[:80]!r} of the header cannot be used: {said}.") from None
    spans.sort()
    for (_, before), (after, _) in itertools.pairwise(spans):
        if after < before:
            raise CheckpointError(f"{path}: two tensors of the header overlap at byte {after}.")
    return found


def load_strict(module: torch.nn.Module, path: Path) -> None:
    """Fill `module` from `path`: every name and shape must match. float16 tensors are widened.

    Raises:
        CheckpointError: names the tensors that are missing, unknown, of another shape or not finite.
    """
    header = check_header(path)
    expected = module.state_dict()
    missing = sorted(set(expected) - set(header))
    unknown = sorted(set(header) - set(expected))
    if missing or unknown:
        raise CheckpointError(
            f"{path} does not fit its config: missing {_some(missing)}; not expected {_some(unknown)}."
        )
    wrong = [
        f"{n} {header[n][1]} instead of {tuple(t.shape)}" for n, t in expected.items() if header[n][1] != tuple(t.shape)
    ]
    if wrong:
        raise CheckpointError(f"{path} does not fit its config: {_some(wrong)}.")
    kinds = sorted({header[n][0] for n in expected} - {"F32", "F16", "BF16"})
    if kinds:
        raise CheckpointError(f"{path} holds tensors of type {', '.join(kinds)}; weights are F32, F16 or BF16.")
    tensors, _ = read_tensors(path)
    broken = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if broken:
        raise CheckpointError(f"{path} holds non-finite numbers in {_some(broken)}.")
    module.load_state_dict({name: tensor.to(expected[name].dtype) for name, tensor in tensors.items()})


def _some(names: list[str], most: int = 5) -> str:
    if not names:
        return "none"
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as file:
        return (
            hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(file.read())
        )


def _digest(data: bytes) -> str:  # Python 3.10 has no file_digest
    return hashlib.sha256(data).hexdigest()
