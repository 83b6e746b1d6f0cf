"""Episodes written by hand, episodes of one step, and a callback that stops a run."""

from __future__ import annotations

import numpy as np

from agentzoo.data.episodes import Episodes
from agentzoo.data.making.collect import Rollout, only_last
from agentzoo.types import ActionSpec, ObservationSpec


def episodes_of(*rewards: list[float]) -> Episodes:
    """Observations are the step's index in the dataset, so that a window tells where it is from."""
    lengths = np.array([len(r) for r in rewards])
    steps = int(lengths.sum())
    return Episodes(
        dataset="hand",
        observation=ObservationSpec(size=1, shapes=((1,),)),
        action=ActionSpec(kind="discrete", size=3, dtype="int64"),
        observations=np.arange(1.0, steps + 1, dtype=np.float32)[:, None],
        actions=np.arange(steps) % 3,
        rewards=np.concatenate([np.asarray(r, dtype=np.float64) for r in rewards]),
        lengths=lengths,
        terminated=np.ones(len(rewards), dtype=bool),
    )


HOPPER = "zoo/hopper/medium-v0"


def one_step(reward: float = 1.0) -> Rollout:
    return Rollout(
        0, np.zeros((2, 11)), np.zeros((1, 3), np.float32), np.array([reward]), only_last(1, True), only_last(1, False)
    )


class StopRun(Exception):
    """Thrown out of a callback, as a user who presses Ctrl-C."""


def stop(_: object) -> None:
    raise StopRun
