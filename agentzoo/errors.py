"""The errors agentzoo raises. Each message says what was found, what was expected and what to do.

`printable` makes text from a file or server safe to print. Errors, warnings, tables, progress bars, cards and reports
all use it.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

MAX_VALUE = 200  # characters of one name or value
MAX_MESSAGE = 4_000  # characters of a whole message
BEYOND_FLOAT32 = "numbers are read as float32, at most 3.4e38"  # part of the messages on numbers above that


def printable(text: object, most: int = MAX_VALUE) -> str:
    """Text from a file or server, made safe to print: on one line and cut at `most` characters.

    Unprintable characters (terminal codes, line breaks, characters that change the direction of text) are escaped as
    in Python: `\\x1b`, `\\n`, `\\u202e`. Applying it a second time changes nothing.
    """
    start = str(text)[: most + 1]
    plain = start if start.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in start)
    return plain if len(plain) <= most else plain[: most - 3] + "..."


_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def without_colors(text: str) -> str:
    """`text` without the terminal color codes that other libraries put into their warnings."""
    return _COLOR.sub("", text)


def warn(message: str, depth: int = 1) -> None:
    """`warnings.warn` for a message that may quote a file or server; `depth` 1 points at the line that calls this."""
    warnings.warn(printable(message, MAX_MESSAGE), UserWarning, stacklevel=depth + 1)


class AgentzooError(Exception):
    """Base of all errors below, so that one `except` catches them all.

    Messages quote files and servers, so each one passes through `printable`.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(one, MAX_MESSAGE) if isinstance(one, str) else one for one in args))


class ConfigError(AgentzooError, ValueError):
    """A recipe, `config.json` or override holds a value that cannot be used."""


class ShapeError(AgentzooError, ValueError):
    """An array has the wrong shape, dtype or kind for the agent."""


class ObservationError(AgentzooError, ValueError):
    """An observation or reward has the right shape but holds NaN or infinity."""


class SpaceError(AgentzooError, ValueError):
    """The spaces of an environment or dataset do not match the agent, or no family supports them."""


class DataError(AgentzooError, ValueError):
    """A dataset is missing, empty, broken or inconsistent."""


class CheckpointError(AgentzooError):
    """A file of an agent is missing, truncated, tampered with or does not match its config."""


class HubError(CheckpointError):
    """The Hub could not be reached, refused the request, or sent something other than what it announced."""


class RuntimeMismatchError(AgentzooError):
    """A frozen network does not act as the PyTorch network it was made from."""


class EvaluationError(AgentzooError):
    """A process that ran a part of an evaluation ended too early."""


class TrainingError(AgentzooError):
    """Training cannot continue: a non-finite loss, or a run folder of another recipe."""


class StorageError(AgentzooError, OSError):
    """A file could not be written. The previous file is unchanged."""


class UnknownNameError(AgentzooError, KeyError):
    """No agent, dataset, family or environment has this name."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` for the closest name in `known`; an empty string if none is close.

    The closest to `lr` is `train.lr`, which ends in it.
    """
    names = list(known)
    ending = [one for one in names if one.endswith(f".{name}")]
    near = ending or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


class Elsewhere:
    """Stands for a method that other libraries have and this class lacks: AttributeError names the one to use."""

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(f"an {owner.__name__} has no {self.name!r}; {self.instead}")
