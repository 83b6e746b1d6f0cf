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
    is_monitor,
    keeps_returns,
    layers,
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
    needed: str = "wrapped in Monitor"  # what an environment like it needs to record rewards, for a warning

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
            return cls(read, changer, resets, needed=_needed(env, changer))
        mode = autoreset_mode(env)
        forgets = mode == AutoresetMode.DISABLED and _counts_outside(_keeper(env))
        return cls(read, changer, mode, forgets, _needed(env, changer))

    @property
    def resets_itself(self) -> bool:
        """Whether a new episode begins without a call of `reset`."""
        return self.resets in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)

    @property
    def resets_late(self) -> bool:
        """Whether an episode's first observation comes one step after the previous one ends, Gymnasium's default."""
        return self.resets == AutoresetMode.NEXT_STEP

    @property
    def waits_for_reset(self) -> bool:
        """Whether it is a vector environment that leaves resets to the caller."""
        return self.resets == AutoresetMode.DISABLED


def _needed(env: Any, changer: str | None) -> str:
    """What an environment like this one needs, so that its rewards can be read."""
    is_vector = isinstance(env, gym.vector.VectorEnv)
    if changer and is_vector and isinstance(env.unwrapped, gym.vector.AsyncVectorEnv):
        return f"without {changer}"  # no Monitor can be read in its processes
    if changer:
        return f"wrapped in Monitor inside {changer}"
    return f"wrapped in {VECTOR_RECORDER if is_vector else 'Monitor'}"


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
    if all(map(is_monitor, keepers)):
        return lambda: _summed([one.rewards for one in keepers])
    if None in keepers or any(map(is_monitor, keepers)):
        return None
    return lambda: np.concatenate([_so_far(one) for one in keepers])


def _keeper_reader(env: Any) -> Reader | None:
    keeper = _keeper(env)
    if keeper is None:
        inside = next((layer.envs for layer in layers(env) if isinstance(layer, gym.vector.SyncVectorEnv)), None)
        return None if inside is None else _each_reader(inside)
    _require_counted(env, keeper)
    return (lambda: _summed([keeper.rewards])) if is_monitor(keeper) else (lambda: _so_far(keeper))


def _require_counted(env: Any, keeper: Any) -> None:
    """Raise ConfigError if an old gymnasium's wrapper of this environment loses rewards."""
    if not _counts_outside(keeper) or autoreset_mode(env) != AutoresetMode.SAME_STEP:
        return
    if tuple(map(int, gym.__version__.split(".")[:2])) < COUNTS_SAME_STEP:
        raise ConfigError(
            f"gymnasium {gym.__version__} counts wrong in RecordEpisodeStatistics around a vector environment with "
            "AutoresetMode.SAME_STEP. Install gymnasium 1.4 or later, or wrap each environment inside."
        )


def _keeper(env: Any) -> Any:
    """The innermost wrapper that records rewards; None if there is none or a wrapper inside of it changes rewards."""
    keepers = [layer for layer in layers(env) if is_monitor(layer) or keeps_returns(layer)]
    return keepers[-1] if keepers and reward_changer(keepers[-1]) is None else None


def _counts_outside(keeper: Any) -> bool:
    """Whether it is gymnasium's wrapper around a vector environment."""
    return isinstance(keeper, gym.wrappers.vector.RecordEpisodeStatistics)
