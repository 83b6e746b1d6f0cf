"""Checks the Hub's answers before the client writes a byte of them, and stops a call that makes no progress.

The client (huggingface_hub 2.4) names files of its cache after the ETag, the commit and the paths that a server sends.
It does not check them: with an ETag `../../x` or `/tmp/x` it writes there. It also waits without limit for a server
that is silent or sends a byte a second. Hooks in the client's HTTP session, which it calls for each request and answer,
prevent both.

Xet, the Hub's other protocol for files, has its own client in Rust (`hf_xet`), which calls no hooks. It also splits a
push into several commits. It is off during our calls; the Hub serves the same files over HTTP. For everything else
`HF_HUB_DISABLE_XET` keeps the user's value.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from agentzoo.errors import ConfigError, printable

LIMIT_VARIABLE = "AGENTZOO_HUB_TIMEOUT"
LIMIT = 300.0  # seconds without progress after which a load or push stops
CONNECT = 3.0  # seconds for a connection, unless the user gives the Hub's client more
CLIENT_VARIABLES = ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")
PROGRESS = 65_536  # bytes that count as progress
MAX_WAIT = 60.0  # seconds; a Hub that asks for more is reported instead of waited for
MAX_REQUESTS = 5_000  # of one call; a listing may never end
MAX_JSON = 16 * 1024 * 1024  # bytes of an answer that is not a file
_NONE_LEFT = re.compile(r";\s*r=0\s*;\s*t=(\d{1,9})")  # in `RateLimit`: no request is left, and more come in t seconds
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=+-]{0,199}")  # an ETag or commit that is safe as a file's name
_HEADERS = ("etag", "x-linked-etag", "x-repo-commit", "x-xet-hash")
_log = logging.getLogger("agentzoo.hub")
_lock = threading.Lock()
_watches: list[Watch] = []
_xet_was_off = False  # the user's setting before the first watch


class StoppedError(Exception):
    """A call to the Hub was stopped; the message says why."""


class Watch:
    """One load or push: the time of its last progress, and its requests."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.last_progress = time.monotonic()
        self.bytes = 0  # since the last progress
        self.requests: Counter[str] = Counter()
        self.answers = 0
        self.thread = threading.get_ident()

    def restart(self) -> None:
        """Before the whole call runs again: its requests do not count as retries."""
        self.requests.clear()

    def seconds_left(self) -> float:
        """Until the limit."""
        return self.limit - (time.monotonic() - self.last_progress)

    def progress(self, count: int) -> None:
        """Count bytes that were received."""
        self.bytes += count
        if self.bytes >= PROGRESS:
            self.advance()
        elif self.seconds_left() <= 0:
            self.stop()

    def advance(self) -> None:
        """Record progress."""
        self.last_progress, self.bytes = time.monotonic(), 0

    def stop(self) -> None:
        """Raise StoppedError: the limit has passed."""
        raise StoppedError(
            f"no progress in {self.limit:g} seconds. Call again later; {LIMIT_VARIABLE}=SECONDS sets another limit."
        )

    def request(self, request: Any) -> None:
        """Before a request: check the limits, and log a retry."""
        if self.seconds_left() <= 0:
            self.stop()
        name = f"{request.method} {request.url}"
        self.requests[name] += 1
        if self.requests[name] > 1:
            if not self.answers and all(watch.thread == self.thread for watch in _watches):
                # with loads in other threads the first request may be one of theirs
                raise StoppedError(f"no connection to {request.url.host}.")
            _log.warning("asking the Hub again, try %d: %s", self.requests[name], printable(name))
        if sum(self.requests.values()) > MAX_REQUESTS:
            raise StoppedError(f"more than {MAX_REQUESTS} requests were needed; the server's listing does not end.")
        limits = dict(request.extensions.get("timeout") or {})
        for kind, most in (
            ("connect", _connect_limit()),
            ("read", self.limit),
            ("write", self.limit),
            ("pool", self.limit),
        ):
            own = limits.get(kind)
            limits[kind] = min(most, max(self.seconds_left(), 0.1), math.inf if own is None else own)
        request.extensions["timeout"] = limits

    def response(self, response: Any) -> None:
        """Check an answer before the client reads it."""
        self.answers += 1
        if response.status_code < 400:
            self.advance()
        _check_headers(response)
        if response.status_code in (429, 503) and (seconds_asked(response) or 0.0) > MAX_WAIT:
            response.raise_for_status()  # else the client would wait that long


def seconds_asked(response: Any) -> float | None:
    """The wait that a busy Hub asks for: by `RateLimit`, which the client prefers, else `Retry-After`; or None."""
    none_left = _NONE_LEFT.search(str(response.headers.get("RateLimit", "")))
    if response.status_code == 429 and none_left is not None:
        return float(none_left[1])
    after = str(response.headers.get("Retry-After", "")).strip()
    return float(after) if after.isdecimal() else None


def _connect_limit() -> float:
    """Seconds for a connection: 3, or what the user's settings of the client allow if that is more."""
    found = [CONNECT]
    for name in CLIENT_VARIABLES:
        with suppress(ValueError):
            found.append(float(os.environ.get(name, "")))
    return max(found)


class _Counted:
    """The bytes of an answer, counted as progress."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[bytes]:
        for part in self.stream:
            for watch in list(_watches):
                watch.progress(len(part))
            yield part

    def close(self) -> None:
        """Close the stream inside."""
        self.stream.close()


def _check_headers(response: Any) -> None:
    for name in _HEADERS:
        value = response.headers.get(name)
        if value is None:
            continue
        plain = value.removeprefix("W/").strip('"')
        if not _PLAIN.fullmatch(plain) or ".." in plain:
            raise StoppedError(
                f"the server sends {name} {printable(value, 80)}, which is not a file name: it is damaged or hostile. "
                "Nothing was written."
            )


def _check_names(response: Any) -> None:
    """Check commits and hashes in an answer of the Hub's API. Paths need no check: we only fetch files that we name."""
    kind = str(response.headers.get("content-type", ""))
    if "/api/" not in str(response.url.path) or response.status_code != 200 or "octet-stream" in kind:
        return
    _read(response)
    try:
        tree = response.json()
    except (ValueError, RecursionError):
        return  # the client reports that it is not JSON
    entries = tree if isinstance(tree, list) else [tree]
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        for name in ("sha", "oid"):
            value = entry.get(name)
            if value is not None and (not isinstance(value, str) or not _PLAIN.fullmatch(value) or ".." in value):
                raise StoppedError(
                    f"the server sends {printable(value, 80)}, which is not a commit. Nothing was written."
                )


def _read(response: Any) -> None:
    """`response.read()`, with a limit. The header may give no length, or that of the compressed answer."""
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > MAX_JSON:
            raise StoppedError(f"the server's answer has more than {MAX_JSON:,} bytes; a listing has a few thousand.")
    response._content = b"".join(parts)  # as `read` does


def _on_request(request: Any) -> None:
    for watch in list(_watches):
        watch.request(request)


def _on_response(response: Any) -> None:
    if not _watches:
        return
    response.stream = _stream_class()(response.stream)
    for watch in list(_watches):
        watch.response(response)
    _check_names(response)


def _stream_class() -> type:
    """`_Counted` as a subclass of the HTTP library's stream."""
    from huggingface_hub.utils import _http

    library: Any = next(module for name, module in vars(_http).items() if name in ("httpx2", "httpx"))
    return type("Counted", (_Counted, library.SyncByteStream), {})


def limit_of_environment() -> float:
    """Seconds without progress after which a load or push stops.

    Raises:
        ConfigError: the variable is not a positive number.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if text is None:
        return LIMIT
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise ConfigError(f"{LIMIT_VARIABLE} is {printable(text)!r}; it takes seconds, 300 by default.")
    return limit


@contextmanager
def watched(limit: float | None = None) -> Iterator[Watch]:
    """Inside, every answer to the Hub's client is checked, and a call without progress is stopped.

    After the block the hooks stay in the client's session and do nothing.

    Args:
        limit: seconds without progress; by default those of `limit_of_environment`.

    Raises:
        StoppedError: from within the client's calls.
    """
    watch = Watch(limit_of_environment() if limit is None else limit)
    _install()
    _begin(watch)
    try:
        yield watch
    finally:
        _end(watch)


def _begin(watch: Watch) -> None:
    """Register the watch and switch Xet off; the client reads this constant before each file."""
    global _xet_was_off
    from huggingface_hub import constants

    with _lock:
        if not _watches:
            _xet_was_off = constants.HF_HUB_DISABLE_XET
        _watches.append(watch)
        constants.HF_HUB_DISABLE_XET = True


def _end(watch: Watch) -> None:
    from huggingface_hub import constants

    with _lock:
        _watches.remove(watch)
        if not _watches:
            constants.HF_HUB_DISABLE_XET = _xet_was_off


def _install() -> None:
    """Add the hooks to every session of the client, including those created after a lost connection."""
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils import _http

    with _lock:
        make = _http._GLOBAL_CLIENT_FACTORY
        if getattr(make, "watched", False):
            return

        def factory() -> Any:
            client = make()
            client.event_hooks = {
                "request": [*client.event_hooks.get("request", []), _on_request],
                "response": [*client.event_hooks.get("response", []), _on_response],
            }
            return client

        factory.watched = True  # type: ignore[attr-defined]
        set_client_factory(factory)
