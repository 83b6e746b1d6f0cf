"""Data whose best loss is known on paper."""

from __future__ import annotations

import numpy as np

from agentzoo.data.episodes import Episodes
from agentzoo.types import ActionSpec, ObservationSpec


def coin_episodes() -> Episodes:
    """One-step episodes: the return is +1 or -1, the action is its sign times the observation's sign."""
    rng = np.random.default_rng(0)
    obs = rng.choice([-1.0, 1.0], (400, 1)).astype(np.float32)
    rewards = rng.choice([-1.0, 1.0], 400)
    return Episodes(
        dataset="coins",
        observation=ObservationSpec(size=1, shapes=((1,),)),
        action=ActionSpec(kind="box", size=1, low=(-2.0,), high=(2.0,)),
        observations=obs,
        actions=(obs[:, 0] * rewards)[:, None].astype(np.float32),
        rewards=rewards,
        lengths=np.ones(400, dtype=int),
        terminated=np.ones(400, dtype=bool),
    )
