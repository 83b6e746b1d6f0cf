"""Environments of our own, registered with Gymnasium by importing this package.

Gymnasium 1.0 and later know no entry points: either import this package first, or name it before the id, as in
`gym.make("agentzoo.envs:agentzoo/DoorKey-4x4-v0")`, which does it; stable-baselines3's `make_vec_env` takes both.

`agentzoo/DoorKey-4x4-v0`: a grid with a locked door, a Dict of two one-hot cells.
`agentzoo/Maze2DDense-Medium-v0`: a point in a maze, paid for the distance it covers towards the goal.

The classes are imported when an environment is made: importing this package loads neither MuJoCo nor PIL.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

import gymnasium as gym

from agentzoo.errors import warn

DOORKEY = "agentzoo/DoorKey-4x4-v0"
MAZE2D_DENSE = "agentzoo/Maze2DDense-Medium-v0"
DOORKEY_STEPS, MAZE2D_STEPS = 10, 200  # of an episode; the registrations truncate there
ROBOTICS = ("PointMaze_", "AntMaze_", "Adroit", "Fetch", "FrankaKitchen-", "Hand")  # ids of gymnasium-robotics

# ids that Gymnasium runs with MuJoCo
MUJOCO = (
    *("Ant-", "HalfCheetah-", "Hopper-", "Humanoid-", "HumanoidStandup-", "InvertedDoublePendulum-"),
    *("InvertedPendulum-", "Pusher-", "Reacher-", "Swimmer-", "Walker2d-"),
)


def register() -> None:
    """Tell Gymnasium about our environments; doing it twice changes nothing."""
    if DOORKEY not in gym.registry:
        gym.register(DOORKEY, entry_point="agentzoo.envs.doorkey:DoorKeyEnv", max_episode_steps=DOORKEY_STEPS)
    if MAZE2D_DENSE not in gym.registry:
        gym.register(MAZE2D_DENSE, entry_point="agentzoo.envs.maze2d:Maze2DDenseEnv", max_episode_steps=MAZE2D_STEPS)


def needs_robotics(env_id: str) -> bool:
    """Whether gymnasium-robotics provides it, or provides what ours is made of."""
    return env_id.startswith((*ROBOTICS, "agentzoo/Maze2D"))


def needs_make_env(env_id: str) -> bool:
    """Whether `gymnasium.make` alone cannot find it."""
    return env_id.startswith(("agentzoo/", *ROBOTICS))


def extras_of(env_id: str) -> tuple[str, ...]:
    """The extras of agentzoo that this environment needs."""
    return ("mujoco",) if needs_robotics(env_id) or env_id.startswith(MUJOCO) else ()


def make_env(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """`gymnasium.make`, after registering the package an id of the zoo comes from, and without MuJoCo's chatter.

    Pictures are possible without a display, unless `$MUJOCO_GL` says otherwise.

    Raises:
        gymnasium.error.Error: as `gymnasium.make`. ImportError: gymnasium-robotics is needed and absent.
    """
    if needs_robotics(env_id):
        with redirect_stderr(io.StringIO()):  # it prints news about other environments
            import gymnasium_robotics

        gym.register_envs(gymnasium_robotics)
    if kwargs.get("render_mode") == "rgb_array" and sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
    with quiet_compiler():
        return gym.make(env_id, **kwargs)


@contextmanager
def quiet_compiler() -> Iterator[None]:
    """Drop MuJoCo's deprecation notes about the XML files Gymnasium ships; keep every other warning.

    By default each environment made prints them to standard error and appends to MUJOCO_LOG.TXT in the working folder.
    """
    try:
        import mujoco
    except ImportError:
        yield
        return

    def pass_on(message: str) -> None:
        if "is deprecated" not in message:
            warn(f"MuJoCo: {message}", depth=2)

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(pass_on)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


register()
