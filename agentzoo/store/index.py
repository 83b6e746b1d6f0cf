"""The index: which Hub repo and commit `zoo/<id>` stands for."""

from __future__ import annotations

import json
import os
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.store.files import read_text
from agentzoo.store.remote import check_revision, is_repo_id

INDEX_VARIABLE = "AGENTZOO_INDEX"


class HubLocation(NamedTuple):
    """A Hub repo and a commit, tag or branch."""

    repo_id: str
    revision: str | None


def index_path() -> Path:
    """The file that maps ids to repos: the one in `$AGENTZOO_INDEX`, else the packaged one."""
    return Path(os.environ.get(INDEX_VARIABLE) or str(resources.files("agentzoo") / "hub_index.json"))


def read_index(path: Path) -> dict[str, Any]:
    """The index in a file: a JSON object with `agents`, of `id: {"repo_id": ..., "revision": ...}`, or a `default`.

    Raises:
        ConfigError: it cannot be read or is none; its path and the problem are in the message.
    """
    try:
        if not path.is_file():  # a device or pipe never ends
            raise ValueError("it is not a regular file" if path.exists() else "there is no such file")
        index = json.loads(read_text(path))
        if not isinstance(index, dict) or not {"agents", "default"} & index.keys():
            raise ValueError("it has neither agents nor a default")
        if not isinstance(index.get("agents", {}), dict):
            raise ValueError("its agents are no object of ids")
    except (CheckpointError, OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"the agent index {path} cannot be used: {error}") from error
    return index


def hub_location(agent_id: str) -> HubLocation | None:
    """The index entry of `zoo/<id>`, from the file `index_path()`.

    Raises:
        ConfigError: the file is no index (`read_index`), the entry is none, or the `default` is not a repo id with
            `{agent_id}` in it.
    """
    path = index_path()
    index = read_index(path)
    try:
        entry = index.get("agents", {}).get(agent_id)
        pattern: Any = index.get("default")
        if entry is None and pattern is None:
            return None
        repo_id = entry["repo_id"] if entry else pattern.replace("{agent_id}", agent_id)
        revision = entry.get("revision") if entry else None
        if not isinstance(repo_id, str) or not is_repo_id(repo_id):
            raise ValueError(f"{str(repo_id)[:80]!r} is not a repo id")
        if revision is not None and not isinstance(revision, str):
            raise ValueError(f"{str(revision)[:80]!r} is not a revision")
        check_revision(revision)
        return HubLocation(repo_id, revision)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"the agent index {path} cannot be used: {error}") from error
