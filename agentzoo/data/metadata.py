"""`metadata.json` of a Minari dataset, which may be untrusted: checked before Minari reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentzoo.data.hdf5 import MOST_OBJECTS
from agentzoo.errors import DataError, shown

MAIN = "main_data.hdf5"
LEAST_EPISODE = 100  # smallest size of an episode in MAIN, in bytes
MOST_METADATA = 64 * 1024 * 1024  # bytes; the bounds of image spaces are long lists


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a dataset.

    Raises:
        DataError: no regular file, too large, or no JSON object.
    """
    try:
        if not path.is_file() or path.stat().st_size > MOST_METADATA:
            raise ValueError("it is missing, not a regular file, or too large")
        tree = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(tree, dict):
            raise ValueError("it is not a JSON object")
        return tree
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}. Fetch or build the dataset again.") from error


def check_metadata(path: Path) -> None:
    """Reject metadata that would make Minari create an environment, since its spec can name any function to call.

    Minari creates the environment if the metadata lacks a space.

    Raises:
        DataError: the file cannot be read, or a space is missing.
    """
    metadata = read_metadata(path)
    missing = [name for name in ("observation_space", "action_space") if not isinstance(metadata.get(name), str)]
    if missing:
        raise DataError(
            f"{path} has no {' and no '.join(missing)}. To find them, Minari would create the environment, which "
            "runs code. Write the dataset again with its spaces."
        )
    episodes, data = metadata.get("total_episodes"), path.with_name(MAIN)
    most = data.stat().st_size // LEAST_EPISODE if data.is_file() else MOST_OBJECTS
    if type(episodes) is not int or not 0 <= episodes <= most:  # Minari makes a list of this length
        raise DataError(f"{path} counts {shown(episodes)} episodes; a file of this size holds {most:,} at most.")
