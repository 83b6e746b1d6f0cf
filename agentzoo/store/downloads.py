"""Downloads from the Hub, whole or not at all, with retries where they help and errors that say what to do.

Works with any `HF_ENDPOINT`: the Hub itself, a mirror or your own server.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agentzoo.errors import ConfigError, HubError, printable
from agentzoo.store.access_tokens import checked_token, is_clean, redacted, secrets_of, silenced
from agentzoo.store.watch import MAX_WAIT, StoppedError, Watch, seconds_asked, watched

T = TypeVar("T")
ATTEMPTS = 3
LOG_IN = "Log in with `hf auth login` or set HF_TOKEN (in Python also token=)."  # what every command and call accepts
BUSY = (408, 429, 500, 502, 503, 504)
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+-]{0,199}")
REPO_ID = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}"  # a pattern: organisation and name
_log = logging.getLogger("agentzoo.hub")
_UNREACHABLE = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError")
_CUT = ("RemoteProtocolError", "ReadError", "ReadTimeout", "WriteError", "WriteTimeout")


class Where(NamedTuple):
    """A repo and revision, for messages."""

    repo_id: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.repo_id}{'@' + self.revision if self.revision else ''}"


def is_repo_id(name: str) -> bool:
    """Whether `name` can be `<org>/<name>` on a Hub: two plain names, without `..`."""
    return re.fullmatch(REPO_ID, name) is not None and ".." not in name and "--" not in name


def is_revision(name: str) -> bool:
    """Whether `name` can be a branch, tag or commit."""
    return _REVISION.fullmatch(name) is not None and ".." not in name and "//" not in name


def check_revision(revision: str | None) -> None:
    """Refuse anything but a branch, tag or commit: the client creates a file of that name in its cache.

    Raises:
        ConfigError: it is empty, contains `..` or odd characters.
    """
    if revision is not None and not is_revision(revision):
        raise ConfigError(f"{revision[:80]!r} is not a branch, tag or commit.")


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
    """Fetch these files of a repo, and no others, into the cache; returns their folder. `what` is for messages.

    Args: as in `huggingface_hub`.

    Raises:
        HubError: the download failed; says why and what to do. The cache holds no incomplete file. ConfigError: an
            impossible token or revision.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    where = Where(repo_id, revision)
    check_revision(revision)
    failed = f"{what} {where} could not be fetched from the Hub"

    def download(token: str | bool | None, offline: bool) -> str:
        # of a Hub that does not answer, the client returns the cached commit, also if the download is forced
        commit = HfApi().model_info(repo_id, revision=revision, token=token).sha if force_download else None
        found = snapshot_download(
            repo_id,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=offline,
            force_download=force_download,
            allow_patterns=list(files),
        )
        if commit not in (None, Path(found).name):
            raise StoppedError(f"the Hub has commit {commit}, but the client found {Path(found).name}. Call again.")
        return found

    asks = not (local_files_only or constants.HF_HUB_OFFLINE)  # else no token is sent, so none has to be sound
    try:
        folder = calling(lambda token: download(token, local_files_only), token if asks else False, where, failed)
    except HubError as error:
        if force_download or not _is_down(error.__cause__):
            raise
        try:
            folder = download(False, True)  # cached files load even if the Hub is down
        except Exception:
            raise error from error.__cause__
    if not is_snapshot(Path(folder)):
        raise HubError(f"{failed}: it was stored in {folder}, which is not a folder of the cache.")
    broken = _drop_broken(Path(folder), files)
    if broken:
        raise HubError(
            f"{failed}: {', '.join(broken)} has another hash than the Hub announced and was deleted from the "
            "cache. Call again; if this repeats, the server's copy is damaged."
        )
    return Path(folder)


def _is_down(cause: BaseException | None) -> bool:
    """Whether the Hub gave no answer, or none but that it is busy."""
    response = None if cause is None else _response(cause)
    return isinstance(cause, StoppedError) or (response is not None and response.status_code in BUSY)


def is_snapshot(folder: Path) -> bool:
    """Whether this is the folder of one commit in a cache of the Hub's client."""
    return folder.parent.name == "snapshots" and folder.resolve().parent == folder.parent.resolve()


def origin_of(folder: Path) -> Where | None:
    """The repo and commit of a folder that `fetch` returned; None for any other folder."""
    repo_id = folder.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
    return Where(repo_id, folder.name) if is_snapshot(folder) and is_repo_id(repo_id) else None


def calling(
    call: Callable[[str | bool | None], T],
    token: str | bool | None,
    where: Where,
    message: str,
    fate: Callable[[], str] = lambda: "",
    again: bool = True,
) -> T:
    """Run `call(token)` against the Hub: answers are checked, the call has a time limit, and no token is shown.

    Args:
        call: gets the checked token.
        token: the user's; None is the stored one.
        where: the repo.
        message: the start of an error, without its reason.
        fate: returns, after a failure, a last sentence on the state of the repo.
        again: repeat the whole call if the Hub is busy.

    Raises:
        HubError: `message`, the reason, and what to do. ConfigError: an impossible token, or raised by `call`.
    """
    token = checked_token(token)
    secrets = secrets_of(token)
    failure: HubError
    with silenced(secrets):
        try:
            with watched() as watch:
                return retried(lambda: call(token), watch) if again else call(token)
        except ConfigError:
            raise
        except Exception as error:  # the client raises a dozen types from three libraries
            text = f"{message}: {explain(error, where)} {fate()}".rstrip()
            failure = HubError(redacted(text, secrets))
            cause = error if is_clean(error, secrets) else None
    raise failure from cause  # outside the handler: the library's error may show a token


def retried(call: Callable[[], T], watch: Watch | None = None) -> T:
    """Run `call`, and repeat it after the wait that a busy Hub asks for, else after 1 and 2 seconds."""
    for attempt in range(ATTEMPTS):
        if watch is not None:
            watch.restart()
        try:
            return call()
        except Exception as error:
            wait = _wait(error, float(2**attempt))
            if wait is None or attempt == ATTEMPTS - 1:
                raise
            status = _response(error).status_code
        _log.warning(
            "the Hub answered %s; trying again in %g seconds, attempt %d of %d", status, wait, attempt + 2, ATTEMPTS
        )
        time.sleep(wait)
    raise AssertionError("unreachable")


def _wait(error: BaseException, default: float) -> float | None:
    """Seconds to wait before another try; None if another try makes no sense."""
    response = _response(error)
    if response is None or response.status_code not in BUSY:
        return None
    asked = seconds_asked(response)
    wait = default if asked is None else asked
    return wait if wait <= MAX_WAIT else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        yield current
        current = current.__cause__ or current.__context__


def _response(error: BaseException) -> Any:
    """The HTTP response that caused an error, if there is one."""
    for one in _chain(error):
        found = getattr(one, "response", None)
        if found is not None and isinstance(getattr(found, "status_code", None), int):
            return found
    return None


def explain(error: BaseException, where: Where) -> str:
    """One or two sentences: what went wrong with the Hub, and what to do."""
    from huggingface_hub import constants

    names = [type(one).__name__ for one in _chain(error)]
    stopped = next((one for one in _chain(error) if isinstance(one, StoppedError)), None)
    if stopped is not None:
        return _explain_stop(str(stopped))
    if "FileMetadataError" in names or "TooManyRedirects" in names:
        return (
            f"The server at {constants.ENDPOINT} sends a file without its ETag or commit: it redirects, or it is not "
            "a Hub. Set HF_ENDPOINT to the address of the Hub itself."
        )
    response = _response(error)
    if response is not None:
        return _explain_answer(response, names, where)
    if "IncompleteSnapshotError" in names:
        return "The cache holds only a part of it, and the Hub was not asked. Call once with network access."
    if any(name in _UNREACHABLE for name in names):
        return _explain_stop("no connection")
    if any(name in _CUT for name in names) or "Consistency check failed" in str(error):
        return "The connection broke several times. Call again: complete files are kept, broken ones are not."
    if "LocalEntryNotFoundError" in names:
        return (
            "It is not in the cache, and the Hub was not asked (local_files_only or HF_HUB_OFFLINE). Call once with "
            "network access."
        )
    if "OfflineModeIsEnabled" in names:  # a push or a list, which do not look in the cache
        return "HF_HUB_OFFLINE is set, so the Hub was not asked. Unset it and call again."
    if "LocalTokenNotFoundError" in names:
        return f"No token was found. {LOG_IN}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "The disk is full. Make room, or name another folder with HF_HOME (in Python also cache_dir=)."
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]} Check the name, the token and the network and call again."


def _explain_stop(why: str) -> str:
    from huggingface_hub import constants

    if not why.startswith("no connection"):
        return f"{why[:1].upper()}{why[1:]}"
    return (
        f"No connection to {constants.ENDPOINT}. Check the network and HF_ENDPOINT; files in the cache still load "
        "with HF_HUB_OFFLINE=1 (in Python also local_files_only=True)."
    )


def _explain_answer(response: Any, names: list[str], where: Where) -> str:
    status = response.status_code
    code = str(response.headers.get("X-Error-Code", ""))
    answer = f"The Hub answered {status}"
    if "RevisionNotFoundError" in names:
        return f"{answer}: {where.repo_id} has no branch, tag or commit {where.revision!r}."
    if "GatedRepoError" in names:
        return f"{answer}: access needs the owner's permission. Request it on the repo's page. {LOG_IN}"
    if "RemoteEntryNotFoundError" in names or "EntryNotFoundError" in names:
        return f"{answer}: a file of the repo is missing. Ask the owner, or pass another revision."
    if "DisabledRepoError" in names:
        return f"{answer}: {where.repo_id} was disabled. Its page says why."
    if "RepositoryNotFoundError" in names or status == 404 or (status == 401 and code == "RepoNotFound"):
        return (
            f"{answer}: there is no repo {where.repo_id}, or it is private and your token gives no access. Check the "
            f"name. {LOG_IN}"
        )
    if status == 401 and not _carried_token(response):
        return f"{answer}: this needs a token, and none was found. {LOG_IN}"
    if status == 401:
        return f"{answer}: it does not accept your token. {LOG_IN}"
    if status == 403:
        return (
            f"{answer}: your token does not allow this. Create one that may read {where.repo_id}, or write to it for a "
            "push."
        )
    if 300 <= status < 400:
        target = printable(str(response.headers.get("Location") or "nowhere"))
        return f"{answer}, a redirect to {target}. Set HF_ENDPOINT to the address of the Hub itself."
    if status in (409, 412):
        return f"{answer}: {where.repo_id} has changed in the meantime. Check it and call again."
    if status == 429:
        wait = seconds_asked(response)
        return f"{answer}: too many requests. Call again {'later' if wait is None else f'in {wait:g} seconds'}."
    if status >= 500:
        return f"{answer}: a server error. Call again later."
    if status == 400:
        return (
            f"{answer}: {' '.join(str(response.headers.get('X-Error-Message') or 'it refused the request').split())}."
        )
    return f"{answer}. Check the name and the token and call again."


def _carried_token(response: Any) -> bool:
    return "authorization" in getattr(getattr(response, "request", None), "headers", {})


def _drop_broken(folder: Path, files: Sequence[str]) -> list[str]:
    """Delete files from the cache whose content does not match their ETag; returns their names.

    The cache stores a file under its ETag: sha256 for large ones, git's sha1 for the others. The client compares sizes
    only. Other ETags (of some mirrors), and caches without links, cannot be checked.
    """
    broken = []
    for name in files:
        pointer = folder / name
        if not pointer.is_symlink() or not pointer.is_file():
            continue
        blob = pointer.parent / pointer.readlink()
        etag = blob.name
        if re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{40}", etag) and blob_name(pointer.read_bytes(), len(etag)) != etag:
            broken.append(name)
            pointer.unlink()
            blob.unlink(missing_ok=True)
    return broken


def blob_name(data: bytes, length: int) -> str:
    """The hash by which the Hub names a file: sha256, of 64 digits, for large ones; git's, of 40, for the others."""
    if length == 64:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
