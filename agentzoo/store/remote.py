"""The Hub from this side: fetching an agent whole or not at all, waiting where that helps, saying what to do otherwise.

Works with whatever `HF_ENDPOINT` names: the Hub itself, a mirror or a server of one's own.
"""

from __future__ import annotations

import errno
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agentzoo.errors import ConfigError, HubError

T = TypeVar("T")
ATTEMPTS = 3
LONGEST_WAIT = 60.0  # seconds; a Hub that asks for more is reported instead of waited for
BUSY = (408, 429, 500, 502, 503, 504)
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+-]{0,199}")
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")
_UNREACHABLE = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError")
_CUT = ("RemoteProtocolError", "ReadError", "ReadTimeout", "WriteError", "WriteTimeout")


class Where(NamedTuple):
    """What is spoken of, for messages."""

    repo_id: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.repo_id}{'@' + self.revision if self.revision else ''}"


def is_repo_id(name: str) -> bool:
    """Whether `name` can be `<org>/<name>` on a Hub: two plain names, nothing that climbs out of a folder."""
    return _REPO.fullmatch(name) is not None and ".." not in name and "--" not in name


def check_revision(revision: str | None) -> None:
    """Refuse what is no branch, tag or commit: the client makes a file of that name in its cache.

    Raises:
        ConfigError: a path that climbs, an empty one, odd characters.
    """
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision):
        raise ConfigError(f"{revision[:80]!r} is no branch, tag or commit.")


def fetch(
    repo_id: str,
    files: Sequence[str],
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
    what: str = "agent",
) -> Path:
    """The folder of the cache that holds these files of a repo; only named files ever come.

    Args:
        what: the repo holds, for messages. The others are as in `huggingface_hub`.

    Raises:
        HubError: says why not and what to do. The cache then holds no file that is not whole.
    """
    from huggingface_hub import snapshot_download

    where = Where(repo_id, revision)
    check_revision(revision)
    with_message = f"{what} {where} could not be fetched from the Hub"
    try:
        folder = patiently(
            lambda: snapshot_download(
                repo_id,
                revision=revision,
                token=token,
                cache_dir=cache_dir,
                local_files_only=local_files_only,
                force_download=force_download,
                allow_patterns=list(files),
            )
        )
    except Exception as error:  # the client raises a dozen types from three libraries
        raise HubError(f"{with_message}: {explain(error, where)} Nothing broken stays in the cache.") from error
    broken = _drop_broken(Path(folder), files)
    if broken:
        raise HubError(
            f"{with_message}: {', '.join(broken)} did not arrive as the Hub announced (its hash differs) and was "
            "dropped from the cache. Call again; if it stays so, the server's copy is damaged."
        )
    return Path(folder)


def patiently(call: Callable[[], T]) -> T:
    """`call()`, and again after the wait a busy Hub asks for (`Retry-After`, else 1 and 2 seconds)."""
    for attempt in range(ATTEMPTS):
        try:
            return call()
        except Exception as error:
            wait = _wait(error, float(2**attempt))
            if wait is None or attempt == ATTEMPTS - 1:
                raise
        time.sleep(wait)
    raise AssertionError("unreachable")


def _wait(error: BaseException, default: float) -> float | None:
    """Seconds after which another try makes sense; None: it does not."""
    response = _response(error)
    if response is None or response.status_code not in BUSY:
        return None
    asked = _asked_wait(response)
    wait = default if asked is None else asked
    return wait if wait <= LONGEST_WAIT else None


def _asked_wait(response: Any) -> float | None:
    value = str(response.headers.get("Retry-After", "")).strip()
    return float(value) if value.isdigit() else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        yield current
        current = current.__cause__ or current.__context__


def _response(error: BaseException) -> Any:
    """The HTTP response at the root of an error, if there was one."""
    for one in _chain(error):
        found = getattr(one, "response", None)
        if found is not None and isinstance(getattr(found, "status_code", None), int):
            return found
    return None


def explain(error: BaseException, where: Where) -> str:
    """One or two sentences: what went wrong on the way to or from the Hub, and what to do."""
    from huggingface_hub import constants

    names = [type(one).__name__ for one in _chain(error)]
    response = _response(error)
    if response is not None:
        return _explain_answer(response, names, where)
    if "IncompleteSnapshotError" in names:
        return "The cache holds only a part of it, and the Hub was not asked. Call once with the network."
    if any(name in _UNREACHABLE for name in names):
        return (
            f"No connection to {constants.ENDPOINT}. Check the network and HF_ENDPOINT; what was fetched before still "
            "loads with local_files_only=True."
        )
    if any(name in _CUT for name in names) or "Consistency check failed" in str(error):
        return "The connection broke off on the way, several times. Call again: files that came whole are kept."
    if "LocalEntryNotFoundError" in names or "OfflineModeIsEnabled" in names:
        return (
            "It is not in the cache, and the Hub was not asked (local_files_only or HF_HUB_OFFLINE). Call once with "
            "the network."
        )
    if "LocalTokenNotFoundError" in names:
        return "No token is known. Log in with `hf auth login`, set HF_TOKEN or pass token=."
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "The disk is full. Make room, or pass another cache_dir."
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]} Check the name, the token and the network and call again."


def _explain_answer(response: Any, names: list[str], where: Where) -> str:
    status = response.status_code
    code = str(response.headers.get("X-Error-Code", ""))
    said = f"The Hub answered {status}"
    if "RevisionNotFoundError" in names:
        return f"{said}: {where.repo_id} has no branch, tag or commit {where.revision!r}."
    if "GatedRepoError" in names:
        return f"{said}: its owner gives access on request. Ask on its page, then pass your token."
    if "RemoteEntryNotFoundError" in names or "EntryNotFoundError" in names:
        return f"{said}: a file of it is missing on the server. Ask its owner, or pass another revision."
    if "DisabledRepoError" in names:
        return f"{said}: {where.repo_id} was disabled. Its page says why."
    if "RepositoryNotFoundError" in names or status == 404 or (status == 401 and code == "RepoNotFound"):
        return (
            f"{said}: there is no repo {where.repo_id}, or it is private and your token does not reach it. Check the "
            "name; log in with `hf auth login`, set HF_TOKEN or pass token=."
        )
    if status == 401:
        return f"{said}: it does not accept your token. Log in with `hf auth login`, set HF_TOKEN or pass token=."
    if status == 403:
        return (
            f"{said}: your token may not do this. Make one that may read {where.repo_id}, or write to it if you push."
        )
    if status in (409, 412):
        return f"{said}: somebody else changed {where.repo_id} meanwhile. Look at it and call again."
    if status == 429:
        wait = _asked_wait(response)
        return f"{said}: too many requests. Call again {'later' if wait is None else f'in {wait:g} seconds'}."
    if status >= 500:
        return f"{said}: it has a problem of its own. Call again later."
    if status == 400:
        return f"{said}: {' '.join(str(response.headers.get('X-Error-Message') or 'it refused the request').split())}."
    return f"{said}. Check the name and the token and call again."


def _drop_broken(folder: Path, files: Sequence[str]) -> list[str]:
    """Names of files whose content is not what their ETag says; these leave the cache.

    The cache keeps a file under its ETag: sha256 for large ones, git's sha1 for the others. The client compares sizes
    only. Other ETags (of some mirrors), and caches without links, say nothing and pass.
    """
    broken = []
    for name in files:
        pointer = folder / name
        if not pointer.is_symlink() or not pointer.is_file():
            continue
        blob = pointer.parent / pointer.readlink()
        etag = blob.name
        if re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{40}", etag) and _digest(pointer.read_bytes(), len(etag)) != etag:
            broken.append(name)
            pointer.unlink()
            blob.unlink(missing_ok=True)
    return broken


def _digest(data: bytes, length: int) -> str:
    if length == 64:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
