"""Datasets on the Hub, named by address: `hf://OWNER/NAMESPACE/NAME-v0`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from agentzoo.data.fetching import dataset_origin, fetch
from agentzoo.data.names import dataset_id as full_id
from agentzoo.data.names import datasets_root, is_local
from agentzoo.errors import ConfigError, DataError, StorageError, printable, warn

REMOTE_VARIABLE = "MINARI_REMOTE"
_ADDRESS = re.compile(r"hf://(?P<owner>[A-Za-z0-9][A-Za-z0-9_.-]{0,95})/(?P<id>(?:[\w-]+/)+[\w-]+-v\d+)")


def dataset_of(name: str) -> str:
    """The id of a dataset; a dataset named by its address is downloaded first, unless it is local.

    A local dataset of this id that does not come from this address is used with a warning.

    Args:
        name: `zoo/hopper/medium-v0`, a recipe of `agentzoo data build` like `hopper/medium`, or an address
            `hf://OWNER/zoo/hopper/medium-v0`.

    Raises:
        ConfigError: not a valid address. DataError: the download failed; no part of it is kept.
        StorageError: no space or no permission.
    """
    if "://" not in name:
        return full_id(name)
    found = _ADDRESS.fullmatch(name)
    if found is None:
        raise ConfigError(
            f"{name!r} is not the address of a dataset; an address looks like hf://OWNER/NAMESPACE/NAME-v0."
        )
    dataset_id = found["id"]
    if is_local(dataset_id):
        _warn_of_other_origin(name, dataset_id)
        return dataset_id
    try:
        with _remote(f"hf://{found['owner']}"):  # Minari asks its own remote for the namespaces
            fetch(name, dataset_id)
    except StorageError:
        raise
    except Exception as error:  # clients of remotes raise many types
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"{name} could not be fetched: {type(error).__name__}: {reason}") from error
    return dataset_id


def _warn_of_other_origin(address: str, dataset_id: str) -> None:
    origin = dataset_origin(dataset_id)
    if origin == address:
        return
    comes = "was not fetched by agentzoo" if origin is None else f"was fetched as {printable(origin, 100)}"
    warn(
        f"{address} is not fetched: dataset {dataset_id!r} in {datasets_root()} {comes} and is used instead. To fetch "
        "the other one, move this one away or set MINARI_DATASETS_PATH to a different folder.",
        depth=3,
    )


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
