"""A point in a maze, rewarded for progress towards its goal; 200 steps, never terminates.

Observation (4,): x, y of the point and of the goal. The velocity is hidden, so the task needs memory. Action (2,): the
force, in [-1, 1]. Reward: the decrease of the straight-line distance to the goal in metres (a cell is 1 m wide).

Source: Carroll et al. 2022, arXiv:2211.10869, appendix (D4RL's maze2d-medium layout).
Differs: the reference adds noise in place to a stored start velocity, so the velocity drifts from reset to reset; here
every reset draws a new one. The physics are gymnasium-robotics' PointMaze, not D4RL's mujoco-py build.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium_robotics.envs.maze import maps
from gymnasium_robotics.envs.maze.point_maze import PointMazeEnv
from numpy.typing import NDArray

from agentzoo.envs import quiet_compiler
from agentzoo.errors import ConfigError

LAYOUTS = {"UMaze": maps.U_MAZE, "Medium": maps.MEDIUM_MAZE, "Large": maps.LARGE_MAZE}
START_NOISE = 0.3  # metres around the centre of the start cell, uniform, per axis
START_SPEED = 0.1  # standard deviation, metres per second, per axis
REACHED = 0.45  # metres, the radius of `info["success"]`, as in PointMaze

Array = NDArray[np.float64]


class Maze2DDenseEnv(gym.Env[Array, NDArray[np.float32]]):
    """Random start cell, goal in the centre of another; `info` has `velocity` (2,), `distance` and `success`.

    `reset(options={"reset_cell": (row, column), "goal_cell": (row, column)})` sets the cells, as in PointMaze.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 100}  # noqa: RUF012  (Gymnasium's own declaration)

    def __init__(self, maze: str = "Medium", render_mode: str | None = None, **kwargs: Any) -> None:
        if maze not in LAYOUTS:
            raise ConfigError(f"no maze {maze!r}; known: {', '.join(LAYOUTS)}.")
        self.render_mode = render_mode
        with quiet_compiler():
            # continuing without a new target: it never terminates, and the goal stays where `reset` puts it
            own = {"continuing_task": True, "reset_target": False, "reward_type": "sparse"}  # `step` has another reward
            self._point = PointMazeEnv(LAYOUTS[maze], render_mode=render_mode, **own, **kwargs)
        # from above: in PointMaze's slanted view, walls hide the point
        self._point.point_env.mujoco_renderer.default_cam_config.update(elevation=-90.0, lookat=np.zeros(3))
        self.maze = self._point.maze
        self.goal: Array = np.zeros(2)
        self.free_cells = [
            (row, column) for row, line in enumerate(LAYOUTS[maze]) for column, cell in enumerate(line) if cell != 1
        ]
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    @property
    def data(self) -> Any:
        """MuJoCo's state: `qpos` (2,) metres, `qvel` (2,) metres per second."""
        return self._point.data

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Draw start, goal and start velocity."""
        super().reset(seed=seed)
        asked = options or {}
        start, goal = (self.free_cells[i] for i in self.np_random.choice(len(self.free_cells), size=2, replace=False))
        if unknown := asked.keys() - {"reset_cell", "goal_cell"}:
            raise ConfigError(f"Maze2D's reset has the options 'reset_cell' and 'goal_cell'; got {sorted(unknown)}.")
        if tuple(asked.get("reset_cell", ())) == goal:  # a random cell must differ from a chosen one
            goal = start
        if tuple(asked.get("goal_cell", ())) == start:
            start = goal
        position = self._centre(asked.get("reset_cell", start))
        position += self.np_random.uniform(-START_NOISE, START_NOISE, size=2)
        velocity = START_SPEED * self.np_random.standard_normal(2)
        self._point.reset(seed=0)  # clears MuJoCo's state of the last episode; its random draws are replaced below
        self.goal = self._centre(asked.get("goal_cell", goal))
        self._point.goal = self.goal
        self._point.update_target_site_pos()
        self._point.point_env.set_state(position, velocity)
        return self._observe(), self._info()

    def step(self, action: NDArray[np.float32]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Apply the force for 0.01 s; the reward is the decrease of the distance to the goal in metres."""
        before = self._distance()
        self._point.step(action)
        return self._observe(), before - self._distance(), False, False, self._info()

    def render(self) -> Any:
        """An image of the maze from above in render mode "rgb_array"."""
        if self.render_mode is None:
            gym.logger.warn("render() needs gymnasium.make(..., render_mode='rgb_array').")
            return None
        return self._point.render()

    def close(self) -> None:
        """Free the renderer."""
        self._point.close()

    def _centre(self, cell: tuple[int, int]) -> Array:
        if tuple(cell) not in self.free_cells:
            raise ConfigError(f"cell {tuple(cell)} is not free; free (row, column) cells: {self.free_cells}.")
        centre: Array = np.asarray(self.maze.cell_rowcol_to_xy(np.asarray(cell)), dtype=np.float64)
        return centre

    def _distance(self) -> float:
        return float(np.linalg.norm(self.data.qpos - self.goal))

    def _observe(self) -> Array:
        return np.concatenate([self.data.qpos, self.goal])

    def _info(self) -> dict[str, Any]:
        distance = self._distance()
        return {"velocity": self.data.qvel.copy(), "distance": distance, "success": distance <= REACHED}
