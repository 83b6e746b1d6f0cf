"""CartPole and Pendulum data: what the controllers do, by hand, and what their episodes hold."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest

from agentzoo.data.making.catalogue import DATASETS
from agentzoo.data.making.classic import CartPoleController, PendulumController, push, torque
from agentzoo.data.making.collect import Rollout, collect
from agentzoo.data.making.dataset_recipe import BuildOptions
from agentzoo.data.making.runners import ControllerRunner


@pytest.mark.parametrize(
    ("obs", "expected"),
    [
        ((0.0, 0.0, 0.1, 0.0), 1),  # falls to the right
        ((0.0, 0.0, -0.1, 0.0), 0),
        ((1.0, 0.0, -0.02, 0.0), 1),  # 0.1 - 0.06
        ((0.0, -1.0, 0.05, 0.1), 0),  # -0.3 + 0.15 + 0.1
    ],
)
def test_the_cart_is_pushed_towards_where_the_pole_falls(obs: tuple[float, ...], expected: int) -> None:
    assert push(np.array(obs)) == expected


@pytest.mark.parametrize(
    ("angle", "velocity", "expected"),
    [
        (0.1, 0.25, -1.5),  # held: -10 * 0.1 - 2 * 0.25
        (-0.4, 0.0, 2.0),  # held, and cut off at the bound
        (math.pi, 0.0, 2.0),  # hangs at rest: energy -10, so it is set in motion
        (math.pi, -1.0, -2.0),  # 1/6 - 10: pushed the way it moves
        (math.pi, 8.0, -2.0),  # 64/6 - 10 > 0: too fast, slowed down
    ],
)
def test_the_pendulum_is_swung_up_by_its_energy_and_then_held(angle: float, velocity: float, expected: float) -> None:
    assert torque(np.array([math.cos(angle), math.sin(angle), velocity])) == pytest.approx(expected)


class _Fixed(np.random.Generator):
    """Draws the same share of random actions in every episode."""

    share = 0.0

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))
        self._first = True

    def uniform(self, *bounds: float) -> float:  # type: ignore[override]
        first, self._first = self._first, False
        return self.share if first else super().uniform(*bounds)


def test_without_random_actions_the_controllers_solve_both() -> None:
    pole, pendulum = gym.make("CartPole-v1"), gym.make("Pendulum-v1")
    for env, controller, least in ((pole, CartPoleController, 500.0), (pendulum, PendulumController, -400.0)):
        for seed in range(3):
            obs, _ = env.reset(seed=seed)
            act, total, over = controller(env, _Fixed()), 0.0, False
            while not over:
                obs, reward, terminated, truncated, _ = env.step(act(obs))
                total, over = total + float(reward), terminated or truncated
            assert total >= least, (env.spec, seed)


def test_episodes_of_all_skills_are_there_and_can_be_played_again() -> None:
    for name, low, high in (("cartpole/mixed", 40.0, 400.0), ("pendulum/mixed", -900.0, -200.0)):
        env_id = DATASETS[name].env_id
        kind = CartPoleController if name.startswith("cartpole") else PendulumController
        episodes = list(collect(ControllerRunner(env_id, kind), 6_000, seed=0, workers=1))
        returns = [episode.rewards.sum() for episode in episodes]
        assert min(returns) < low < high < max(returns)
        env = gym.make(env_id)
        _played_again(env, episodes[0])
        _played_again(env, episodes[-1])
        first = next(iter(DATASETS[name].episodes(BuildOptions())))
        assert np.array_equal(first.observations, episodes[0].observations)  # the recipe is this runner


def _played_again(env: gym.Env[object, object], episode: Rollout) -> None:
    obs, _ = env.reset(seed=episode.seed)
    assert np.array_equal(obs, episode.observations[0])
    for step, action in enumerate(episode.actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        assert np.array_equal(obs, episode.observations[step + 1])
        assert reward == episode.rewards[step]
    assert terminated == episode.terminations[-1]
    assert truncated == episode.truncations[-1]
    assert terminated or truncated
