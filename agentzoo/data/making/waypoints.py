"""The controller behind the maze data: it follows the cells of a shortest path, with noise on every action.

Source: Farama-Foundation/D4RL, d4rl/pointmaze/waypoint_controller.py and q_iteration.py; their Gymnasium version in
Farama-Foundation/minari-dataset-generation-scripts, scripts/pointmaze (commits fb65edb and 75fd128), which made
Minari's D4RL/pointmaze sets. Gains, noise, waypoint shift and switch radius are theirs.
Differs: a goal in the neighbouring cell is approached directly, where the original heads for that cell's centre and
never switches. Shortest paths come from breadth-first search. The original's Q-iteration finds the same paths, with
ties in the same order. Each episode starts at rest from a reset, so that it can be replayed; the original continues
from the last goal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.errors import DataError

GAIN, DAMPING = 10.0, -1.0  # factors of the position error and of the velocity
SWITCH_RADIUS = 0.1  # metres
SHIFT = 0.2  # waypoints between start and goal move by -U(0, SHIFT) metres per axis
NOISE = 0.5  # standard deviation, in units of the force bound
NEIGHBOURS = ((0, 1), (0, -1), (-1, 0), (1, 0))  # (row, column), in the order ties are broken
WALL = 1

Cell = tuple[int, int]


def shortest_path(maze_map: Sequence[Sequence[Any]], start: Cell, goal: Cell) -> list[Cell]:
    """Free cells from `start` to `goal`, both included.

    Raises:
        DataError: no path connects them.
    """
    steps = {goal: 0}
    frontier = deque([goal])
    while frontier:
        cell = frontier.popleft()
        for near in _free_neighbours(maze_map, cell):
            if near not in steps:
                steps[near] = steps[cell] + 1
                frontier.append(near)
    if start not in steps:
        raise DataError(f"no path from cell {start} to cell {goal} of the maze.")
    path = [start]
    while path[-1] != goal:
        path.append(min(_free_neighbours(maze_map, path[-1]), key=lambda near: steps[near]))  # min keeps the first
    return path


def _free_neighbours(maze_map: Sequence[Sequence[Any]], cell: Cell) -> list[Cell]:
    near = [(cell[0] + row, cell[1] + column) for row, column in NEIGHBOURS]
    return [
        (row, column)
        for row, column in near
        if 0 <= row < len(maze_map) and 0 <= column < len(maze_map[row]) and maze_map[row][column] != WALL
    ]


class WaypointController:
    """Steers the point in one PointMaze or Maze2DDense episode; it reads the simulator, not the observation.

    Noise and shifts come from `rng`. Actions are float32 in [-1, 1], noise added before clipping.
    """

    def __init__(self, env: gym.Env[Any, Any], rng: np.random.Generator) -> None:
        base: Any = env.unwrapped
        self._env = base
        self._rng = rng
        maze = base.maze
        goal = np.asarray(base.goal, dtype=np.float64)
        start_cell, goal_cell = (
            (int(cell[0]), int(cell[1])) for cell in map(maze.cell_xy_to_rowcol, (base.data.qpos, goal))
        )
        path = shortest_path(maze.maze_map, start_cell, goal_cell)
        between = [np.asarray(maze.cell_rowcol_to_xy(np.asarray(cell))) for cell in path[1:-1]]
        # the first waypoint is an exact cell centre, as in the original, later ones are shifted
        shifted = [xy - (rng.uniform(0.0, SHIFT, size=2) if i else 0.0) for i, xy in enumerate(between)]
        self._waypoints = deque([*shifted, goal])

    def __call__(self, obs: Any) -> NDArray[np.float32]:
        """The next force, (2,)."""
        position, velocity = self._env.data.qpos, self._env.data.qvel
        if len(self._waypoints) > 1 and np.linalg.norm(self._waypoints[0] - position) <= SWITCH_RADIUS:
            self._waypoints.popleft()
        force = GAIN * (self._waypoints[0] - position) + DAMPING * velocity
        noisy = force + NOISE * self._rng.standard_normal(2)
        return np.asarray(np.clip(noisy, -1.0, 1.0), dtype=np.float32)
