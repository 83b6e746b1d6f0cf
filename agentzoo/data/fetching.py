"""Downloads of Minari datasets, which appear on this machine whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentzoo.data.names import datasets_root, is_local, local_ids
from agentzoo.errors import StorageError
from agentzoo.extras import needed
from agentzoo.store.files import put_back, staging, swap_in, with_advice, write_atomic
from agentzoo.store.watch import watched

OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV)
ORIGIN = "origin.txt"  # beside the `data` of a fetched dataset: the id or address that it was fetched by


def fetch(name: str, dataset_id: str) -> None:
    """Download a dataset from Minari's remote, whole or not at all, with the datasets that it combines.

    Args:
        name: its id, or an address `hf://OWNER/NAMESPACE/NAME-v0`, which is kept as its origin.

    Raises:
        StorageError: nothing can be written. StoppedError: no progress for too long. Errors of Minari's remote clients
            pass through.
    """
    minari = needed("minari", "train", "fetching data")
    root = datasets_root()
    with _explained(root), watched(), staging(staging_root(root, root / dataset_id), ".fetching-") as draft:
        with minari_root(draft), contextlib.redirect_stdout(io.StringIO()):  # Minari prints
            minari.download_dataset(name)
        (draft / dataset_id / ORIGIN).write_text(name)
        for one in local_ids(draft):
            if not is_local(one):  # another process may have fetched it first and be reading it
                put_dataset(draft, root, one)


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    """Raise StorageError for an OSError of the disk; those of Minari's remote clients pass through."""
    try:
        yield
    except OSError as error:
        if error.errno not in OF_THE_DISK:
            raise
        why = with_advice(error, "MINARI_DATASETS_PATH")
        raise StorageError(f"nothing can be written in {root}: {why}") from error


def dataset_origin(dataset_id: str) -> str | None:
    """The id or address that a local dataset was fetched by; None if it was not fetched by agentzoo."""
    path = datasets_root() / dataset_id / ORIGIN
    return path.read_text(errors="replace") if path.is_file() else None


def put_dataset(draft: Path, root: Path, dataset_id: str) -> None:
    """Move the finished dataset to its place by renaming."""
    final = root / dataset_id
    final.parent.mkdir(parents=True, exist_ok=True)
    namespace = Path(dataset_id).parts[0]
    described = draft / namespace / "namespace_metadata.json"
    if described.exists() and not (root / namespace / described.name).exists():
        write_atomic(root / namespace / described.name, described.read_bytes())  # `root` may be another disk
    swap_in(draft / dataset_id, final)


def restore_replaced(dataset_id: str) -> None:
    """Put a local dataset back in its place if a process was killed while replacing it."""
    with contextlib.suppress(OSError):  # datasets may be read-only
        put_back((datasets_root() / dataset_id).parent)


def staging_root(root: Path, final: Path) -> Path:
    """The folder to stage in: `root`, or the nearest one above `final` if its links lead to another disk."""
    above = next(folder for folder in final.resolve().parents if folder.exists())
    return above if root.exists() and above.stat().st_dev != root.stat().st_dev else root


@contextmanager
def minari_root(path: Path) -> Iterator[None]:
    """Make Minari read and write datasets in `path` inside the block."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before
