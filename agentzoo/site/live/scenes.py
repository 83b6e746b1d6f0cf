"""The environments of the page: MuJoCo models and constants, read from Gymnasium's own objects.

`static/live/environments.js` has the steps; its tests compare them with Gymnasium's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentzoo.envs import DOORKEY, DOORKEY_STEPS
from agentzoo.envs.doorkey_rules import DOOR, GOAL, LEFT_CELLS, MOVES, SIDE
from agentzoo.envs.making import make_configured

Scene = dict[str, Any]
REACHED = 0.45  # metres from the goal, a constant of gymnasium_robotics
FASTEST = 5.0  # m/s, likewise
LARGE = 1e9
MAZE_KEYS = ("observation", "desired_goal")  # what `environments.js` gives the network in a maze, in this order


def misread(scene: Scene, keys: tuple[str, ...] | None) -> str | None:
    """Why the page cannot show an agent that reads these keys of the observation, if it cannot."""
    if scene["kind"] != "maze" or keys == MAZE_KEYS:
        return None
    return f"it reads {keys and list(keys)}; in a maze this page gives {list(MAZE_KEYS)}."


def scene_of(env_id: str, options: Mapping[str, Any]) -> Scene | None:
    """The scene of an environment, ready for JSON; None if the page cannot simulate it.

    Raises:
        ConfigError: an option that the environment does not have, or one that is not allowed (`envs.env_options`).
    """
    make = _MAKERS.get(env_id.rsplit("-v", 1)[0])
    if make is None:
        return None
    env = make_configured(env_id, options)
    try:
        found = make(env.unwrapped)
        if found is None:
            return None
        steps = env.spec.max_episode_steps if env.spec else None
        return {"env": env_id, **found, "most_steps": steps or DOORKEY_STEPS}
    finally:
        env.close()


def _runner(env: Any, noise: Mapping[str, Any], velocity_limit: float | None, healthy: Scene | None) -> Scene:
    return {
        "kind": "runner",
        "xml": Path(env.fullpath).read_text(encoding="utf-8"),
        "frame_skip": env.frame_skip,
        "forward_weight": env._forward_reward_weight,
        "effort_weight": env._ctrl_cost_weight,
        "velocity_limit": velocity_limit,
        "healthy": healthy,
        "noise": noise,
    }


def _walking(env: Any) -> Scene | None:
    """Hopper and Walker2d; None for options that the page does not have."""
    if not env._terminate_when_unhealthy or not env._exclude_current_positions_from_observation:
        return None
    healthy = {
        "reward": env._healthy_reward,
        "height": _bounds(env._healthy_z_range),
        "angle": _bounds(env._healthy_angle_range),
        "state": _bounds(getattr(env, "_healthy_state_range", None)),  # Hopper's
    }
    scale = env._reset_noise_scale
    return _runner(env, {"position": scale, "velocity": scale, "normal": False}, 10.0, healthy)


def _bounds(values: tuple[float, float] | None) -> list[float] | None:
    """The bounds, infinity as 1e9, since JSON has no infinity; None if the environment has none."""
    return None if values is None else [min(max(value, -LARGE), LARGE) for value in values]


def _cheetah(env: Any) -> Scene | None:
    if not env._exclude_current_positions_from_observation:
        return None
    scale = env._reset_noise_scale
    return _runner(env, {"position": scale, "velocity": scale, "normal": True}, None, None)


def _maze(env: Any) -> Scene | None:
    """A maze whose episodes end at the goal, with reward 1 there; None with other rewards or goals."""
    if env.continuing_task or env.reward_type != "sparse":
        return None
    return {
        "kind": "maze",
        "xml": Path(env.tmp_xml_file_path).read_text(encoding="utf-8"),
        "frame_skip": env.point_env.frame_skip,
        "starts": [list(map(float, cell)) for cell in env.maze.unique_reset_locations],
        "goals": [list(map(float, cell)) for cell in env.maze.unique_goal_locations],
        "noise": env.position_noise_range * env.maze.maze_size_scaling,
        "radius": REACHED,
        "velocity_limit": FASTEST,
    }


def _grid(env: Any) -> Scene:
    return {
        "kind": "grid",
        "side": SIDE,
        "door": DOOR,
        "goal": GOAL,
        "moves": MOVES,
        "left_cells": LEFT_CELLS,
    }


_MAKERS: dict[str, Callable[[Any], Scene | None]] = {
    "Hopper": _walking,
    "Walker2d": _walking,
    "HalfCheetah": _cheetah,
    "PointMaze_UMaze": _maze,
    "PointMaze_Medium": _maze,
    "PointMaze_Large": _maze,
    DOORKEY.rsplit("-v", 1)[0]: _grid,
}
