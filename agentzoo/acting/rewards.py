"""The reward of the last step, read from the bound environment if the caller does not pass it (SB3 code does not).

SB3's `Monitor` keeps the raw rewards of the running episode; gymnasium's `RecordEpisodeStatistics` and SB3's
`VecMonitor` keep its return so far. The innermost of these wrappers is read. A wrapper outside of one that changes
rewards (`VecNormalize`, `NormalizeReward`) is not read, since it records changed rewards. All three count the steps of
the episode. The reward of the newest step is the growth of the recorded return since the previous call: of one recorded
step, or of several if a wrapper repeats actions (SB3's `make_atari_env`). A record without a new step shows that a
different environment is being played, and a record of fewer steps that a new episode has begun. Where episodes have a
single step, the record cannot tell, and the caller must pass `episode_start`.

When the first observation of an episode comes, and how `begun` finds it:

- SB3's VecEnvs reset without being asked: with the step that ends the previous episode. A loop that passes no
  `episode_start` does not mark it, but the record shows it.
- A Gymnasium VectorEnv with next-step autoreset, its default: one step after the previous episode ends. So
  `terminations | truncations` of the last step mark the row one step too early; the record shows the right one. Without
  a record such a mark counts as it is.
- `AutoresetMode.DISABLED`: when the caller resets. The record may have lost running episodes and is not read for it.

The wrappers may wrap each environment of a DummyVecEnv or SyncVectorEnv, or the vector environment. Around a vector
environment, gymnasium's `RecordEpisodeStatistics` loses running episodes if only some environments are reset
(`AutoresetMode.DISABLED`), and before gymnasium 1.4 also with `AutoresetMode.SAME_STEP`, which is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo import text
from agentzoo.acting.observing import as_numbers
from agentzoo.envs.wrapping import (
    ScaledMonitor,
    all_wrapped,
    any_wrapped,
    layers,
    resets_itself,
    resets_late,
    reward_changer,
)
from agentzoo.errors import ConfigError, ObservationError, ShapeError

Warn = Callable[[str, str], None]  # (kind, message); each kind warns once
Record = NDArray[np.float64]  # (N, 2) steps and return so far of the running episodes, as the environment records them
Reader = Callable[[], Record]
Flags = NDArray[np.bool_]  # (N,)
STEPS, RETURN = 0, 1
UNMARKED = (
    "predict got {} observations with their rewards but no episode_start: a row that begins a new episode keeps the "
    "past of the one that ended. Pass episode_start, (N,), True where an observation is the first of an episode."
)
COUNTS_SAME_STEP = (1, 4)  # the first gymnasium whose vector RecordEpisodeStatistics counts same-step resets


class Remembered(Protocol):
    """The parts of a state of N environments that returns-to-go depend on."""

    @property
    def targets(self) -> NDArray[np.float64]:
        """(N,) target returns, raw units."""

    @property
    def timesteps(self) -> NDArray[np.int64]:
        """(N,) 0-based environment step."""

    @property
    def recorded(self) -> Record:
        """(N, 2) the bound environment's record when the newest step began."""

    def newest_return_to_go(self) -> NDArray[np.float64]:
        """(N,) raw units."""


class Rewards:
    """Finds the reward of the newest step and keeps the returns-to-go.

    Args:
        matters: whether the network reads returns; if not, nothing is warned of.
    """

    def __init__(self, warn: Warn, matters: bool = True) -> None:
        self.source: str | None = None  # of the last rewards: "reward", "observation", "env"; "constant" without any
        self._read: Reader | None = None
        self._closed = False  # whether the bound environment has been closed since
        self._changer: str | None = None  # the wrapper that changes rewards, if it prevents reading them
        self._is_vector = False  # whether a Gymnasium VectorEnv is bound
        self._is_async = False  # whether it steps its environments in other processes, where no Monitor can be read
        self._resets_late = False  # whether a VectorEnv is bound that returns a first observation one step late
        self._resets_itself = True  # unless a VectorEnv is bound that leaves resets to the caller
        self._forgets = False  # whether its record loses running episodes at a partial reset
        self._lost = False  # whether it has lost one since it was bound
        self._resets_unasked = False  # whether a vector environment of either kind is bound that resets itself
        self._warn = warn if matters else _ignore

    def bind(self, env: Any) -> None:
        """Read rewards from this environment from now on, if a wrapper records them; None unbinds."""
        self._read, self._closed = reader_of(env), False
        self._changer = reward_changer(env) if self._read is None else None
        is_vector = self._is_vector = isinstance(env, gym.vector.VectorEnv)
        self._is_async = is_vector and isinstance(env.unwrapped, gym.vector.AsyncVectorEnv)
        self._resets_late = is_vector and resets_late(env)
        self._resets_itself = not is_vector or resets_itself(env)
        outer = is_vector and isinstance(_keeper(env), gym.wrappers.vector.RecordEpisodeStatistics)
        self._forgets, self._lost = outer and not self._resets_itself, False
        self._resets_unasked = _is_vec_env(env) or (is_vector and self._resets_itself)

    def recorded(self, needed: bool, marked: bool) -> Record | None:
        """What the bound environment records now; None if it has no record.

        Args:
            needed: False if the caller passes rewards or the network needs none. Then the record is only read if the
                caller is likely to be wrong about where episodes begin.
            marked: whether the caller passes `episode_start`.
        """
        reads = needed or self._resets_late or (self._resets_unasked and not marked)
        if self._read is None or not reads:
            return None
        try:
            return self._read()
        except (OSError, EOFError):  # the processes of a SubprocVecEnv have ended
            self._read, self._closed = None, True
            return None

    def begun(self, recorded: Record | None, previous: Remembered, only_late: bool) -> Flags:
        """(N,) rows that hold the first observation of an episode, as far as the bound environment shows it.

        Args:
            recorded: what `recorded` returned.
            previous: the state of the previous step.
            only_late: only rows whose previous step was the first of an episode. A caller who passes rewards and
                `episode_start` may play another environment than the bound one.
        """
        before = previous.recorded[:, STEPS]
        if not self._resets_itself or recorded is None or len(recorded) != len(before):
            return np.zeros(len(before), dtype=bool)
        # not only 0, since a wrapper may take steps while it resets; an environment that is never stepped stays at 0
        found = np.asarray(recorded[:, STEPS] < before)
        return found & (previous.timesteps == 0) if only_late else found

    def returns_to_go(
        self, previous: Remembered, recorded: Record | None, starts: Flags, passed: Any, seen: Any, marked: bool
    ) -> NDArray[np.float64]:
        """(N,) returns-to-go of this step: target minus all earlier rewards.

        Rewards are those passed, else those in the observation, else those of the bound environment, else 0.

        Args:
            previous: the state of the previous step.
            recorded: what `recorded` returned.
            starts: (N,) first steps. Their reward belongs to the previous episode, so it counts as 0.
            passed, seen: (N,), a number, or None; `seen` is from the observation.
            marked: as in `recorded`.

        Raises:
            ShapeError: a different number of rewards, or not numbers. ObservationError: NaN or infinity.
        """
        newest = np.where(starts, previous.targets, previous.newest_return_to_go())
        return np.asarray(newest - self._pick(previous, recorded, starts, passed, seen, marked))

    def _pick(
        self, previous: Remembered, recorded: Record | None, starts: Flags, passed: Any, seen: Any, marked: bool
    ) -> NDArray[np.float64]:
        """(N,) rewards since the previous step; as `returns_to_go`."""
        n = len(starts)
        given = seen if passed is None else passed
        if given is not None:
            self.source = "observation" if passed is None else "reward"
            rewards = as_numbers(given, "reward").astype(np.float64).reshape(-1)
            if len(rewards) != n:
                raise ShapeError(
                    f"reward has {text.counted(len(rewards), 'number')}, the observation has {text.counted(n, 'row')}."
                )
            if n > 1 and not (marked or recorded is not None or starts.any()):
                self._warn("starts", UNMARKED.format(n))
        elif recorded is not None:
            rewards, played = _growth(recorded, previous.recorded)
            played = played | starts
            self.source = "env" if played.all() else "constant"
            self._lost |= self._forgets and _lost(recorded, previous, starts)
            if not played.all() and self._lost:
                self._warn(
                    "lost",
                    "RecordEpisodeStatistics around this vector environment forgets the running episodes when others "
                    "are reset. Each of them loses one reward, so its return-to-go is too large from now on. Put the "
                    "wrapper around each environment inside instead, or pass reward=.",
                )
            elif not played.all():
                self._warn(
                    "bound",
                    f"the bound environment {_unlike(recorded, previous, played)}: it is not the environment being "
                    "played, or its episodes have a single step; the return-to-go does not change. Call "
                    "agent.set_env(...) with the environment that you step, and pass episode_start where an episode "
                    "begins.",
                )
        else:
            rewards = np.zeros(n)
            self.source = "constant"
            if not starts.all():
                self._warn("closed" if self._closed else "rewards", self._why_constant())
        rewards = np.where(starts, 0.0, rewards)
        if not np.isfinite(rewards).all():
            raise ObservationError(f"reward of environment {int(np.argmin(np.isfinite(rewards)))} is not finite.")
        return rewards

    def _why_constant(self) -> str:
        """Why the return-to-go does not change, and what to do."""
        recorder = "gymnasium.wrappers.vector.RecordEpisodeStatistics" if self._is_vector else "Monitor"
        unchanged, inside = "", ""
        if self._changer is not None:
            unchanged, inside, recorder = f" unchanged by {self._changer}", f" inside {self._changer}", "Monitor"
        missing = "the bound environment is closed" if self._closed else f"no reward{unchanged} reaches predict"
        bind = f"Bind an environment wrapped in {recorder}{inside}"
        if self._changer is not None and self._is_async:
            bind = f"Bind an environment without {self._changer}"
        return (
            f"{missing}, so the return-to-go stays at the target. {bind} (Agent.from_pretrained(..., env=env) or "
            "agent.set_env(env)) or pass reward=."
        )


def _ignore(_kind: str, _message: str) -> None:
    """Warn of nothing."""


def advanced(previous: Remembered, recorded: Record | None, starts: Flags, rtg: NDArray[np.float64]) -> Record:
    """(N, 2) the record to keep in the state: `recorded`, or what it is likely to be if it was not read."""
    if recorded is not None and len(recorded) == len(starts):
        return recorded
    step = np.stack([np.ones(len(starts)), previous.newest_return_to_go() - rtg], axis=1)
    return np.where(starts[:, None], 0.0, previous.recorded + step)


def _lost(recorded: Record, previous: Remembered, starts: Flags) -> bool:
    """Whether the record of an episode that runs on has been cleared."""
    same = len(recorded) == len(starts)
    return same and bool((recorded[:, STEPS] < previous.recorded[:, STEPS])[~starts].any())


def _growth(recorded: Record, before: Record) -> tuple[NDArray[np.float64], Flags]:
    """(N,) rewards since the record `before`, 0 where no step was recorded since, and (N,) whether one was."""
    n = len(before)
    if len(recorded) != n:
        return np.zeros(n), np.zeros(n, dtype=bool)
    played = recorded[:, STEPS] > before[:, STEPS]
    return np.where(played, recorded[:, RETURN] - before[:, RETURN], 0.0), played


def _unlike(recorded: Record, previous: Remembered, played: Flags) -> str:
    if len(recorded) != len(played):
        return f"holds {text.counted(len(recorded), 'episode')}, the observation {len(played)}"
    row = int(np.argmin(played))
    now, before = int(recorded[row, STEPS]), int(previous.recorded[row, STEPS])
    still = "still " if now == before else ""
    return f"is {still}at step {now} of its episode, the agent at step {previous.timesteps[row] + 1}"


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
