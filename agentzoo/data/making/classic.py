"""Controllers for CartPole and Pendulum, of a different skill in each episode.

Each episode draws its share of random actions from U(0, 1), so returns range from those of a random policy to those of
the controller. This gives, in a few seconds, data in which the return-to-go tells how good the next action is.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

CART_WEIGHTS = np.array([0.1, 0.3, 3.0, 1.0])  # of position, velocity, angle and angular velocity
TORQUE = 2.0  # N m, Pendulum's bound
GRAVITY = 5.0  # g / 2: potential energy at the top of a rod of 1 m and 1 kg
INERTIA = 1.0 / 3.0  # of that rod around its end
UPRIGHT = 0.9  # cosine of the angle from which the pendulum is held instead of swung up
STIFFNESS, DAMPING = 10.0, 2.0


def push(obs: NDArray[np.floating[Any]]) -> int:
    """The push for one CartPole observation (4,): 0 left, 1 right, towards where the pole falls."""
    return int(CART_WEIGHTS @ obs > 0.0)


def torque(obs: NDArray[np.floating[Any]]) -> float:
    """The torque in N m for one Pendulum observation, cosine and sine of the angle from the top and its velocity.

    Far from the top it adds or removes energy until the energy equals that of rest upright. Near the top it is a
    proportional-derivative controller.
    """
    cosine, sine, velocity = (float(value) for value in obs)
    if cosine > UPRIGHT:
        wanted = -STIFFNESS * np.arctan2(sine, cosine) - DAMPING * velocity
    else:
        energy = 0.5 * INERTIA * velocity**2 + GRAVITY * (cosine - 1.0)  # 0: rest upright
        wanted = -TORQUE * np.sign(energy) * (np.sign(velocity) or 1.0)
    return float(np.clip(wanted, -TORQUE, TORQUE))


class CartPoleController:
    """Pushes for one CartPole episode, a share of them random."""

    def __init__(self, env: gym.Env[Any, Any], rng: np.random.Generator) -> None:
        self._rng, self._random_share = rng, rng.uniform()

    def __call__(self, obs: Any) -> NDArray[np.int64]:
        """The next push, 0 or 1."""
        random = self._rng.uniform() < self._random_share
        return np.asarray(self._rng.integers(2) if random else push(obs), dtype=np.int64)


class PendulumController:
    """Torques for one Pendulum episode, a share of them random."""

    def __init__(self, env: gym.Env[Any, Any], rng: np.random.Generator) -> None:
        self._rng, self._random_share = rng, rng.uniform()

    def __call__(self, obs: Any) -> NDArray[np.float32]:
        """The next torque, (1,)."""
        random = self._rng.uniform() < self._random_share
        return np.array([self._rng.uniform(-TORQUE, TORQUE) if random else torque(obs)], dtype=np.float32)
