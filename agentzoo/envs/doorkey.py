"""DoorKey as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.envs.doorkey_rules import (
    CELLS,
    DOOR,
    FREE_CELLS,
    LEFT_CELLS,
    MOVES,
    Cell,
    GridState,
    cell_index,
    path_distance,
    transition,
)
from agentzoo.errors import ConfigError

Observation = dict[str, NDArray[np.float32]]


def _free_cell(name: str, cell: Any) -> Cell:
    """The cell (x, y) of an option of `reset`."""
    if name not in ("agent", "key"):
        raise ConfigError(f"DoorKey's reset has the options 'agent' and 'key', cells (x, y); got {name!r}.")
    found = tuple(cell) if isinstance(cell, Iterable) else cell
    if found not in FREE_CELLS:
        raise ConfigError(f"reset puts the {name} on {cell!r}; it needs a free cell (x, y), one of {FREE_CELLS}.")
    return FREE_CELLS[FREE_CELLS.index(found)]


class DoorKeyEnv(gym.Env[Observation, np.int64]):
    """The grid as a Gymnasium environment.

    Observation: `agent` and `key`, (16,) float32 each, one-hot over `cell_index`. The observation does not show whether
    the door is open; the history does. Actions: 0 right, 1 down, 2 left, 3 up. Reward: the decrease of `path_distance`,
    so an episode's return is the distance at its start minus that at its end. The goal does not end the episode.

    `reset(options={"agent": (x, y), "key": (x, y)})` sets the start.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012  (Gymnasium's own declaration)

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"DoorKey renders as 'rgb_array' or not at all (None), got render_mode={render_mode!r}.")
        self.render_mode = render_mode
        one_hot = gym.spaces.Box(0.0, 1.0, (CELLS,), np.float32)
        self.observation_space: Any = gym.spaces.Dict({"agent": one_hot, "key": one_hot})
        self.action_space = gym.spaces.Discrete(len(MOVES))
        self.state = GridState(LEFT_CELLS[0], LEFT_CELLS[1])
        self.door_open = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Place agent and key on two different cells left of the wall, uniformly at random, or where `options` say.

        Raises:
            ConfigError: other options, or one that is no free cell (x, y).
        """
        super().reset(seed=seed)
        agent, key = (LEFT_CELLS[i] for i in self.np_random.choice(len(LEFT_CELLS), size=2, replace=False))
        asked = {name: _free_cell(name, cell) for name, cell in (options or {}).items()}
        if asked.get("agent") == key:  # a random cell must differ from a chosen one
            key = agent
        if asked.get("key") == agent:
            agent = key
        agent, key = asked.get("agent", agent), asked.get("key", key)
        self.state = GridState(agent, key)
        self.door_open = False
        return self._observe(), self._info()

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Move; the reward is the progress towards the goal. Never terminates; truncated after 10 steps.

        Raises:
            ConfigError: an action outside the action space.
        """
        if not self.action_space.contains(action):
            raise ConfigError(f"DoorKey's actions are the whole numbers 0 to {len(MOVES) - 1}, got {action!r}.")
        before = path_distance(self.state.agent)
        self.state = transition(self.state, int(action))
        self.door_open = self.door_open or self.state.agent == DOOR
        return self._observe(), float(before - path_distance(self.state.agent)), False, False, self._info()

    def render(self) -> Any:
        """(336, 336, 3) picture in render mode "rgb_array"."""
        if self.render_mode is None:
            gym.logger.warn("render() needs gymnasium.make(..., render_mode='rgb_array').")
            return None
        from agentzoo.envs.doorkey_picture import draw

        return draw(self.state, self.door_open)

    def _observe(self) -> Observation:
        eye = np.eye(CELLS, dtype=np.float32)
        return {"agent": eye[cell_index(self.state.agent)], "key": eye[cell_index(self.state.key)]}

    def _info(self) -> dict[str, Any]:
        return {
            "agent": self.state.agent,
            "key": self.state.key,
            "has_key": self.state.has_key,
            "door_open": self.door_open,
            "distance": path_distance(self.state.agent),
        }
