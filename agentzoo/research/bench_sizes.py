"""Spaces and episodes of Hopper's sizes for benchmarks; the values do not affect the timing."""

from __future__ import annotations

import numpy as np

from agentzoo.data.episodes import Episodes
from agentzoo.types import ActionSpec, IOSpec, ObservationSpec

OBS, ACTIONS = 11, 3


def io_of(context: int, obs: int = OBS, actions: int = ACTIONS) -> IOSpec:
    """Windows of `context` steps with so many numbers in an observation and in an action."""
    return IOSpec(observation=_observation(obs), action=_action(actions), context=context)


def random_episodes(count: int, length: int) -> Episodes:
    """Episodes of one length."""
    rng = np.random.default_rng(0)
    steps = count * length
    return Episodes(
        dataset="random",
        observation=_observation(OBS),
        action=_action(ACTIONS),
        observations=rng.standard_normal((steps, OBS), dtype=np.float32),
        actions=rng.uniform(-1, 1, (steps, ACTIONS)).astype(np.float32),
        rewards=rng.uniform(0, 3, steps),
        lengths=np.full(count, length),
        terminated=np.ones(count, dtype=bool),
    )


def _observation(size: int) -> ObservationSpec:
    return ObservationSpec(size=size, shapes=((size,),))


def _action(size: int) -> ActionSpec:
    return ActionSpec(kind="box", size=size, low=(-1.0,) * size, high=(1.0,) * size)
