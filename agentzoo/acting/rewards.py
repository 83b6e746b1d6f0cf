"""The reward of the last step: the caller's, the observation's or the bound environment's (SB3 code passes none).

When the first observation of an episode comes, and how `begun` finds it:

- SB3's VecEnvs reset without being asked: with the step that ends the previous episode. A loop that passes no
  `episode_start` does not mark it, but the record shows it.
- A Gymnasium VectorEnv with next-step autoreset, its default: one step after the previous episode ends. So
  `terminations | truncations` of the last step mark the row one step too early; the record shows the right one. Without
  a record such a mark counts as it is.
- `AutoresetMode.DISABLED`: when the caller resets. The record may have lost running episodes and is not read for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agentzoo import text
from agentzoo.acting.observing import as_numbers
from agentzoo.acting.reward_records import STEPS, BoundEnv, Flags, Record, growth
from agentzoo.errors import ObservationError, ShapeError

Warn = Callable[[str, str], None]  # (kind, message); each kind warns once
UNMARKED = (
    "predict got {} observations with their rewards but no episode_start: a row that begins a new episode keeps the "
    "past of the one that ended. Pass episode_start, (N,), True where an observation is the first of an episode."
)
LOST = (
    "RecordEpisodeStatistics around this vector environment forgets the running episodes when others are reset. Each "
    "of them loses one reward, so its return-to-go is too large from now on. Put the wrapper around each environment "
    "inside instead, or pass reward=."
)


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
        matters: whether the network reads returns; if not, there are no warnings.
    """

    def __init__(self, warn: Warn, matters: bool = True) -> None:
        self.source: str | None = None  # of the last rewards: "reward", "observation", "env"; "constant" without any
        self._bound = BoundEnv()
        self._closed = False  # whether the bound environment has been closed since
        self._lost = False  # whether its record has lost a running episode since
        self._warn = warn if matters else _ignore

    def bind(self, env: Any) -> None:
        """Read rewards from this environment from now on, if a wrapper records them; None unbinds."""
        self._bound, self._closed, self._lost = BoundEnv.of(env), False, False

    def recorded(self, needed: bool, marked: bool) -> Record | None:
        """What the bound environment records now; None if it has no record.

        Args:
            needed: False if the caller passes rewards or the network needs none. Then the record is only read if the
                caller is likely to be wrong about where episodes begin.
            marked: whether the caller passes `episode_start`.
        """
        bound = self._bound
        if bound.read is None or not (needed or bound.resets_late or (bound.resets_itself and not marked)):
            return None
        try:
            return bound.read()
        except (OSError, EOFError):  # the processes of a SubprocVecEnv have ended
            self._bound, self._closed = replace(bound, read=None), True
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
        if self._bound.waits_for_reset or recorded is None or len(recorded) != len(before):
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
            rewards, played = growth(recorded, previous.recorded)
            played |= starts
            self.source = "env" if played.all() else "constant"
            self._lost |= self._bound.forgets and _lost(recorded, previous, starts)
            if not played.all():
                kind, said = ("lost", LOST) if self._lost else ("bound", _unlike(recorded, previous, played))
                self._warn(kind, said)
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
        unchanged = f" unchanged by {self._bound.changer}" if self._bound.changer else ""
        missing = "the bound environment is closed" if self._closed else f"no reward{unchanged} reaches predict"
        return (
            f"{missing}, so the return-to-go stays at the target. Bind an environment {self._bound.needed} "
            "(Agent.from_pretrained(..., env=env) or agent.set_env(env)) or pass reward=."
        )


def _ignore(_kind: str, _message: str) -> None:
    """Give no warning."""


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


def _unlike(recorded: Record, previous: Remembered, played: Flags) -> str:
    """How the bound environment differs from the one being played, and what to do."""
    if len(recorded) != len(played):
        differs = f"holds {text.counted(len(recorded), 'episode')}, the observation {len(played)}"
    else:
        row = int(np.argmin(played))
        now, before = int(recorded[row, STEPS]), int(previous.recorded[row, STEPS])
        still = "still " if now == before else ""
        differs = f"is {still}at step {now} of its episode, the agent at step {previous.timesteps[row] + 1}"
    return (
        f"the bound environment {differs}: it is not the environment being played, or its episodes have a single step; "
        "the return-to-go does not change. Call agent.set_env(...) with the environment that you step, and pass "
        "episode_start where an episode begins."
    )
