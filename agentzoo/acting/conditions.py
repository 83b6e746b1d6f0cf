"""Observations of later steps that a masked agent acts towards: a goal, waypoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agentzoo.acting.history import AgentState, newest, to_batch
from agentzoo.acting.observing import as_numbers, is_count
from agentzoo.errors import ConfigError, ShapeError
from agentzoo.nn.masked_model import Known
from agentzoo.text import counted
from agentzoo.types import MAX_TARGET, Batch

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Conditions:
    """Flat observations of later steps, the same for all environments (1, S) or one each (N, S).

    goal: observation to reach at the end of the window. waypoints: environment step -> observation.
    """

    goal: Rows | None = None
    waypoints: Mapping[int, Rows] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.goal is not None or bool(self.waypoints)

    def with_goal(self, goal: Rows | None) -> Conditions:
        """A copy with this goal; the same object if `goal` is None."""
        return self if goal is None else replace(self, goal=goal)

    def place(self, state: AgentState, rtg_scale: float, device: torch.device) -> tuple[Batch, Known]:
        """The window to act from, and the known observations of its later steps.

        The goal takes the last place of the window, so the agent sees one past step fewer.

        Raises:
            ShapeError: rows for another number of environments. ConfigError: a goal, and a context of one step.
        """
        n, context = state.observations.shape[:2]
        for rows in (*self.waypoints.values(), *([] if self.goal is None else [self.goal])):
            if len(rows) not in (1, n):
                raise ShapeError(
                    f"a goal or waypoint was given for {counted(len(rows), 'environment')}, the observation has {n}: "
                    "pass a single one, or one for each environment."
                )
        if self.goal is not None:
            if context < 2:
                raise ConfigError("a goal takes the last place of the window, so it needs a context of at least 2.")
            state = newest(state, context - 1)
        observations = np.zeros_like(state.observations)
        shown = np.zeros(observations.shape[:2], dtype=bool)
        every, first = np.arange(n), state.timesteps - state.length + 1
        for step, rows in self.waypoints.items():
            ahead = (state.timesteps < step) & (step < first + context)
            observations[every[ahead], step - first[ahead]] = np.broadcast_to(rows, (n, rows.shape[1]))[ahead]
            shown[every[ahead], step - first[ahead]] = True
        if self.goal is not None:
            observations[:, -1], shown[:, -1] = self.goal, True
        known = Known(torch.from_numpy(observations).to(device), torch.from_numpy(shown).to(device))
        return to_batch(state, rtg_scale, device), known


def checked_steps(waypoints: Any) -> list[int]:
    """The steps of `waypoints` as whole numbers from 0.

    Raises:
        ShapeError: it is not a mapping, or a key is not a whole number from 0 on.
    """
    if not isinstance(waypoints, Mapping):
        raise ShapeError(
            f"waypoints map environment steps to observations, for example {{7: obs}}; got {type(waypoints).__name__}. "
            "An observation to reach at the end of the window is a goal."
        )
    steps = list(waypoints)
    if not all(map(is_count, steps)):
        raise ShapeError(f"waypoints map environment steps (0, 1, ...) to observations, got the steps {steps}.")
    return [int(step) for step in steps]


def checked_targets(target_return: Any) -> NDArray[np.float64]:
    """Target returns as a copy of shape () or (N,), all finite.

    Raises:
        ShapeError: a different shape, or not numbers. ConfigError: NaN, infinity or beyond 1e9.
    """
    targets = as_numbers(target_return, "target_return").astype(np.float64)
    if targets.ndim > 1:
        raise ShapeError(
            f"target_return has shape {targets.shape}; it is one number, or one for each environment (N,)."
        )
    if not np.isfinite(targets).all():
        raise ConfigError(f"target_return must be finite, got {target_return}.")
    if (np.abs(targets) > MAX_TARGET).any():
        raise ConfigError(f"target_return must lie within {MAX_TARGET:g} of 0, got {target_return}.")
    return targets
