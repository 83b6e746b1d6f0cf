"""A dataset as flat arrays, episodes one after the other, from which windows are sampled."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentzoo.data.frames import Frames
from agentzoo.data.normalize import observation_statistics
from agentzoo.errors import BEYOND_FLOAT32, DataError
from agentzoo.types import WHITE, ActionSpec, FloatArray, IntArray, ObservationSpec

LOOKED_AT = 1_000  # images, evenly spaced over the dataset
MAX_SYMBOLS = 32  # an image without a larger number holds symbols instead of brightness
ROUNDING = 1e-5  # relative to a bound: how far outside of it an action may lie


def returns_to_go(rewards: FloatArray) -> NDArray[np.float64]:
    """Reward still to come at each step of one episode, undiscounted, own step included.

    Args:
        rewards: (L,) env rewards in raw units, for the whole episode rather than a window.

    Returns:
        (L,) in the same units; the first entry is the episode's return.

    Raises:
        DataError: `rewards` is empty or not one-dimensional, or holds a NaN or an infinity.

    Source: arXiv:2106.01345, section 3, R-hat_t.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.ndim != 1 or len(rewards) == 0:
        raise DataError(f"rewards of one episode have shape (L,) with L >= 1, got {rewards.shape}.")
    if not np.isfinite(rewards).all():
        raise DataError(f"rewards hold a non-finite value at step {int(np.argmin(np.isfinite(rewards)))}.")
    return np.ascontiguousarray(np.cumsum(rewards[::-1])[::-1], dtype=np.float64)


def slack(bound: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """How far an action may lie beyond `bound` because of rounding."""
    return np.asarray(ROUNDING * np.maximum(1.0, np.abs(bound.astype(np.float64))))


@dataclass(frozen=True)
class Episodes:
    """T steps of E episodes.

    observations: (T, S) float32, or `Frames` of images. actions: (T, A) float32, or (T,) int64 counted from 0.
    rewards: (T,) float64. lengths: (E,) int64, in the order they lie in the arrays. terminated: (E,) bool, True
    where the environment ended the episode itself (else it was truncated).

    Raises:
        DataError: no episode, an empty one, arrays of different length, a number that is not finite, or an action
            outside its space.
    """

    dataset: str
    observation: ObservationSpec
    action: ActionSpec
    observations: Any
    actions: NDArray[np.generic]
    rewards: FloatArray
    lengths: IntArray
    terminated: NDArray[np.bool_]

    def __post_init__(self) -> None:
        steps = int(self.lengths.sum()) if len(self.lengths) else 0
        if steps == 0 or (self.lengths < 1).any():
            raise DataError(
                f"dataset {self.dataset!r} has an empty episode or none: {len(self.lengths)} episodes, {steps} steps."
            )
        for name in ("observations", "actions", "rewards"):
            values = getattr(self, name)
            if len(values) != steps:
                raise DataError(f"dataset {self.dataset!r}: {name} have {len(values)} rows, the episodes {steps}.")
            if not isinstance(values, Frames) and not np.isfinite(values).all():
                bad = int(np.argmin(np.isfinite(values.reshape(steps, -1)).all(axis=1)))
                beyond = f" ({BEYOND_FLOAT32})" if values.dtype == np.float32 and np.isinf(values[bad]).any() else ""
                raise DataError(
                    f"dataset {self.dataset!r}: {name} are not finite at {self._place(bad)}{beyond}. Write "
                    "the dataset again without this episode, or with finite numbers."
                )
        self._require_actions_in_bounds()

    def _require_actions_in_bounds(self) -> None:
        if self.action.low is not None and self.action.high is not None:
            low, high = (np.asarray(bound, dtype=np.float64) for bound in (self.action.low, self.action.high))
            taken = self.actions.astype(np.float64)
            fits = ((taken >= low - slack(low)) & (taken <= high + slack(high))).all(axis=1)
            if not fits.all():
                bad = int(np.argmin(fits))
                raise DataError(
                    f"dataset {self.dataset!r}: action {self.actions[bad]} at {self._place(bad)} lies outside its "
                    f"space, from {low} to {high}. Write the dataset again with the actions that the environment "
                    "received, or with a space that contains them."
                )
        if self.action.kind == "discrete":
            taken = self.actions.astype(np.int64, copy=False)
            fits = (taken >= 0) & (taken < self.action.size)
            if not fits.all():
                bad, start = int(np.argmin(fits)), self.action.start
                raise DataError(
                    f"dataset {self.dataset!r}: action {taken[bad] + start} at {self._place(bad)} is not in "
                    f"{start} to {start + self.action.size - 1}."
                )

    def _place(self, step: int) -> str:
        """A step of the arrays in words: its place in its episode. Both count from 0."""
        episode = int(np.searchsorted(self.starts, step, side="right")) - 1
        return f"step {step - self.starts[episode]} of episode {episode}"

    @property
    def starts(self) -> IntArray:
        """(E,) index of each episode's first step."""
        return np.concatenate(([0], np.cumsum(self.lengths)[:-1])).astype(np.int64)

    @property
    def returns(self) -> NDArray[np.float64]:
        """(E,) undiscounted return of each episode."""
        return np.add.reduceat(self.rewards, self.starts)

    def __len__(self) -> int:
        return len(self.rewards)

    def timesteps(self) -> NDArray[np.int64]:
        """(T,) 0-based step within the episode."""
        return np.arange(len(self), dtype=np.int64) - np.repeat(self.starts, self.lengths)

    def steps_left(self) -> NDArray[np.int64]:
        """(T,) steps from each step to the end of its episode, own step included."""
        return np.repeat(self.lengths, self.lengths).astype(np.int64) - self.timesteps()

    def scaled_returns_to_go(self, scale: float) -> NDArray[np.float32]:
        """(T,) `returns_to_go` of each episode, divided by `scale`."""
        found = np.concatenate([returns_to_go(rewards) for rewards in self.split(self.rewards)])
        return (found / scale).astype(np.float32)

    def statistics(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and std of the observations, each (S,).

        For images they are 0 and 255, (C, 1, 1), so that pixels lie in [0, 1]. If all numbers are small, they are
        symbols instead of brightness, as in MiniGrid: then std is the largest number of each channel.
        """
        if self.observation.image is None:
            return observation_statistics(self.observations)
        every = np.unique(np.linspace(0, len(self) - 1, LOOKED_AT).astype(np.int64))
        largest = np.asarray(self.observations[every]).max(axis=(0, 2, 3)).astype(np.float32)
        std = np.full_like(largest, WHITE) if largest.max() > MAX_SYMBOLS else np.maximum(largest, 1.0)
        return np.zeros((len(std), 1, 1), dtype=np.float32), std[:, None, None]

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """`values` (T, ...), split at the episode boundaries."""
        return np.split(values, self.starts[1:])

    def best(self, fraction: float) -> Episodes:
        """The episodes of highest return, as many as fit in `fraction` of all steps, at least one."""
        if fraction >= 1.0:
            return self
        order = np.argsort(-self.returns, kind="stable")
        most = fraction * len(self) * (1.0 + 1e-12)  # 0.29 * 100 is a little less than 29
        kept = int(np.searchsorted(np.cumsum(self.lengths[order]), most, side="right"))
        return self._chosen(np.sort(order[: max(kept, 1)]))

    def held_out(self, share: float) -> tuple[Episodes, Episodes]:
        """Split into (the rest, `share` of the episodes): the same split every time, at least one episode in each.

        Raises:
            DataError: there is only one episode.
        """
        count = len(self.lengths)
        if count < 2:
            raise DataError(
                f"of dataset {self.dataset!r} one episode is used; none can be held out. Use --set data.held_out=0."
            )
        held = min(max(round(share * count), 1), count - 1)
        order = np.random.default_rng(0).permutation(count)  # not the run's seed: all runs hold out the same episodes
        return self._chosen(np.sort(order[held:])), self._chosen(np.sort(order[:held]))

    def sha256(self) -> str:
        """Hex digest of all arrays."""
        digest = hashlib.sha256()
        parts = [self.observations, self.actions, self.rewards, self.lengths, self.terminated]
        if isinstance(self.observations, Frames):
            self.observations.update(digest)
            del parts[0]
        for values in parts:
            digest.update(f"{values.dtype.str} {values.shape} ".encode())
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()

    def at_least(self, steps: int) -> Episodes:
        """The episodes of `steps` steps or more.

        Raises:
            DataError: no episode is that long.
        """
        chosen = np.flatnonzero(self.lengths >= steps)
        if len(chosen) == 0:
            raise DataError(
                f"dataset {self.dataset!r} has no episode of {steps} steps, its longest has {self.lengths.max()}. "
                "Lower data.context."
            )
        return self if len(chosen) == len(self.lengths) else self._chosen(chosen)

    def _chosen(self, chosen: IntArray) -> Episodes:
        spans = zip(self.starts[chosen], self.lengths[chosen], strict=True)
        steps = np.concatenate([np.arange(start, start + length) for start, length in spans])
        seen = self.observations
        return replace(
            self,
            observations=seen.take(steps) if isinstance(seen, Frames) else seen[steps],
            actions=self.actions[steps],
            rewards=self.rewards[steps],
            lengths=self.lengths[chosen],
            terminated=self.terminated[chosen],
        )

    def delayed(self) -> Episodes:
        """A copy whose rewards all arrive on the last step of their episode."""
        rewards = np.zeros_like(self.rewards)
        rewards[self.starts + self.lengths - 1] = self.returns
        return replace(self, rewards=rewards)
