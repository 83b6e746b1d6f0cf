"""The whole zoo on a Hub with one command: every network, then the index that pins them, then a check by hash.

What is there already with the same content is left alone, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from agentzoo.errors import ConfigError, HubError
from agentzoo.hub.datasets import push_card
from agentzoo.hub.listing import LIBRARY
from agentzoo.hub.publish import check_folder, push, uploaded
from agentzoo.store.files import write_atomic
from agentzoo.store.locate import index_path, local_zoo, staged_agents, staged_backbones
from agentzoo.store.remote import Where, calling, fetch, is_repo_id

OnProgress = Callable[[str], None]


class Item(NamedTuple):
    """One folder of the zoo and the repo it goes to."""

    name: str
    folder: Path
    repo_id: str
    files: tuple[str, ...]
    bytes: int


class Published(NamedTuple):
    """Where one folder is: the commit whose files equal it, and whether this run made that commit."""

    name: str
    repo_id: str
    commit: str
    pushed: bool


def plan(org: str) -> list[Item]:
    """Everything in the local zoo: networks that agents start from, then agents. Nothing is sent.

    What a wheel brought along is not part of a zoo of one's own.

    Raises:
        ConfigError: `org` is no account's name, or nothing is staged. CheckpointError: a folder is not fit to publish.
    """
    found, zoo = [], local_zoo()
    for name, folder in {**staged_backbones(), **staged_agents()}.items():
        if folder.parent != zoo:
            continue
        repo_id = f"{org}/{name}"
        if not is_repo_id(repo_id):
            raise ConfigError(f"{repo_id!r} is no repo id; --org is the name of a Hub account or organization.")
        files, _ = check_folder(folder)
        size = sum((folder / file).stat().st_size for file in files)
        found.append(Item(name, folder, repo_id, tuple(files), size))
    if not found:
        raise ConfigError("nothing is staged here: `agentzoo hub stage` puts a finished run into the zoo.")
    return found


def push_all(
    org: str,
    *,
    token: str | bool | None = None,
    private: bool | None = None,
    index: Path | None = None,
    on_progress: OnProgress = lambda _: None,
) -> list[Published]:
    """Push every folder of `plan(org)` and the datasets' card, write the index, load all back and compare hashes.

    Args:
        private: of repos that are created.
        index: the file to write; by default the one that ids are looked up in.

    Raises:
        HubError: one could not be pushed or differs; says how many are done. The same call goes on.
    """
    items = plan(org)
    done: list[Published] = []
    for i, item in enumerate(items):
        on_progress(f"{i + 1} of {len(items)}: {item.name}")
        try:
            done.append(_pushed(item, token, private))
        except HubError as error:
            raise HubError(f"{error} {i} of {len(items)} are published; the same command goes on.") from error
    on_progress("the card of the datasets")
    datasets = push_card(org, token=token, private=private)
    _write_index(index or index_path(), done, datasets)
    for i, (item, published) in enumerate(zip(items, done, strict=True)):
        on_progress(f"checking {i + 1} of {len(items)}: {item.name}")
        _check(item, published, token)
    return done


def _pushed(item: Item, token: str | bool | None, private: bool | None) -> Published:
    commit = _same_there(item, token)
    if commit is not None:
        return Published(item.name, item.repo_id, commit, pushed=False)
    made = push(item.folder, item.repo_id, token=token, private=private)
    return Published(item.name, item.repo_id, made.commit, pushed=True)


def _same_there(item: Item, token: str | bool | None) -> str | None:
    """The newest commit of the repo if it holds these very files; None: there is no such repo, or it differs."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    def look(token: str | bool | None) -> tuple[str | None, list[Any]]:
        api = HfApi(token=token, library_name=LIBRARY)
        try:
            head = api.model_info(item.repo_id).sha
            return head, list(api.list_repo_tree(item.repo_id, revision=head))
        except RepositoryNotFoundError:
            return None, []

    head, tree = calling(look, token, Where(item.repo_id), f"{item.repo_id} could not be looked at")
    if head is None:
        return None
    there = {entry.path: entry for entry in tree if entry.path != ".gitattributes"}
    same = there.keys() == set(item.files) and all(
        _equal(uploaded(item.folder, name, item.repo_id), there[name]) for name in item.files
    )
    return head if same else None


def _equal(content: bytes, entry: Any) -> bool:
    """Whether content has the hash that the Hub lists: sha256 of a large file, git's of a small one."""
    if getattr(entry, "lfs", None):
        return bool(entry.lfs.sha256 == hashlib.sha256(content).hexdigest())
    header = b"blob %d\0" % len(content)
    return bool(entry.blob_id == hashlib.sha1(header + content, usedforsecurity=False).hexdigest())


def _write_index(path: Path, done: list[Published], datasets: dict[str, str]) -> None:
    agents = {one.name: {"repo_id": one.repo_id, "revision": one.commit} for one in done}
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    known = known if isinstance(known, dict) else {}
    known = {**known, "agents": {**known.get("agents", {}), **agents}, "datasets": datasets}
    write_atomic(path, json.dumps(known, indent=2, sort_keys=True) + "\n")


def _check(item: Item, published: Published, token: str | bool | None) -> None:
    """Fetch the pinned commit into an empty cache and compare every file."""
    with tempfile.TemporaryDirectory(prefix="agentzoo-check-") as cache:
        folder = fetch(item.repo_id, item.files, revision=published.commit, token=token, cache_dir=cache)
        check_folder(folder)
        for name in item.files:
            if (folder / name).read_bytes() != uploaded(item.folder, name, item.repo_id):
                raise HubError(
                    f"{item.repo_id}@{published.commit} holds another {name} than {item.folder}. Push again."
                )
