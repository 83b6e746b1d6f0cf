"""Datasets on a Hub in Minari's remote layout: one repo per namespace, one folder per dataset, a list at the root.

`zoo/hopper/medium-v0` of the account `me` is the folder `hopper/medium-v0` of the dataset repo `me/zoo`. Minari and
agentzoo load it from `hf://me/zoo/hopper/medium-v0`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentzoo.data.fetching import ORIGIN
from agentzoo.data.minari import open_dataset
from agentzoo.data.names import datasets_root
from agentzoo.data.summary import DatasetRow, rows
from agentzoo.errors import ConfigError, warn
from agentzoo.hub.listing import LIBRARY
from agentzoo.hub.publish import require_not_public
from agentzoo.store.downloads import Where, calling, is_repo_id, retried
from agentzoo.store.files import CARD
from agentzoo.text import amount

NAMESPACE_FILE = "namespace_metadata.json"
KIND = "dataset"  # repo type
OURS = "zoo"  # the namespace of the zoo's datasets


class PushedDataset(NamedTuple):
    """The result of pushing a dataset; `address` is the name for Minari and `--dataset`."""

    repo_id: str
    commit: str
    url: str
    address: str
    bytes: int


def push_dataset(
    dataset_id: str,
    owner: str,
    *,
    token: str | bool | None = None,
    private: bool | None = None,
    commit_message: str | None = None,
) -> PushedDataset:
    """Upload a local dataset in one commit, and add it to the list of its repo.

    Raises:
        UnknownNameError: no such local dataset. DataError: it cannot be read. ConfigError: its id has no namespace, or
            `owner` is not an account name. HubError: the upload failed; the repo's files are unchanged.
    """
    open_dataset(dataset_id, download=False)  # checks it
    namespace, _, inside = dataset_id.partition("/")
    repo_id = f"{owner}/{namespace}"
    if not inside or not is_repo_id(repo_id):
        raise ConfigError(
            f"{dataset_id!r} of {owner!r}: a dataset NAMESPACE/NAME-v0 is uploaded to the Hub repo OWNER/NAMESPACE."
        )
    folder = datasets_root() / dataset_id
    walked = (Path(at) / name for at, _, names in os.walk(folder, followlinks=True) for name in names)
    found = [path for path in sorted(walked) if path.is_file() and path != folder / ORIGIN]
    files = {f"{inside}/{path.relative_to(folder).as_posix()}": path for path in found}
    subspaces = [f"{namespace}/{parent}" for parent in map(str, Path(inside).parents) if parent != "."]
    message = commit_message or f"{dataset_id}: upload with agentzoo"
    info = _commit(repo_id, files, [dataset_id], subspaces, message, token, private)
    size = sum(path.stat().st_size for path in files.values())
    return PushedDataset(repo_id, info.oid, info.commit_url, f"hf://{owner}/{dataset_id}", size)


def push_card(owner: str, *, token: str | bool | None = None, private: bool | None = None) -> dict[str, str]:
    """Upload the card of the zoo's datasets to `OWNER/zoo`. An unchanged card makes no commit.

    A card of somebody's own stays, with a warning.

    Returns:
        `{"repo_id": ..., "revision": ...}` of the repo.

    Raises:
        HubError: the upload failed.
    """
    repo_id = f"{owner}/{OURS}"
    look = partial(_card_there, repo_id, private)
    head, card = calling(look, token, Where(repo_id), f"{repo_id} could not be read", again=False)
    if head is not None and card is not None and f"\n- {LIBRARY}\n" not in card:
        warn(f"the dataset repo {repo_id} has a card without the tag {LIBRARY}; it stays as it is.")
        return {"repo_id": repo_id, "revision": head}
    info = _commit(repo_id, {CARD: card_text(owner).encode()}, [], [], "Card of the datasets", token, private)
    return {"repo_id": repo_id, "revision": info.oid}


def _card_there(repo_id: str, private: bool | None, token: str | bool | None) -> tuple[str | None, str | None]:
    """The newest commit of the repo and its card; None if there is none.

    Raises:
        ConfigError: `private`, and the repo is public.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    api = HfApi(token=token, library_name=LIBRARY)
    try:
        info = retried(lambda: api.dataset_info(repo_id))
    except RepositoryNotFoundError:
        return None, None
    require_not_public(private, info, repo_id)
    return info.sha, _text_of(api, repo_id, CARD, info.sha)


def card_text(owner: str, found: Sequence[DatasetRow] | None = None) -> str:
    """The card: each dataset of the zoo and how to load or build it; `found` are the rows of `data list`."""
    ours = [row for row in (rows() if found is None else found) if row.dataset_id.startswith(f"{OURS}/")]
    lines = [
        "---",
        "license: mit",
        "task_categories:",
        "- reinforcement-learning",
        "tags:",
        f"- {LIBRARY}",
        "- minari",
        "- offline-rl",
        "---",
        "",
        "# Datasets of agentzoo",
        "",
        "Offline reinforcement learning data in [Minari](https://minari.farama.org)'s format, collected in Gymnasium's",
        "`-v5` environments. These are not D4RL's files.",
        "",
        "```python",
        "import minari",
        f'dataset = minari.load_dataset("hf://{owner}/zoo/hopper/medium-v0", download=True)',
        "```",
        "",
        "Build a dataset that is not in this repo on your machine: `agentzoo data build hopper/medium`.",
        "",
        "| dataset | environment | steps | episodes | mean return | how it was made |",
        "|---|---|---:|---:|---:|---|",
    ]
    for row in ours:
        numbers = [f"{row.steps:,}" if row.steps else "", "" if row.episodes is None else f"{row.episodes:,}"]
        numbers.append("" if row.mean_return is None else amount(row.mean_return, ","))
        cells = [f"`{row.dataset_id}`", f"`{row.env_id or ''}`", *numbers, row.made_by.replace("|", "/")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _commit(
    repo_id: str,
    files: dict[str, Any],
    datasets: list[str],
    subspaces: list[str],
    message: str,
    token: str | bool | None,
    private: bool | None,
) -> Any:
    """Make one commit with these files and the namespace's list, to which `datasets` are added."""
    from huggingface_hub import CommitOperationAdd, HfApi

    def commit(token: str | bool | None) -> Any:
        api = HfApi(token=token, library_name=LIBRARY)
        retried(lambda: api.create_repo(repo_id, repo_type=KIND, private=private, exist_ok=True))
        info = retried(lambda: api.dataset_info(repo_id))
        require_not_public(private, info, repo_id)
        head = info.sha
        listed = _listed(api, repo_id, head)
        for key, added in (("datasets", datasets), ("namespaces", subspaces)):
            listed[key] = sorted({*listed.get(key, []), *added})
        there = {one.rfilename for one in info.siblings or ()}
        names = {f"{space.partition('/')[2]}/{NAMESPACE_FILE}" for space in subspaces}
        described = dict.fromkeys(sorted(names - there), b"{}\n")  # a description by hand stays
        described[NAMESPACE_FILE] = (json.dumps(listed, indent=1, sort_keys=True) + "\n").encode()
        operations = [
            CommitOperationAdd(name, str(content) if isinstance(content, Path) else content)
            for name, content in {**files, **described}.items()
        ]
        return api.create_commit(
            repo_id, operations, repo_type=KIND, commit_message=message, parent_commit=head, revision="main"
        )

    return calling(commit, token, Where(repo_id), f"{repo_id} was not changed", again=False)


def _listed(api: Any, repo_id: str, head: str | None) -> dict[str, Any]:
    """The repo's `namespace_metadata.json`, empty if it has none."""
    tree = json.loads(_text_of(api, repo_id, NAMESPACE_FILE, head) or "{}")
    return tree if isinstance(tree, dict) else {}


def _text_of(api: Any, repo_id: str, name: str, head: str | None) -> str | None:
    """A file of the repo at this commit; None if it has none. A file that only cannot be fetched raises."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        path = retried(lambda: api.hf_hub_download(repo_id, name, repo_type=KIND, revision=head))
    except LocalEntryNotFoundError:  # a kind of EntryNotFoundError: the Hub did not answer
        raise
    except EntryNotFoundError:
        return None
    return Path(path).read_text(encoding="utf-8")
