"""Downloads of Minari datasets, which appear on this machine whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentzoo.data.names import datasets_root, is_local, local_ids
from agentzoo.extras import needed
from agentzoo.store.files import staging, swap_in

ORIGIN = "origin.txt"  # beside the `data` of a fetched dataset: the id or address that it was fetched by


def fetch(name: str, dataset_id: str) -> None:
    """Download a dataset from Minari's remote, whole or not at all, with the datasets that it says it combines.

    Args:
        name: its id, or an address `hf://OWNER/NAMESPACE/NAME-v0`, which is kept as its origin.

    Raises:
        StorageError: nothing can be written. Whatever Minari's clients of remotes raise.
    """
    minari = needed("minari", "train", "fetching data")
    root = datasets_root()
    with staging(root, ".fetching-") as draft:
        with minari_root(draft), contextlib.redirect_stdout(io.StringIO()):  # Minari prints
            minari.download_dataset(name)
        (draft / dataset_id / ORIGIN).write_text(name)
        for one in local_ids(draft):
            if one == dataset_id or not is_local(one):
                put_dataset(draft, root, one)


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
        described.replace(root / namespace / described.name)
    swap_in(draft / dataset_id, final)


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
