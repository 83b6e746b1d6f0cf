"""Environment options that an untrusted config may set: a list with bounds for each known environment.

Options are keyword arguments of `gym.make`, stored in an agent's config or recipe. Some load a file, open a window, or
make a simulator step take minutes inside C code; with a camera that its model lacks, MuJoCo ends the process. Options
outside the list need the caller's trust.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from agentzoo.env_ids import without_module
from agentzoo.envs import GAMES
from agentzoo.errors import ConfigError, did_you_mean, printable

_trusting: ContextVar[bool] = ContextVar("trusting_env_options", default=False)


class Integer(NamedTuple):
    """A whole number from `low` to `high`."""

    low: int
    high: int


class Real(NamedTuple):
    """A number from `low` to `high`."""

    low: float
    high: float


class Choice(NamedTuple):
    """One of these strings."""

    texts: tuple[str, ...]


Bound = Integer | Real | Choice | type[bool]
MAX_STEPS = 100_000  # of an episode
WEIGHT = Real(-1_000.0, 1_000.0)  # weight of a reward term
COMMON: dict[str, Bound] = {  # for every environment
    "max_episode_steps": Integer(1, MAX_STEPS),
    "render_mode": Choice(("rgb_array",)),
    "width": Integer(16, 4_096),
    "height": Integer(16, 4_096),
}
MUJOCO: dict[str, Bound] = {
    **dict.fromkeys(("forward_reward_weight", "ctrl_cost_weight", "contact_cost_weight", "healthy_reward"), WEIGHT),
    **dict.fromkeys(("reward_near_weight", "reward_dist_weight", "reward_control_weight", "uph_cost_weight"), WEIGHT),
    **dict.fromkeys(("impact_cost_weight",), WEIGHT),
    **dict.fromkeys(("terminate_when_unhealthy", "exclude_current_positions_from_observation"), bool),
    **dict.fromkeys(("use_contact_forces", "include_cfrc_ext_in_observation"), bool),
    "reset_noise_scale": Real(0.0, 1.0),
    "frame_skip": Integer(1, 50),
}
MAZE: dict[str, Bound] = {
    "continuing_task": bool,
    "reset_target": bool,
    "reward_type": Choice(("dense", "sparse")),
}
GAME: dict[str, Bound] = {
    "repeat_action_probability": Real(0.0, 1.0),
    "full_action_space": bool,
    "terminal_on_life_loss": bool,
}
ALE: dict[str, Bound] = {
    "repeat_action_probability": Real(0.0, 1.0),
    "full_action_space": bool,
    "frameskip": Integer(1, 50),
    "mode": Integer(0, 1_000),
    "difficulty": Integer(0, 16),
    "obs_type": Choice(("rgb", "grayscale", "ram")),
}
_MUJOCO_NAMES = (
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum"),
    *("Pusher", "Reacher", "Swimmer", "Walker2d"),
)
KNOWN: dict[str, dict[str, Bound]] = {  # name before `_` or `-v`
    **dict.fromkeys(_MUJOCO_NAMES, MUJOCO),
    **dict.fromkeys(("PointMaze", "AntMaze"), MAZE),
    "agentzoo/DoorKey-4x4": {},
    "agentzoo/Maze2DDense-Medium": {"maze": Choice(("UMaze", "Medium", "Large"))},
    **{f"agentzoo/{game}": GAME for game in GAMES},
    **{f"ALE/{game}": ALE for game in GAMES},
    "CartPole": {"sutton_barto_reward": bool},
    "Pendulum": {"g": Real(-100.0, 100.0)},
    "MountainCar": {"goal_velocity": Real(-1.0, 1.0)},
    "MountainCarContinuous": {"goal_velocity": Real(-1.0, 1.0)},
    "LunarLander": {
        **dict.fromkeys(("continuous", "enable_wind"), bool),
        "gravity": Real(-11.9, -0.1),
        "wind_power": Real(0.0, 20.0),
        "turbulence_power": Real(0.0, 2.0),
    },
    "BipedalWalker": {"hardcore": bool},
    "FrozenLake": {"map_name": Choice(("4x4", "8x8")), "is_slippery": bool},
}


def allowed_options(env_id: str) -> dict[str, Bound]:
    """The options of this environment, with or without its module, that a config may set, with their bounds."""
    name = without_module(env_id).rsplit("-v", 1)[0]
    return {**COMMON, **KNOWN.get(name, KNOWN.get(name.split("_")[0], {}))}


def check_env_options(env_id: str, options: Mapping[str, Any], trusted: bool = False) -> None:
    """Reject options that are not listed for this environment or out of bounds, unless they are trusted.

    Raises:
        ConfigError: the message names the option, what is allowed, and how to trust it.
    """
    if trusted or options_trusted():
        return
    problem = problem_of(env_id, options)
    if problem:
        raise ConfigError(
            f"{problem} Options can load files, open windows or never return. If you trust them, pass "
            "trust_env_options=True (--trust-env-options)."
        )


def problem_of(env_id: str, options: Mapping[str, Any]) -> str:
    """Why these options need the caller's trust: the first that is not listed or out of bounds; empty if none is."""
    allowed = allowed_options(env_id)
    for name, value in options.items():
        if name not in allowed:
            why = f"is not in the allowed options of {env_id}.{did_you_mean(name, allowed)}"
        elif not _fits(value, allowed[name]):
            why = f"is {printable(repr(value), 60)}; {_words(allowed[name])} is allowed."
        else:
            continue
        return f"the environment option {printable(name, 60)!r} {why}"
    return ""


def trust_flags(env_id: str | None, options: Mapping[str, Any]) -> str:
    """What a command needs to create this environment: each option after a space; empty if it needs none."""
    module = " --trust-env-module" if ":" in (env_id or "") else ""
    return module + (" --trust-env-options" if env_id and problem_of(env_id, options) else "")


def _fits(value: Any, bound: Bound) -> bool:
    if isinstance(bound, Choice):
        return value in bound.texts
    if isinstance(bound, Integer):
        return type(value) is int and bound.low <= value <= bound.high
    if isinstance(bound, Real):
        return type(value) in (int, float) and bound.low <= value <= bound.high
    return type(value) is bool


def _words(bound: Bound) -> str:
    if isinstance(bound, Choice):
        return " or ".join(map(repr, bound.texts))
    if isinstance(bound, Integer):
        return f"a whole number from {bound.low} to {bound.high}"
    if isinstance(bound, Real):
        return f"a number from {bound.low:g} to {bound.high:g}"
    return "true or false"


def trust_env_options(trusted: bool) -> None:
    """Set whether the options of every config are trusted in this context; the command line sets it."""
    _trusting.set(trusted)


def options_trusted() -> bool:
    """Whether the options of every config are trusted in this context."""
    return _trusting.get()


@contextmanager
def trusting_env_options() -> Iterator[None]:
    """Trust the options of every config inside the block."""
    token = _trusting.set(True)
    try:
        yield
    finally:
        _trusting.reset(token)
