"""The index: which Hub repo and commit `zoo/<id>` stands for."""

from __future__ import annotations

import json
import os
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from agentzoo.errors import CheckpointError, ConfigError, printable
from agentzoo.store.downloads import is_repo_id, is_revision
from agentzoo.store.files import read_text

INDEX_VARIABLE = "AGENTZOO_INDEX"
PLACE = "{agent_id}"  # in the default


class HubLocation(NamedTuple):
    """A Hub repo and a commit, tag or branch."""

    repo_id: str
    revision: str | None


def index_path() -> Path:
    """The file that maps ids to repos: the one in `$AGENTZOO_INDEX`, else the packaged one."""
    return Path(os.environ.get(INDEX_VARIABLE) or str(resources.files("agentzoo") / "hub_index.json"))


def read_index(path: Path) -> dict[str, Any]:
    """The index in a file: a JSON object with `agents`, of `id: {"repo_id": ..., "revision": ...}`, or a `default`.

    The `default` is a repo id with `{agent_id}` in it, for ids that `agents` lacks. Revisions may be left out.

    Raises:
        ConfigError: it cannot be read, or an entry or the default is invalid; the message has its path and the problem.
    """
    try:
        if not path.is_file():  # a device or pipe never ends
            raise ValueError("it is not a regular file" if path.exists() else "there is no such file")
        index = json.loads(read_text(path))
        if not isinstance(index, dict) or not {"agents", "default"} & index.keys():
            raise ValueError("it has neither agents nor a default")
        agents, default = index.get("agents", {}), index.get("default")
        if not isinstance(agents, dict):
            raise ValueError("its agents are not an object, id -> entry")
        for agent_id, entry in agents.items():
            _check_entry(agent_id, entry)
        if default is not None and not _is_pattern(default):
            raise ValueError(f"its default is {_shown(default)}, not a repo id with {{agent_id}} in it")
    except (CheckpointError, OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"the agent index {path} cannot be used: {error}") from error
    return index


def _check_entry(agent_id: str, entry: Any) -> None:
    """Raise ValueError unless this is an object with a repo id and no more than a revision beside it."""
    name = _shown(agent_id)
    if not isinstance(entry, dict) or "repo_id" not in entry:
        raise ValueError(f'{name} is {_shown(entry)}, not an object like {{"repo_id": "org/name", "revision": "main"}}')
    others = entry.keys() - {"repo_id", "revision"}
    if others:
        raise ValueError(f"{name} has {_shown(min(others))}, but an entry has only repo_id and revision")
    repo_id, revision = entry["repo_id"], entry.get("revision")
    if not isinstance(repo_id, str) or not is_repo_id(repo_id):
        raise ValueError(f"the repo_id of {name} is {_shown(repo_id)}, not a repo id")
    if not (revision is None or (isinstance(revision, str) and is_revision(revision))):
        raise ValueError(f"the revision of {name} is {_shown(revision)}, not a branch, tag or commit")


def _is_pattern(default: Any) -> bool:
    return isinstance(default, str) and PLACE in default and is_repo_id(default.replace(PLACE, "dt"))


def _shown(value: Any) -> str:
    return printable(repr(value), 80)


def hub_location(agent_id: str) -> HubLocation | None:
    """The index entry of `zoo/<id>`, from the file `index_path()`; None if it has none.

    Raises:
        ConfigError: the file is no index (`read_index`), or the `default` gives no repo id for this agent.
    """
    path = index_path()
    index = read_index(path)
    entry, default = index.get("agents", {}).get(agent_id), index.get("default")
    if entry is not None:
        return HubLocation(entry["repo_id"], entry.get("revision"))
    if default is None:
        return None
    repo_id: str = default.replace(PLACE, agent_id)
    if not is_repo_id(repo_id):
        raise ConfigError(f"the agent index {path} cannot be used: {_shown(repo_id)} is not a repo id")
    return HubLocation(repo_id, None)
