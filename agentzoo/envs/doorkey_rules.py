"""The rules of DoorKey: get the key, open the door, walk to the goal; a 4 x 4 grid and 10 steps per episode.

Cells are (x, y) with x, y in 1..4, x to the right and y down. The column x = 3 is a wall with a locked door at (3, 1);
the goal is (4, 4). Agent and key start on two of the 8 cells left of the wall: 56 starts.

Source: Carroll et al. 2022, arXiv:2211.10869, appendix; micahcarroll/uniMASK@e57ee48.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE = 4
CELLS = SIDE * SIDE
WALL_X = 3
DOOR = (3, 1)
GOAL = (4, 4)
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))  # of the actions right, down, left, up
LEFT_CELLS = tuple((x, y) for x in range(1, WALL_X) for y in range(1, SIDE + 1))

Cell = tuple[int, int]


class GridState(NamedTuple):
    """Positions of agent and key; the agent holds the key if they share a cell."""

    agent: Cell
    key: Cell

    @property
    def has_key(self) -> bool:
        """Whether the agent holds the key, which it never drops."""
        return self.agent == self.key


def is_wall(cell: Cell) -> bool:
    """True for the border and for the wall column, False for the door."""
    x, y = cell
    return not (1 <= x <= SIDE and 1 <= y <= SIDE) or (x == WALL_X and cell != DOOR)


FREE_CELLS = tuple(
    (x, y) for x in range(1, SIDE + 1) for y in range(1, SIDE + 1) if not is_wall((x, y)) and (x, y) != DOOR
)


def transition(state: GridState, action: int) -> GridState:
    """The state after `action`; a wall, or the door without the key, blocks the move.

    Entering the key's cell picks it up. Unlocking, opening and entering the door is one action.
    """
    target = (state.agent[0] + MOVES[action][0], state.agent[1] + MOVES[action][1])
    if is_wall(target) or (target == DOOR and not state.has_key):
        return state
    return GridState(target, target if state.has_key else state.key)


def path_distance(cell: Cell) -> int:
    """Steps from `cell` to the goal through the door, as if it were open: 9 at the far corner, 0 at the goal."""
    x, y = cell
    if x >= WALL_X:
        return abs(GOAL[0] - x) + abs(GOAL[1] - y)
    before_door = (DOOR[0] - 1, DOOR[1])
    return abs(before_door[0] - x) + abs(before_door[1] - y) + 1 + path_distance(DOOR)


def cell_index(cell: Cell) -> int:
    """0..15, column by column: `4 (x - 1) + (y - 1)`."""
    return SIDE * (cell[0] - 1) + cell[1] - 1


def cell_of(index: int) -> Cell:
    """The inverse of `cell_index`."""
    return index // SIDE + 1, index % SIDE + 1


def states_of(observations: NDArray[np.float32]) -> list[GridState]:
    """(N, 32) flat observations, the agent's one-hot then the key's -> N states."""
    agents, keys = (observations[:, part].argmax(axis=1) for part in (slice(CELLS), slice(CELLS, 2 * CELLS)))
    return [GridState(cell_of(int(agent)), cell_of(int(key))) for agent, key in zip(agents, keys, strict=True)]


def transition_rows(observations: NDArray[np.float32], actions: NDArray[np.int64]) -> NDArray[np.float32]:
    """(N, 32), (N,) -> (N, 32): `transition` for flat observations."""
    found = [transition(state, int(action)) for state, action in zip(states_of(observations), actions, strict=True)]
    eye = np.eye(CELLS, dtype=np.float32)
    return np.stack([np.concatenate([eye[cell_index(s.agent)], eye[cell_index(s.key)]]) for s in found])


def possible_rows(
    observations: NDArray[np.float32], actions: NDArray[np.int64], following: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """(N,) whether each action leads from the observation, on free cells, to the following one."""
    free = np.array([not is_wall(s.agent) and not is_wall(s.key) for s in states_of(observations)])
    reached: NDArray[np.bool_] = (transition_rows(observations, actions) == following).all(axis=1)
    return free & reached
