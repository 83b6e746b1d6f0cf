"""What the caller of a training gets to hear, and what it may do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentzoo.nn.base import SequenceModel


class Evaluation(NamedTuple):
    """What a short evaluation during training found."""

    mean_return: float  # or another figure of which more is better
    score: float | None  # D4RL-normalized, where there are references


@dataclass(frozen=True)
class Hooks:
    """Functions that a run calls; each does nothing by default."""

    evaluate: Callable[[SequenceModel], Evaluation] | None = None
    on_resume: Callable[[int], None] = lambda _: None  # updates in the checkpoint that the run goes on from
    on_step: Callable[[int], None] = lambda _: None  # updates done
    on_row: Callable[[dict[str, Any]], None] = lambda _: None  # a new row of the log
    on_save: Callable[[int], None] = lambda _: None  # updates in the checkpoint just written
    on_interrupt: Callable[[], None] = lambda: None  # Ctrl-C: the run stops after this update
