"""The reward of the last step, read from the bound environment if the caller does not pass it (SB3 code does not).

SB3's `Monitor` keeps the raw rewards of the running episode; gymnasium's `RecordEpisodeStatistics` and SB3's
`VecMonitor` keep its return so far. The innermost of these wrappers is read. A wrapper outside of one that changes
rewards (`VecNormalize`, `NormalizeReward`) is not read, since it records changed rewards. All three count the steps of
the episode, which shows whether the agent is playing that episode. They may wrap each environment of a
DummyVecEnv or SyncVectorEnv, or the vector environment. Around a vector environment, gymnasium's
`RecordEpisodeStatistics` loses running episodes if only some environments are reset (`AutoresetMode.DISABLED`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo import text
from agentzoo.acting.observing import as_numbers
from agentzoo.envs.wrapping import ScaledMonitor, layers, resets_late, reward_changer
from agentzoo.errors import ObservationError, ShapeError

Warn = Callable[[str, str], None]  # (kind, message); each kind warns once


class Kept(NamedTuple):
    """Records of the wrappers of N environments on the running episodes.

    rewards: (N,) of the newest step, or the return so far if `cumulative`. steps: (N,) steps of the episode so far.
    """

    rewards: NDArray[np.float64]
    steps: NDArray[np.int64]
    cumulative: bool


Reader = Callable[[], Kept]


class Remembered(Protocol):
    """The parts of a state of N environments that returns-to-go depend on."""

    @property
    def targets(self) -> NDArray[np.float64]:
        """(N,) target returns, raw units."""

    @property
    def timesteps(self) -> NDArray[np.int64]:
        """(N,) 0-based environment step."""

    def newest_return_to_go(self) -> NDArray[np.float64]:
        """(N,) raw units."""


class Rewards:
    """Finds the reward of the newest step and keeps the returns-to-go."""

    def __init__(self, warn: Warn) -> None:
        self.source: str | None = None  # of the last rewards: "reward", "observation", "env"; "constant" without any
        self._read: Reader | None = None
        self._changer: str | None = None  # the wrapper that changes rewards, if it prevents reading them
        self._resets_late = False  # whether a VectorEnv is bound that returns a first observation one step late
        self._steps_before: NDArray[np.int64] | None = None  # (N,) steps that such an environment counted at last call
        self._warn = warn

    def bind(self, env: Any) -> None:
        """Read rewards from this environment from now on, if a wrapper records them; None unbinds."""
        self._read = reader_of(env)
        self._changer = reward_changer(env) if self._read is None else None
        self._resets_late = isinstance(env, gym.vector.VectorEnv) and resets_late(env)
        self._steps_before = None

    def begun(self, n: int) -> NDArray[np.bool_]:
        """(N,) rows that hold the first observation of an episode, as far as the bound environment shows it.

        A Gymnasium VectorEnv with next-step autoreset, its default, returns that observation one step after the
        previous episode ends, so `terminations | truncations` of the last step mark the row one step too early.
        """
        found = np.zeros(n, dtype=bool)
        if not self._resets_late or self._read is None:
            return found
        steps = self._read().steps
        before, self._steps_before = self._steps_before, steps.copy()
        if len(steps) != n or before is None or len(before) != n:
            return found
        return np.asarray((steps == 0) & (before > 0))  # an environment that is never stepped stays at 0

    def returns_to_go(
        self, previous: Remembered, starts: NDArray[np.bool_], passed: Any, seen: Any
    ) -> NDArray[np.float64]:
        """(N,) returns-to-go of this step: target minus all earlier rewards.

        Args:
            previous: the state of the previous step.
            starts, passed, seen: as in `pick`.

        Raises:
            As `pick`.
        """
        remembered = previous.newest_return_to_go()
        counted = np.where(starts, 0.0, previous.targets - remembered)
        newest = np.where(starts, previous.targets, remembered)
        return np.asarray(newest - self.pick(passed, seen, counted, previous.timesteps + 1, starts))

    def pick(
        self,
        passed: Any,
        seen: Any,
        counted: NDArray[np.float64],
        steps: NDArray[np.int64],
        starts: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """(N,) rewards: those passed, else those in the observation, else those of the bound environment, else 0.

        Args:
            passed, seen: (N,), a number, or None; `seen` is from the observation.
            counted: (N,) sum of the episode's earlier rewards.
            steps: (N,) steps of the episode, as the agent counts them.
            starts: (N,) first steps. Their reward belongs to the previous episode, so it counts as 0.

        Raises:
            ShapeError: another number of rewards, or not numbers. ObservationError: NaN or infinity.
        """
        n = len(starts)
        given = seen if passed is None else passed
        if given is not None:
            self.source = "observation" if passed is None else "reward"
            rewards = as_numbers(given, "reward").astype(np.float64).reshape(-1)
            if len(rewards) != n:
                raise ShapeError(
                    f"reward has {text.counted(len(rewards), 'number')}, the observation has {text.counted(n, 'row')}."
                )
        elif self._read is not None:
            kept = self._read()
            rewards, played = _of_episodes(kept, counted, steps)
            played = played | starts
            self.source = "env" if played.all() else "constant"
            if not played.all():
                self._warn(
                    "bound",
                    f"the bound environment {_unlike(kept, steps, played)}: it is not the environment being played, "
                    "so the return-to-go does not change. Call agent.set_env(...) with the environment that you step, "
                    "and pass episode_start where an episode begins.",
                )
        else:
            rewards = np.zeros(n)
            self.source = "constant"
            if not starts.all():
                unchanged, inside = "", ""
                if self._changer is not None:
                    unchanged, inside = f" unchanged by {self._changer}", f" inside {self._changer}"
                self._warn(
                    "rewards",
                    f"no reward{unchanged} reaches predict, so the return-to-go stays at the target. Bind an "
                    f"environment wrapped in Monitor{inside} (Agent.from_pretrained(..., env=env) or "
                    "agent.set_env(env)) or pass reward=.",
                )
        rewards = np.where(starts, 0.0, rewards)
        if not np.isfinite(rewards).all():
            raise ObservationError(f"reward of environment {int(np.argmin(np.isfinite(rewards)))} is not finite.")
        return rewards


def _of_episodes(
    kept: Kept, counted: NDArray[np.float64], steps: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(N,) rewards of the newest step, 0 where the environment is not at the agent's step, and (N,) whether it is."""
    n = len(steps)
    if len(kept.steps) != n:
        return np.zeros(n), np.zeros(n, dtype=bool)
    played = kept.steps == steps
    return np.where(played, kept.rewards - counted if kept.cumulative else kept.rewards, 0.0), played


def _unlike(kept: Kept, steps: NDArray[np.int64], played: NDArray[np.bool_]) -> str:
    if len(kept.steps) != len(steps):
        return f"holds {text.counted(len(kept.steps), 'episode')}, the observation {len(steps)}"
    row = int(np.argmin(played))
    return f"is at step {kept.steps[row]} of its episode, the agent at step {steps[row]}"


def reader_of(env: Any) -> Reader | None:
    """A function that reads the rewards of a gymnasium.Env, SB3 VecEnv or gymnasium VectorEnv; None if it has none."""
    if hasattr(env, "env_method") and hasattr(env, "num_envs"):
        return _vec_env_reader(env)
    return _keeper_reader(env) if isinstance(env, gym.Env | gym.vector.VectorEnv) else None


def _newest(rewards: Sequence[Sequence[float]]) -> Kept:
    """Records of Monitors, each of which lists the rewards of its episode."""
    newest = np.array([float(one[-1]) if len(one) else 0.0 for one in rewards])
    return Kept(newest, np.array([len(one) for one in rewards]), cumulative=False)


def _so_far(keeper: Any) -> Kept:
    """Records of a wrapper that keeps returns and lengths of episodes: one of each, or (N,)."""
    returns = np.asarray(keeper.episode_returns, dtype=np.float64).reshape(-1)
    return Kept(returns, np.asarray(keeper.episode_lengths, dtype=np.int64).reshape(-1), cumulative=True)


def _vec_env_reader(env: Any) -> Reader | None:
    if hasattr(env, "envs"):  # a DummyVecEnv, at any depth of wrappers
        return _each_reader(env.envs) or _keeper_reader(env)
    if (
        env.has_attr("rewards")  # checked first, since an AttributeError would end the workers of a SubprocVecEnv
        and not any(env.env_is_wrapped(ScaledMonitor))
        and all(isinstance(rewards, list) for rewards in env.get_attr("rewards"))
    ):
        return lambda: _newest(env.get_attr("rewards"))
    return _keeper_reader(env)


def _each_reader(envs: Sequence[Any]) -> Reader | None:
    """Reads environments that each have their own wrapper."""
    keepers = [_keeper(one) for one in envs]
    if all(map(_is_monitor, keepers)):
        return lambda: _newest([one.rewards for one in keepers])
    if None in keepers or any(map(_is_monitor, keepers)):
        return None

    def joined() -> Kept:
        returns, steps, _ = zip(*map(_so_far, keepers), strict=True)
        return Kept(np.concatenate(returns), np.concatenate(steps), cumulative=True)

    return joined


def _keeper_reader(env: Any) -> Reader | None:
    keeper = _keeper(env)
    if keeper is None:
        inside = next((layer.envs for layer in layers(env) if isinstance(layer, gym.vector.SyncVectorEnv)), None)
        return None if inside is None else _each_reader(inside)
    return (lambda: _newest([keeper.rewards])) if _is_monitor(keeper) else (lambda: _so_far(keeper))


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
