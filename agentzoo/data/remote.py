"""Datasets on the Hub, named by address: `hf://OWNER/NAMESPACE/NAME-v0`."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from agentzoo.data.minari import minari_root, put_dataset
from agentzoo.data.names import dataset_id as full_id
from agentzoo.data.names import datasets_root, is_local
from agentzoo.errors import ConfigError, DataError
from agentzoo.extras import needed
from agentzoo.store.files import staging

REMOTE_VARIABLE = "MINARI_REMOTE"
_ADDRESS = re.compile(r"hf://(?P<owner>[A-Za-z0-9][A-Za-z0-9_.-]{0,95})/(?P<id>(?:[\w-]+/)+[\w-]+-v\d+)")


def dataset_of(name: str) -> str:
    """The id of a dataset; a dataset named by its address is downloaded first, unless it is local.

    Args:
        name: `zoo/hopper/medium-v0`, a recipe of `agentzoo data build` like `hopper/medium`, or an address
            `hf://OWNER/zoo/hopper/medium-v0`.

    Raises:
        ConfigError: not a valid address. DataError: the download failed; no part of it is kept.
    """
    if "://" not in name:
        return full_id(name)
    found = _ADDRESS.fullmatch(name)
    if found is None:
        raise ConfigError(
            f"{name!r} is not the address of a dataset; an address looks like hf://OWNER/NAMESPACE/NAME-v0."
        )
    dataset_id, root = found["id"], datasets_root()
    if is_local(dataset_id):
        return dataset_id
    minari = needed("minari", "train", "fetching data")
    with staging(root, ".fetching-") as draft:
        try:
            # Minari prints, and asks its own remote for the namespaces
            with minari_root(draft), _remote(f"hf://{found['owner']}"), contextlib.redirect_stdout(io.StringIO()):
                minari.download_dataset(name)
        except Exception as error:  # clients of remotes raise many types
            reason = " ".join(str(error).split())[:300]
            raise DataError(f"{name} could not be fetched: {type(error).__name__}: {reason}") from error
        put_dataset(draft, root, dataset_id)
    return dataset_id


@contextmanager
def _remote(path: str) -> Iterator[None]:
    before = os.environ.get(REMOTE_VARIABLE)
    os.environ[REMOTE_VARIABLE] = path
    try:
        yield
    finally:
        if before is None:
            del os.environ[REMOTE_VARIABLE]
        else:
            os.environ[REMOTE_VARIABLE] = before
