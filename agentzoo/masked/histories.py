"""Sample complete pasts and futures from a masked agent step by step, checked against the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.acting.observing import is_count
from agentzoo.acting.output import random_source
from agentzoo.errors import ConfigError, ShapeError
from agentzoo.masked.answer import HasNetwork, ask
from agentzoo.masked.question import Bools, Floats, Window

TRIES = 100  # draws of one step before its row is marked as inconsistent

# (N, S) observations, (N, A) or (N,) actions, (N, S) next observations -> (N,) bool, whether the environment allows it
Possible = Callable[[Floats, NDArray[Any], Floats], Bools]
# (N, S), (N, A) or (N,) -> (N, S): the environment itself
Transition = Callable[[Floats, NDArray[Any]], Floats]


class Histories(NamedTuple):
    """Sampled windows, and (N,) whether all steps of each are allowed by the environment."""

    window: Window
    consistent: Bools


def histories(
    agent: HasNetwork, window: Window, possible: Possible, seed: int | np.random.Generator = 0, tries: int = TRIES
) -> Histories:
    """Sample the hidden parts, from the last step backwards.

    At each step the action is drawn first, then the observation. Both are drawn again, at most `tries` times, if the
    environment does not lead from them to the next observation, or from a shown earlier step to them. Shown parts do
    not change. A row whose shown parts are inconsistent or unreachable is kept and marked.

    Args:
        agent: an agent of a masked family.
        window: N windows; for N samples of one question, repeat the window N times.
        possible: which steps the environment allows.

    Raises:
        ConfigError: `tries` is below 1. ShapeError: `possible` returns an array of another shape. Otherwise as `ask`.
    """
    rng = random_source(seed)
    if not is_count(tries) or tries < 1:
        raise ConfigError(f"tries is a whole number from 1 on, got {tries!r}.")
    count, steps = window.mask.actions.shape
    window = window.take(np.arange(count))  # a copy to write to
    consistent = np.ones(count, dtype=bool)
    given = window.mask.actions & window.mask.observations

    def leads(rows: NDArray[np.intp], t: int) -> Bools:
        if not len(rows) or t + 1 == steps:  # the last step has no next observation
            return np.ones(len(rows), dtype=bool)
        found = possible(window.observations[rows, t], window.actions[rows, t], window.observations[rows, t + 1])
        return _of_shape(found, rows.shape, "possible= says whether the environment allows each step").astype(bool)

    for t in range(steps - 1, -1, -1):
        hidden = ~window.mask.actions[:, t], ~window.mask.observations[:, t]
        due = np.flatnonzero(hidden[0] | hidden[1])
        still = due
        acting = ask(agent, window.take(due)) if len(due) else None  # does not depend on the draws at step t
        for _ in range(tries):
            if acting is None or not len(still):
                break
            drawn = acting.sample(rng).actions[np.isin(due, still), t]
            window.actions[still, t] = np.where(_like(hidden[0][still], drawn), drawn, window.actions[still, t])
            window.mask.actions[still, t] = True
            seen = ask(agent, window.take(still)).sample(rng).observations[:, t]  # shown parts do not change
            window.observations[still, t] = seen
            ok = np.array(leads(still, t), dtype=bool)
            if t > 0:
                follows = given[still, t - 1]
                ok[follows] &= leads(still[follows], t - 1)
            still = still[~ok]
        consistent[still] = False
        shown = np.flatnonzero(given[:, t])
        consistent[shown] &= leads(shown, t)
        window.mask.observations[:, t] = window.mask.actions[:, t] = True
    return Histories(window, consistent)


def futures(agent: HasNetwork, window: Window, transition: Transition, seed: int | np.random.Generator = 0) -> Window:
    """Sample hidden actions forwards; each hidden next observation comes from the environment.

    Args:
        window: its first observation must be shown.
        transition: the environment's dynamics.

    Raises:
        ConfigError: the first observation is hidden. ShapeError: `transition` returns an array of another shape.
            Otherwise as `ask`.
    """
    rng = random_source(seed)
    if not window.mask.observations[:, 0].all():
        raise ConfigError("a future starts from the first observation, and this window hides it.")
    count, steps = window.mask.actions.shape
    window = window.take(np.arange(count))
    for t in range(steps):
        window.actions[:, t] = ask(agent, window).sample(rng).actions[:, t]  # shown parts do not change
        window.mask.actions[:, t] = True
        if t + 1 < steps:
            hidden = ~window.mask.observations[:, t + 1]
            before = window.observations[:, t]
            found = transition(before, window.actions[:, t])
            reached = _of_shape(found, before.shape, "transition= returns the next observation of each window")
            window.observations[hidden, t + 1] = reached[hidden]
            window.mask.observations[:, t + 1] = True
    return window


def _of_shape(found: Any, shape: tuple[int, ...], what: str) -> NDArray[Any]:
    """What a caller's function returned, as an array of this shape."""
    array = np.asarray(found)
    if array.shape != shape:
        raise ShapeError(f"{what}, an array of shape {shape}; got shape {array.shape}.")
    return array


def _like(rows: Bools, values: NDArray[Any]) -> Bools:
    """(N,) as a mask over `values` (N, ...)."""
    return rows.reshape(rows.shape + (1,) * (values.ndim - 1))
