"""Callbacks of a training: evaluation and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentzoo.nn.base import SequenceModel


class Evaluation(NamedTuple):
    """The result of a short evaluation during training."""

    mean_return: float  # or another figure, higher is better
    score: float | None  # normalized, if there are references


@dataclass(frozen=True)
class Hooks:
    """Callbacks of a run; each does nothing by default."""

    evaluate: Callable[[SequenceModel], Evaluation] | None = None
    on_resume: Callable[[int], None] = lambda _: None  # updates in the checkpoint that the run resumes from
    on_step: Callable[[int], None] = lambda _: None  # updates done
    on_row: Callable[[dict[str, Any]], None] = lambda _: None  # a new row of the log
    on_save: Callable[[int], None] = lambda _: None  # updates in the checkpoint just written
    on_interrupt: Callable[[], None] = lambda: None  # after Ctrl-C; the run stops after this update
