"""Push the whole zoo to a Hub: every network and a card of the datasets; write the index; check by hash.

Repos with the same content are skipped, so a stopped run can be repeated.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from agentzoo.errors import ConfigError, HubError
from agentzoo.hub.datasets import OURS, push_card
from agentzoo.hub.listing import LIBRARY
from agentzoo.hub.publish import check_folder, push, require_not_public, uploaded
from agentzoo.store.downloads import Where, blob_name, calling, fetch, is_repo_id
from agentzoo.store.exclusive import exclusive, lock_beside
from agentzoo.store.files import require_writable, write_atomic
from agentzoo.store.index import INDEX_VARIABLE, index_path, read_index
from agentzoo.store.locate import ZOO_VARIABLE, own_zoo, staged_agents, staged_backbones

OnProgress = Callable[[str], None]


class Item(NamedTuple):
    """One folder of the zoo and the repo it goes to."""

    name: str
    folder: Path
    repo_id: str
    files: tuple[str, ...]
    bytes: int


class Published(NamedTuple):
    """A published folder: the commit with its files, and whether this call made that commit."""

    name: str
    repo_id: str
    commit: str
    pushed: bool


def plan(org: str) -> list[Item]:
    """All folders of `store.locate.own_zoo`, backbones first, then agents. Nothing is sent.

    Raises:
        ConfigError: `org` is not an account name, or nothing is staged. CheckpointError: a folder fails its checks.
    """
    found, zoo = [], own_zoo()
    for name, folder in {**staged_backbones(), **staged_agents()}.items():
        if folder.parent != zoo:
            continue
        repo_id = f"{org}/{name}"
        if not is_repo_id(repo_id):
            raise ConfigError(f"{repo_id!r} is not a repo id; --org is the name of a Hub account or organization.")
        files, _ = check_folder(folder)
        size = sum((folder / file).stat().st_size for file in files)
        found.append(Item(name, folder, repo_id, tuple(files), size))
    if not found:
        raise ConfigError(
            f"{zoo} holds no agent; `agentzoo hub stage RUN --zoo FOLDER` adds a finished run to a folder, and "
            f"{ZOO_VARIABLE}=FOLDER makes that folder the one to publish."
        )
    return found


def push_all(
    org: str,
    *,
    token: str | bool | None = None,
    private: bool | None = None,
    index: Path | None = None,
    on_progress: OnProgress = lambda _: None,
) -> list[Published]:
    """Push every folder of `plan(org)` and the datasets' card, write the index, download all and compare hashes.

    Args:
        private: whether new repos are private; True refuses repos that are public.
        index: the file to write; by default the index in use.

    Raises:
        ConfigError: the present index cannot be used, or `private` meets a public repo. StorageError: the index cannot
            be written.
        HubError: a push failed or a file differs; the message says how many are done. Call again to continue.
    """
    index = index or index_path()
    _known_index(index)  # a broken one is refused before anything is sent
    require_writable(index)
    items = plan(org)
    done: list[Published] = []
    for i, item in enumerate(items):
        on_progress(f"{i + 1} of {len(items)}: {item.name}")
        try:
            done.append(_pushed(item, token, private))
        except HubError as error:
            raise HubError(f"{error} {i} of {len(items)} are published; the same command continues.") from error
    on_progress(f"the card of the datasets, {org}/{OURS}")
    datasets = push_card(org, token=token, private=private)
    _write_index(index, done, datasets)
    for i, (item, published) in enumerate(zip(items, done, strict=True)):
        on_progress(f"checking {i + 1} of {len(items)}: {item.name}")
        _check(item, published, token)
    return done


def _pushed(item: Item, token: str | bool | None, private: bool | None) -> Published:
    commit = _same_there(item, token, private)
    if commit is not None:
        return Published(item.name, item.repo_id, commit, pushed=False)
    made = push(item.folder, item.repo_id, token=token, private=private)
    return Published(item.name, item.repo_id, made.commit, pushed=made.changed)


def _same_there(item: Item, token: str | bool | None, private: bool | None) -> str | None:
    """The newest commit of the repo if it holds exactly these files; None if there is no such repo or it differs."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    def look(token: str | bool | None) -> tuple[str | None, list[Any]]:
        api = HfApi(token=token, library_name=LIBRARY)
        try:
            info = api.model_info(item.repo_id)
        except RepositoryNotFoundError:
            return None, []
        require_not_public(private, info, item.repo_id)
        return info.sha, list(api.list_repo_tree(item.repo_id, revision=info.sha))

    head, tree = calling(look, token, Where(item.repo_id), f"{item.repo_id} could not be read")
    if head is None:
        return None
    there = {entry.path: entry for entry in tree if entry.path != ".gitattributes"}
    same = there.keys() == set(item.files) and all(
        _equal(uploaded(item.folder, name, item.repo_id), there[name]) for name in item.files
    )
    return head if same else None


def _equal(content: bytes, entry: Any) -> bool:
    """Whether the content has the hash that the Hub lists: sha256 for a large file, git's for a small one."""
    named = entry.lfs.sha256 if getattr(entry, "lfs", None) else entry.blob_id
    return bool(named == blob_name(content, len(named)))


def _known_index(path: Path) -> dict[str, Any]:
    """The present index, which a push adds to; empty if there is none yet."""
    return read_index(path) if path.exists() else {}


def _write_index(path: Path, done: list[Published], datasets: dict[str, str]) -> None:
    agents = {one.name: {"repo_id": one.repo_id, "revision": one.commit} for one in done}
    with exclusive(lock_beside(path), INDEX_VARIABLE):
        known = _known_index(path)
        known = {**known, "agents": {**known.get("agents", {}), **agents}, "datasets": datasets}
        write_atomic(path, json.dumps(known, indent=2, sort_keys=True) + "\n")


def _check(item: Item, published: Published, token: str | bool | None) -> None:
    """Download the pinned commit into an empty cache and compare every file."""
    with tempfile.TemporaryDirectory(prefix="agentzoo-check-") as cache:
        folder = fetch(item.repo_id, item.files, revision=published.commit, token=token, cache_dir=cache)
        check_folder(folder)
        for name in item.files:
            if (folder / name).read_bytes() != uploaded(item.folder, name, item.repo_id):
                raise HubError(
                    f"{item.repo_id}@{published.commit} has a different {name} than {item.folder}. Push again."
                )
