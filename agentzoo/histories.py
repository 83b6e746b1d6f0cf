"""Whole pasts and futures, drawn from a masked agent one step at a time and held against the environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.agent import Agent
from agentzoo.asking import ask
from agentzoo.errors import ConfigError
from agentzoo.question import Bools, Floats, Window

TRIES = 100  # redraws of one step of a history before it is given up

# (N, S) observations, (N, A) or (N,) actions, (N, S) next observations -> (N,) bool, whether the environment could
Possible = Callable[[Floats, NDArray[Any], Floats], Bools]
# (N, S), (N, A) or (N,) -> (N, S): the environment itself
Transition = Callable[[Floats, NDArray[Any]], Floats]


class Histories(NamedTuple):
    """Sampled windows, and which of them hold only steps the environment could have taken."""

    window: Window
    consistent: Bools


def histories(
    agent: Agent, window: Window, possible: Possible, seed: int | np.random.Generator = 0, tries: int = TRIES
) -> Histories:
    """Sample what is hidden, from the last step backwards.

    At each step first the action is drawn and shown, then the observation; both are drawn again, at most `tries` times,
    where the environment does not lead from them to the next observation. What was shown from the start is never
    changed: where it contradicts itself or cannot be reached, the row is kept and marked.

    Args:
        agent: of a masked family.
        window: N windows; for N samples of one question, the same window N times.
        possible: says which steps the environment could have taken.
    """
    rng = np.random.default_rng(seed)
    count, steps = window.mask.actions.shape
    consistent = np.ones(count, dtype=bool)
    for t in range(steps - 1, -1, -1):
        hidden_action, hidden_obs = ~window.mask.actions[:, t], ~window.mask.observations[:, t]
        due = hidden_action | hidden_obs
        for _ in range(tries):
            if not due.any():
                break
            window = _draw_step(agent, window, t, due & hidden_action, due & hidden_obs, rng)
            if t == steps - 1:  # nothing comes after it that could contradict
                due = np.zeros(count, dtype=bool)
                break
            ok = possible(window.observations[:, t], window.actions[:, t], window.observations[:, t + 1])
            due &= ~ok
        consistent &= ~due
        shown = window.mask
        window = replace(
            window, mask=shown._replace(observations=_with(shown.observations, t), actions=_with(shown.actions, t))
        )
    return Histories(window, consistent)


def futures(agent: Agent, window: Window, transition: Transition, seed: int | np.random.Generator = 0) -> Window:
    """Sample hidden actions forwards; each next observation that is hidden comes from the environment itself.

    Args:
        window: the first observation must be shown.
        transition: the environment.
    """
    rng = np.random.default_rng(seed)
    if not window.mask.observations[:, 0].all():
        raise ConfigError("a future starts from a first observation, which this window hides.")
    count, steps = window.mask.actions.shape
    nothing = np.zeros(count, dtype=bool)
    for t in range(steps):
        window = _draw_step(agent, window, t, ~window.mask.actions[:, t], nothing, rng)
        observations, shown = window.observations.copy(), window.mask
        if t + 1 < steps:
            hidden = ~shown.observations[:, t + 1]
            reached = transition(window.observations[:, t], window.actions[:, t])
            observations[hidden, t + 1] = reached[hidden]
            shown = shown._replace(observations=_with(shown.observations, t + 1))
        window = replace(window, observations=observations, mask=shown._replace(actions=_with(shown.actions, t)))
    return window


def _with(mask: Bools, t: int) -> Bools:
    shown: Bools = mask.copy()
    shown[:, t] = True
    return shown


def _draw_step(
    agent: Agent, window: Window, t: int, actions: Bools, observations: Bools, rng: np.random.Generator
) -> Window:
    """Step `t` of the rows named drawn afresh: the action, and given it the observation."""
    if actions.any():
        drawn = ask(agent, window).sample(rng).actions
        chosen = window.actions.copy()
        chosen[actions, t] = drawn[actions, t]
        window = replace(window, actions=chosen)
    if observations.any():
        asked = replace(window, mask=window.mask._replace(actions=_with(window.mask.actions, t)))
        found = ask(agent, asked).sample(rng).observations
        seen = window.observations.copy()
        seen[observations, t] = found[observations, t]
        window = replace(window, observations=seen)
    return window
