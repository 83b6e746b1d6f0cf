"""The rewards that a bound environment records, read from the wrappers that keep them.

SB3's `Monitor` keeps the raw rewards of the running episode; gymnasium's `RecordEpisodeStatistics` and SB3's
`VecMonitor` keep its return so far. The innermost of these wrappers is read. A wrapper outside of one that changes
rewards (`VecNormalize`, `NormalizeReward`) is not read, since it records changed rewards. All three count the steps of
the episode. The reward of the newest step is the growth of the recorded return since the previous call: of one recorded
step, or of several if a wrapper repeats actions (SB3's `make_atari_env`). A record without a new step shows that a
different environment is being played, and a record of fewer steps that a new episode has begun. Where episodes have a
single step, the record cannot tell, and the caller must pass `episode_start`.

The wrappers may wrap each environment of a DummyVecEnv or SyncVectorEnv, or the vector environment. Around a vector
environment, gymnasium's `RecordEpisodeStatistics` loses running episodes if only some environments are reset
(`AutoresetMode.DISABLED`), and before gymnasium 1.4 also with `AutoresetMode.SAME_STEP`, which is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from agentzoo.envs.wrapping import (
    ScaledMonitor,
    all_wrapped,
    any_wrapped,
    autoreset_mode,
    layers,
    resets_itself,
    resets_late,
    reward_changer,
)
from agentzoo.errors import ConfigError

Record = NDArray[np.float64]  # (N, 2) steps and return so far of the running episodes, as the environment records them
Reader = Callable[[], Record]
Flags = NDArray[np.bool_]  # (N,)
STEPS, RETURN = 0, 1
COUNTS_SAME_STEP = (1, 4)  # the first gymnasium whose vector RecordEpisodeStatistics counts same-step resets
VECTOR_RECORDER = "gymnasium.wrappers.vector.RecordEpisodeStatistics"


@dataclass(frozen=True)
class BoundEnv:
    """What acting knows about the environment that is bound."""

    read: Reader | None = None  # None if no wrapper records its rewards
    changer: str | None = None  # the wrapper that changes rewards, if it prevents reading them
    resets: AutoresetMode | None = None  # of a vector environment; an SB3 VecEnv resets in the same step
    forgets: bool = False  # whether its record loses running episodes at a partial reset
    needed: str = "wrapped in Monitor"  # how an environment like it records rewards, for a warning

    @classmethod
    def of(cls, env: Any) -> BoundEnv:
        """Inspect a gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv; None is no environment.

        Raises:
            ConfigError: an old gymnasium's wrapper counts its rewards wrong.
        """
        read = reader_of(env)
        changer = reward_changer(env) if read is None else None
        if not isinstance(env, gym.vector.VectorEnv):
            resets = AutoresetMode.SAME_STEP if _is_vec_env(env) else None
            return cls(read, changer, resets, needed=f"wrapped in Monitor inside {changer}" if changer else cls.needed)
        outer = isinstance(_keeper(env), gym.wrappers.vector.RecordEpisodeStatistics)
        needed = f"wrapped in {VECTOR_RECORDER}"
        if changer:  # no Monitor can be read in the processes of an AsyncVectorEnv
            is_async = isinstance(env.unwrapped, gym.vector.AsyncVectorEnv)
            needed = f"without {changer}" if is_async else f"wrapped in Monitor inside {changer}"
        return cls(read, changer, autoreset_mode(env), outer and not resets_itself(env), needed)

    @property
    def resets_itself(self) -> bool:
        """Whether a new episode begins without a call of `reset`."""
        return self.resets in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)

    @property
    def resets_late(self) -> bool:
        """Whether the first observation of an episode comes one step after the previous episode ends."""
        return self.resets == AutoresetMode.NEXT_STEP

    @property
    def waits_for_reset(self) -> bool:
        """Whether it is a vector environment that leaves resets to the caller."""
        return self.resets == AutoresetMode.DISABLED


def growth(recorded: Record, before: Record) -> tuple[NDArray[np.float64], Flags]:
    """(N,) rewards since the record `before`, 0 where no step was recorded since, and (N,) whether one was."""
    n = len(before)
    if len(recorded) != n:
        return np.zeros(n), np.zeros(n, dtype=bool)
    played = recorded[:, STEPS] > before[:, STEPS]
    return np.where(played, recorded[:, RETURN] - before[:, RETURN], 0.0), played


def reader_of(env: Any) -> Reader | None:
    """A function that reads the rewards of a gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv; None if it has none."""
    if _is_vec_env(env):
        return _vec_env_reader(env)
    return _keeper_reader(env) if isinstance(env, gym.Env | gym.vector.VectorEnv) else None


def _is_vec_env(env: Any) -> bool:
    """Whether this is a VecEnv of stable-baselines3."""
    return hasattr(env, "env_method") and hasattr(env, "num_envs")


def _summed(rewards: Sequence[Sequence[float]]) -> Record:
    """Records of Monitors, each of which lists the rewards of its episode."""
    return np.array([(len(one), sum(one)) for one in rewards], dtype=np.float64)


def _so_far(keeper: Any) -> Record:
    """Records of a wrapper that keeps returns and lengths of episodes: one of each, or (N,). A copy."""
    parts = (keeper.episode_lengths, keeper.episode_returns)
    return np.stack([np.asarray(part, dtype=np.float64).reshape(-1) for part in parts], axis=1)


def _vec_env_reader(env: Any) -> Reader | None:
    if hasattr(env, "envs"):  # a DummyVecEnv, at any depth of wrappers
        return _each_reader(env.envs) or _keeper_reader(env)
    from stable_baselines3.common.monitor import Monitor

    # asked by class: an environment may have rewards of its own, and one without ends the process of a SubprocVecEnv
    if all_wrapped(env, Monitor) and not any_wrapped(env, ScaledMonitor):
        return lambda: _summed(env.get_attr("rewards"))
    return _keeper_reader(env)


def _each_reader(envs: Sequence[Any]) -> Reader | None:
    """Reads environments that each have their own wrapper."""
    keepers = [_keeper(one) for one in envs]
    if all(map(_is_monitor, keepers)):
        return lambda: _summed([one.rewards for one in keepers])
    if None in keepers or any(map(_is_monitor, keepers)):
        return None
    return lambda: np.concatenate([_so_far(one) for one in keepers])


def _keeper_reader(env: Any) -> Reader | None:
    keeper = _keeper(env)
    if keeper is None:
        inside = next((layer.envs for layer in layers(env) if isinstance(layer, gym.vector.SyncVectorEnv)), None)
        return None if inside is None else _each_reader(inside)
    _require_counted(env, keeper)
    return (lambda: _summed([keeper.rewards])) if _is_monitor(keeper) else (lambda: _so_far(keeper))


def _require_counted(env: Any, keeper: Any) -> None:
    """Raise ConfigError if an old gymnasium's wrapper of this environment loses rewards."""
    outer = isinstance(keeper, gym.wrappers.vector.RecordEpisodeStatistics)
    if not outer or not resets_itself(env) or resets_late(env):
        return
    if tuple(map(int, gym.__version__.split(".")[:2])) < COUNTS_SAME_STEP:
        raise ConfigError(
            f"gymnasium {gym.__version__} counts wrong in RecordEpisodeStatistics around a vector environment with "
            "AutoresetMode.SAME_STEP. Install gymnasium 1.4 or later, or wrap each environment inside."
        )


def _keeper(env: Any) -> Any:
    """The innermost wrapper that records rewards; None if there is none or a wrapper inside of it changes rewards."""
    keepers = [layer for layer in layers(env) if _is_monitor(layer) or _counts(layer)]
    return keepers[-1] if keepers and reward_changer(keepers[-1]) is None else None


def _is_monitor(layer: Any) -> bool:
    return isinstance(layer, gym.Wrapper) and isinstance(vars(layer).get("rewards"), list)  # SB3's


def _counts(layer: Any) -> bool:
    """Whether it is gymnasium's RecordEpisodeStatistics or SB3's VecMonitor."""
    own = vars(layer)
    return bool({"env", "venv"} & own.keys()) and "episode_returns" in own
