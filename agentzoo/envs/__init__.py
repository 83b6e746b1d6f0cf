"""The environments of agentzoo; importing this package registers them with Gymnasium.

Gymnasium 1.0 and later do not use entry points. Either import this package first, or name it before the id, as in
`gym.make("agentzoo.envs:agentzoo/DoorKey-4x4-v0")`. Both work with stable-baselines3's `make_vec_env`.

`agentzoo/DoorKey-4x4-v0`: a grid with a locked door; observations are a Dict of two one-hot cells.
`agentzoo/Maze2DDense-Medium-v0`: a point in a maze; the reward is the progress towards the goal.
`agentzoo/Pong-v5`, and five more games: stacks of four frames of an Atari game. ale-py's own ids (`ALE/Pong-v5`) work.

Environment classes are imported on use: importing this package loads neither MuJoCo, PIL nor ale-py.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from agentzoo.env_ids import without_module
from agentzoo.errors import warn

DOORKEY = "agentzoo/DoorKey-4x4-v0"
MAZE2D_DENSE = "agentzoo/Maze2DDense-Medium-v0"
DOORKEY_STEPS, MAZE2D_STEPS = 10, 200  # episode lengths, at which the registrations truncate
GAMES = ("Boxing", "Breakout", "Freeway", "Pong", "Qbert", "Seaquest")
GAME_STEPS = 27_000  # 108,000 frames, half an hour

# ids of gymnasium-robotics
ROBOTICS = (
    *("PointMaze_", "AntMaze_", "AdroitHand", "FrankaKitchen-", "HandReach", "HandManipulate"),
    *("FetchReach", "FetchPush", "FetchSlide", "FetchPickAndPlace"),
)

# ids that Gymnasium runs with MuJoCo
MUJOCO = (
    *("Ant-", "HalfCheetah-", "Hopper-", "Humanoid-", "HumanoidStandup-", "InvertedDoublePendulum-"),
    *("InvertedPendulum-", "Pusher-", "Reacher-", "Swimmer-", "Walker2d-"),
)

BOX2D = ("LunarLander", "BipedalWalker-", "BipedalWalkerHardcore-", "CarRacing-")
SELF_SUFFICIENT = (
    *("Acrobot-", "CartPole-", "MountainCar-", "MountainCarContinuous-", "Pendulum-"),
    *("Blackjack-", "CliffWalking", "FrozenLake", "Taxi-"),
)


def register() -> None:
    """Register the environments with Gymnasium; a second call changes nothing."""
    if DOORKEY not in gym.registry:
        gym.register(DOORKEY, entry_point="agentzoo.envs.doorkey:DoorKeyEnv", max_episode_steps=DOORKEY_STEPS)
    if MAZE2D_DENSE not in gym.registry:
        gym.register(MAZE2D_DENSE, entry_point="agentzoo.envs.maze2d:Maze2DDenseEnv", max_episode_steps=MAZE2D_STEPS)
    for game in GAMES:
        if (name := f"agentzoo/{game}-v5") not in gym.registry:
            gym.register(
                name,
                entry_point="agentzoo.envs.atari:make_game",
                kwargs={"game": game},
                max_episode_steps=GAME_STEPS,
                disable_env_checker=True,
            )


def needs_robotics(env_id: str) -> bool:
    """Whether the environment needs gymnasium-robotics."""
    return without_module(env_id).startswith((*ROBOTICS, "agentzoo/Maze2D"))


def is_game(env_id: str) -> bool:
    """Whether it is an Atari game, ours or ale-py's own, which needs ale-py."""
    return without_module(env_id).startswith(("ALE/", *(f"agentzoo/{game}-" for game in GAMES)))


def needs_make_env(env_id: str) -> bool:
    """Whether `gymnasium.make` cannot find the environment without an import."""
    return env_id.startswith(("agentzoo/", "ALE/", *ROBOTICS))


def extras_of(env_id: str) -> tuple[str, ...]:
    """The extras of agentzoo that this environment needs."""
    if is_game(env_id):
        return ("atari",)
    return ("mujoco",) if needs_robotics(env_id) or without_module(env_id).startswith(MUJOCO) else ()


def package_of(env_id: str) -> str | None:
    """What else an environment needs beside agentzoo and `extras_of`, in words for a card; None if nothing."""
    module, _, name = env_id.rpartition(":")
    if module and not module.startswith(("agentzoo", "gymnasium")):
        return f"the package with the module {module}"
    if extras_of(name) or name.startswith(("agentzoo/", *SELF_SUFFICIENT)):
        return None
    return "gymnasium[box2d]" if name.startswith(BOX2D) else f"the package that registers {name}"


def make_env(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """`gymnasium.make`, after registering the package of the environment, and without MuJoCo's deprecation notes.

    Rendering works without a display, unless `$MUJOCO_GL` is set otherwise.

    Raises:
        gymnasium.error.Error: as `gymnasium.make`. ImportError: gymnasium-robotics or ale-py is needed but missing.
    """
    _register_package(env_id)
    if kwargs.get("render_mode") == "rgb_array" and sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
    with quiet_compiler():
        return gym.make(env_id, **kwargs)


def registered(env_id: str) -> EnvSpec | None:
    """The registered spec of an id, with or without a module; None if no installed package registers it."""
    with suppress(ImportError):
        _register_package(env_id)
    return gym.registry.get(without_module(env_id))


def _register_package(env_id: str) -> None:
    """Import and register the package of an environment that Gymnasium does not know by itself."""
    if without_module(env_id) in gym.registry:
        return
    if env_id.startswith("ALE/"):
        import ale_py

        gym.register_envs(ale_py)
    if needs_robotics(env_id):
        with redirect_stderr(io.StringIO()):  # the package prints news about other environments
            import gymnasium_robotics

        gym.register_envs(gymnasium_robotics)


@contextmanager
def quiet_compiler() -> Iterator[None]:
    """Suppress MuJoCo's deprecation notes about Gymnasium's XML files; keep all other warnings.

    By default every new environment prints them to standard error and to MUJOCO_LOG.TXT in the working folder.
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
