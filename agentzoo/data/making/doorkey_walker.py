"""The noisy-rational walker behind the DoorKey data: it prefers moves towards its next sub-goal.

Source: arXiv:2211.10869, appendix; micahcarroll/uniMASK@e57ee48. `p(a) ~ exp(C(a))` with C = +1, -1 or 0 where action
a lowers, raises or keeps the Manhattan distance to the sub-goal: first the key, then the door, then the goal.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.envs.doorkey_rules import DOOR, GOAL, MOVES, Cell, GridState, cell_of, transition


def sub_goal(state: GridState, door_open: bool) -> Cell:
    """The walker's current sub-goal."""
    if not state.has_key:
        return state.key
    return GOAL if door_open else DOOR


def action_probabilities(state: GridState, door_open: bool, reference_quirks: bool = False) -> NDArray[np.float64]:
    """(4,) probabilities of right, down, left and up.

    A blocked move scores 0. With `reference_quirks` the border at x = 0 and y = 0 counts as reachable when scoring, as
    in the reference code: moves into it score by distance and are taken less often.
    """
    goal = sub_goal(state, door_open)
    scores = []
    for action, move in enumerate(MOVES):
        reached = transition(state, action).agent
        wanted = (state.agent[0] + move[0], state.agent[1] + move[1])
        if reference_quirks and 0 in wanted:
            reached = wanted
        scores.append(np.sign(_manhattan(state.agent, goal) - _manhattan(reached, goal)))
    weights = np.exp(np.asarray(scores, dtype=np.float64))
    return np.asarray(weights / weights.sum())


def _manhattan(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


class Walker:
    """The walker in one episode. It remembers whether the door is open, which observations do not show."""

    def __init__(self, env: gym.Env[Any, Any], rng: np.random.Generator) -> None:
        self._rng = rng
        self._door_open = False

    def __call__(self, obs: dict[str, NDArray[np.float32]]) -> NDArray[np.int64]:
        """Draw the next action."""
        state = GridState(cell_of(int(obs["agent"].argmax())), cell_of(int(obs["key"].argmax())))
        self._door_open = self._door_open or state.agent == DOOR
        probabilities = action_probabilities(state, self._door_open)
        return np.asarray(self._rng.choice(len(MOVES), p=probabilities), dtype=np.int64)
