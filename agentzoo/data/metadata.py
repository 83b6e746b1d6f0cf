"""`metadata.json` of a Minari dataset, which may be untrusted: checked before Minari reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentzoo.data.hdf5 import MAX_OBJECTS
from agentzoo.envs import registered
from agentzoo.envs.comparing import LIMIT, differing, task_options
from agentzoo.envs.env_options import MAX_STEPS
from agentzoo.errors import DataError, printable

MAIN = "main_data.hdf5"
MIN_EPISODE = 100  # smallest size of an episode in MAIN, in bytes
SPECS = ("eval_env_spec", "env_spec")  # the environment to evaluate in comes first
MAX_METADATA = 64 * 1024 * 1024  # bytes; the bounds of image spaces are long lists


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a dataset.

    Raises:
        DataError: no regular file, too large, or no JSON object.
    """
    try:
        if not path.is_file() or path.stat().st_size > MAX_METADATA:
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
    most = data.stat().st_size // MIN_EPISODE if data.is_file() else MAX_OBJECTS
    if type(episodes) is not int or not 0 <= episodes <= most:  # Minari makes a list of this length
        raise DataError(f"{path} counts {printable(episodes)} episodes; a file of this size holds {most:,} at most.")


def environment_spec(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of the data's environment as plain data, from the first of `SPECS` that is set; Minari stores JSON text.

    Empty if there is none or it cannot be read.
    """
    found = next((metadata[key] for key in SPECS if metadata.get(key)), None)
    if found is None:
        return {}
    try:
        tree = json.loads(found if isinstance(found, str) else found.to_json())
    except (ValueError, AttributeError, TypeError):
        return {}
    return tree if isinstance(tree, dict) else {}


def named_environment(metadata: Mapping[str, Any]) -> str | None:
    """The Gymnasium id in a dataset's metadata, if it has one."""
    name = environment_spec(metadata).get("id")
    return name if isinstance(name, str) and name else None


def changed_options(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments and the limit of steps of an environment's spec, where they differ from the registered ones.

    Rendering and the seed are left out. A limit that the data lifts is `MAX_STEPS`. All are returned if the
    environment is not registered.
    """
    name, kwargs, limit = (spec.get(key) for key in ("id", "kwargs", LIMIT))
    options = task_options({**(kwargs if isinstance(kwargs, dict) else {}), LIMIT: limit})
    usual = registered(name) if isinstance(name, str) else None
    own = {} if usual is None else task_options({LIMIT: usual.max_episode_steps, **usual.kwargs})
    if LIMIT not in spec or (usual is None and options[LIMIT] == MAX_STEPS):  # no limit is known
        del options[LIMIT]
    other = differing(own, options, usual)
    return {key: value for key, value in options.items() if key in other}
