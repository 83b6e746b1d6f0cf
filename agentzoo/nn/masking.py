"""Masks: what a masked model reads and what it predicts. The eight tasks of Uni[MASK], random masks, and any other.

K steps are numbered 0..K-1. A task has one free step `i`; `masking_at` gives its masks for chosen `i`, `draw` for
random ones. Items that are neither shown nor asked for have no loss.

Source: Carroll et al. 2022, arXiv:2211.10869, appendix; micahcarroll/uniMASK@e57ee48.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from agentzoo.errors import ConfigError, UnknownNameError, did_you_mean

StepTask = Literal["past", "future", "bc", "rc", "goal", "waypoint", "forward", "inverse"]
RandomTask = Literal["rnd", "rnd-bc", "rnd-rc"]
Task = Literal[StepTask, RandomTask]
STEP_TASKS: tuple[StepTask, ...] = get_args(StepTask)  # in the order of their turns in a model of all tasks
RANDOM_TASKS: tuple[RandomTask, ...] = get_args(RandomTask)
_RETURN_SHOWN: dict[str, float] = {"rnd": 0.5, "rnd-bc": 0.0, "rnd-rc": 1.0}  # probability


class Masking(NamedTuple):
    """Masks over B windows of K steps, (B, K) bool, True where shown or asked; never both.

    observations, actions, returns: what the network sees (of the returns-to-go at most the first step's).
    ask_observations, ask_actions: what it predicts.
    """

    observations: Tensor
    actions: Tensor
    returns: Tensor
    ask_observations: Tensor
    ask_actions: Tensor

    def within(self, valid: Tensor) -> Masking:
        """The same masks, False wherever `valid` (B, K) is False."""
        return Masking(*(mask & valid for mask in self))


class Steps(NamedTuple):
    """The steps `i` that a task may have, `first`..`last`, and the masks for each."""

    first: int
    last: int
    masks: Callable[[Tensor, Tensor, int], Masking]  # of i (B, 1), positions (1, K) and K
    tiled: bool  # as in the reference, every i occurs equally often in a batch


def waypoints(context: int) -> tuple[int, ...]:
    """The steps a waypoint-conditioned window shows: 0, 3, 6 and 9 of 10."""
    return 0, context // 3, 2 * context // 3, context - 1


def _nothing(i: Tensor, t: Tensor) -> Tensor:
    return torch.zeros(len(i), t.shape[1], dtype=torch.bool, device=t.device)


def _bc(i: Tensor, t: Tensor, _: int) -> Masking:
    nothing = _nothing(i, t)
    return Masking(t <= i, t < i, nothing, nothing, t == i)


def _rc(i: Tensor, t: Tensor, context: int) -> Masking:
    return _bc(i, t, context)._replace(returns=_nothing(i, t) | (t == 0))


def _goal(i: Tensor, t: Tensor, context: int) -> Masking:
    return _bc(i, t, context)._replace(observations=(t <= i) | (t == context - 1))


def _waypoint(i: Tensor, t: Tensor, context: int) -> Masking:
    shown = torch.tensor(waypoints(context), device=t.device)
    return _bc(i, t, context)._replace(observations=(t <= i) | torch.isin(t, shown))


def _future(i: Tensor, t: Tensor, context: int) -> Masking:
    return _bc(i, t, context)._replace(ask_observations=t > i, ask_actions=t >= i)


def _past(i: Tensor, t: Tensor, _: int) -> Masking:
    return Masking(t >= i, t >= i, _nothing(i, t), t < i, t < i)


def _forward(i: Tensor, t: Tensor, _: int) -> Masking:
    return Masking(t == i, t == i, _nothing(i, t), t == i + 1, _nothing(i, t))


def _inverse(i: Tensor, t: Tensor, _: int) -> Masking:
    return Masking(t == i, t == i - 1, _nothing(i, t), t == i - 1, _nothing(i, t))


def steps_of(task: StepTask, context: int) -> Steps:
    """The steps that `task` may have in a window of `context` steps.

    Raises:
        UnknownNameError: no such task. ConfigError: the window is too short for it.
    """
    last = context - 1
    table: dict[str, Steps] = {
        "past": Steps(1, context, _past, True),
        "future": Steps(0, last, _future, True),
        "bc": Steps(0, last, _bc, True),
        "rc": Steps(0, last, _rc, True),
        "goal": Steps(0, last - 1, _goal, False),
        "waypoint": Steps(0, last, _waypoint, True),
        "forward": Steps(0, last - 1, _forward, False),
        "inverse": Steps(1, last, _inverse, False),
    }
    if task not in table:
        raise UnknownNameError(f"no task {task!r}.{did_you_mean(task, table)} Known: {', '.join(table)}.")
    found = table[task]
    if found.last < found.first:
        raise ConfigError(f"task {task!r} needs a window of at least 2 steps, this one has {context}.")
    return found


def masking_at(task: StepTask, i: Tensor, context: int) -> Masking:
    """The masks of `task` at the steps `i` (B,), for windows of `context` steps.

    Raises:
        ConfigError: a step outside those of the task. Otherwise as `steps_of`.
    """
    steps = steps_of(task, context)
    if len(i) and not steps.first <= int(i.min()) <= int(i.max()) <= steps.last:
        wrong = sorted({one for one in i.tolist() if not steps.first <= one <= steps.last})
        raise ConfigError(f"task {task!r} is asked at steps {steps.first} to {steps.last} of {context}, got {wrong}.")
    return steps.masks(i[:, None], torch.arange(context, device=i.device)[None], context)


def draw(
    task: Task, batch: int, context: int, generator: torch.Generator | None = None, device: torch.device | str = "cpu"
) -> Masking:
    """Random masks of `task` for `batch` windows of `context` steps; torch's own generator by default."""
    if task in RANDOM_TASKS:
        return _draw_random(batch, context, _RETURN_SHOWN[task], generator, device)
    steps = steps_of(task, context)  # type: ignore[arg-type]
    count = steps.last - steps.first + 1
    if steps.tiled and batch % count == 0:  # as the reference: the same distribution, less variance
        order = torch.randperm(batch, generator=generator, device=device)
        i = steps.first + order % count
    else:
        i = torch.randint(steps.first, steps.last + 1, (batch,), generator=generator, device=device)
    return masking_at(task, i, context)  # type: ignore[arg-type]


def _draw_random(
    batch: int, context: int, returns: float, generator: torch.Generator | None, device: torch.device | str
) -> Masking:
    """Each window draws the probability of hiding an observation or action, uniform in (0, 1)."""
    share = torch.rand(batch, 1, generator=generator, device=device)  # (B, 1), for (2, B, K) below
    hidden = torch.rand(2, batch, context, generator=generator, device=device) < share
    first = torch.arange(context, device=device) == 0
    shown = torch.rand(batch, 1, generator=generator, device=device) < returns
    return Masking(~hidden[0], ~hidden[1], first & shown, hidden[0], hidden[1])
