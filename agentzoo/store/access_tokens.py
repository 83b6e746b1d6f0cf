"""Access tokens: checked before they are sent, and removed from every message and log line."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from agentzoo.errors import ConfigError

HIDDEN = "<token>"
SHORTEST = 6  # characters; a shorter text is not a secret and may occur in any message
_TOKEN = re.compile(r"[!-~]{1,500}")  # printable ASCII without spaces: all that an HTTP header takes
_LOGGERS = ("huggingface_hub", "httpx2", "httpx", "httpcore2", "httpcore", "urllib3", "filelock", "agentzoo")


def checked_token(token: str | bool | None) -> str | bool | None:
    """The token without spaces and line breaks around it; True, False and None stay as they are.

    Raises:
        ConfigError: it is empty, or has a line break or another character that tokens do not have. The message does not
            show the token.
    """
    if token is False:  # none is sent, the stored one neither
        return token
    if not isinstance(token, str):
        _require_sound(_stored(), "the stored token (HF_TOKEN or `hf auth login`)")
        return token
    return _require_sound(token.strip(), "the token")


def _require_sound(token: str | None, what: str) -> str | None:
    if token is not None and not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"{what} is empty, or one of its {len(token)} characters is not allowed in a token (a line break, a "
            "space, a letter outside ASCII). Copy it again; it begins with hf_."
        )
    return token


def _stored() -> str | None:
    """The token that the client sends by default."""
    import os

    from huggingface_hub import get_token

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        raw = os.environ.get(name)
        if raw is not None and raw.strip():
            return raw.strip()  # the client would drop line breaks inside and send another token
    return get_token()


def secrets_of(token: str | bool | None) -> tuple[str, ...]:
    """Every text that must not be shown during a call with this token: the token, its lines, and the stored one."""
    texts = [token if isinstance(token, str) else None, _stored()]
    found = {part for text in texts if text for part in (text, text.strip(), *text.split())}
    return tuple(sorted((part for part in found if len(part) >= SHORTEST), key=len, reverse=True))


def redacted(text: str, secrets: tuple[str, ...]) -> str:
    """`text` without the secrets."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def is_clean(error: BaseException | None, secrets: tuple[str, ...]) -> bool:
    """Whether neither the error nor its causes show a secret."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = f"{error} {error!r} {vars(error)} {getattr(error, '__notes__', '')}"
        response = getattr(error, "response", None)
        if response is not None:
            text += f" {getattr(response, 'headers', '')}"
        if any(secret in text for secret in secrets):
            return False
        error = error.__cause__ or error.__context__
    return True


class _Redacting(logging.Filter):
    """Removes secrets from log records; lets all records pass."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        super().__init__()
        self.secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace message and traceback if they hold a secret."""
        message = record.getMessage()
        if (clean := redacted(message, self.secrets)) != message:
            record.msg, record.args = clean, ()
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            if (clean := redacted(text, self.secrets)) != text:
                record.exc_info, record.exc_text = None, clean
        return True


@contextmanager
def silenced(secrets: tuple[str, ...]) -> Iterator[None]:
    """While this runs, the loggers of the HTTP client and of the Hub's client show no secret."""
    if not secrets:
        yield
        return
    cut = _Redacting(secrets)
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in _LOGGERS]
    loggers = [logging.getLogger(name) for name in {*names, *_LOGGERS}]
    places = [*loggers, *(handler for logger in (logging.root, *loggers) for handler in logger.handlers)]
    for place in places:
        place.addFilter(cut)
    try:
        yield
    finally:
        for place in places:
            place.removeFilter(cut)
