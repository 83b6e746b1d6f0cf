"""The DoorKey grid and its walker, against tables worked out on paper (arXiv:2211.10869, appendix)."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from agentzoo.data.making.doorkey_walker import Walker, action_probabilities, sub_goal
from agentzoo.envs import DOORKEY, make_env
from agentzoo.envs.doorkey import DoorKeyEnv
from agentzoo.envs.doorkey_rules import (
    DOOR,
    GOAL,
    LEFT_CELLS,
    GridState,
    cell_index,
    cell_of,
    path_distance,
    transition,
)
from agentzoo.errors import ConfigError

RIGHT, DOWN, LEFT, UP = range(4)
DISTANCES = {  # by (x, y); the wall column x = 3 has its door at y = 1
    1: {1: 6, 2: 5, 3: 4, 4: 3},
    2: {1: 7, 2: 6, 4: 2},
    3: {1: 8, 2: 7, 4: 1},
    4: {1: 9, 2: 8, 4: 0},
}


@pytest.mark.parametrize("maker", ["gymnasium.make", "stable_baselines3.common.env_util.make_vec_env"])
def test_gymnasium_and_sb3_make_it_without_another_import(maker: str) -> None:
    module, name = maker.rsplit(".", 1)
    code = f'from {module} import {name} as make; print(*make("agentzoo.envs:{DOORKEY}").observation_space)'
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "agent key\n", done.stderr


def test_distances_through_the_door() -> None:
    for y, row in DISTANCES.items():
        for x, distance in row.items():
            assert path_distance((x, y)) == distance, (x, y)


def test_cells_are_counted_column_by_column() -> None:
    assert [cell_index(cell) for cell in ((1, 1), (1, 4), (2, 1), (4, 4))] == [0, 3, 4, 15]
    assert [cell_of(cell_index(cell)) for cell in LEFT_CELLS] == list(LEFT_CELLS)


def test_56_starts_all_of_which_occur() -> None:
    env = make_env(DOORKEY)
    starts = set()
    for seed in range(1500):
        info = env.reset(seed=seed)[1]
        starts.add((info["agent"], info["key"]))
    assert len(starts) == 56  # 8 · 7
    assert all(agent != key and agent[0] < 3 and key[0] < 3 for agent, key in starts)


def test_the_door_lets_nobody_through_without_the_key() -> None:
    before = GridState((2, 1), (1, 4))
    assert transition(before, RIGHT) == before
    holding = GridState((2, 1), (2, 1))
    assert transition(holding, RIGHT) == GridState(DOOR, DOOR)
    assert transition(GridState((2, 2), (2, 2)), RIGHT).agent == (2, 2)  # the wall has no other gap


def test_the_key_comes_along_once_its_cell_was_entered() -> None:
    state = GridState((1, 1), (1, 2))
    for action, agent in ((DOWN, (1, 2)), (DOWN, (1, 3)), (RIGHT, (2, 3))):
        state = transition(state, action)
        assert state == GridState(agent, agent if state.has_key else (1, 2))
    assert state.has_key


def test_ten_steps_then_truncated_and_the_goal_ends_nothing() -> None:
    env = make_env(DOORKEY)
    env.reset(seed=0, options={"agent": (2, 2), "key": (2, 1)})
    total, way = 0.0, [UP, RIGHT, RIGHT, DOWN, DOWN, DOWN, DOWN, DOWN, DOWN, DOWN]
    for step, action in enumerate(way):
        _, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        assert not terminated
        assert truncated == (step == 9)
    assert info["agent"] == GOAL
    assert total == 6.0  # from (2, 2), six steps away


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 3), min_size=1, max_size=10))
def test_a_return_is_the_distance_covered(seed: int, actions: list[int]) -> None:
    env = make_env(DOORKEY)
    start = env.reset(seed=seed)[1]["distance"]
    steps = [env.step(action) for action in actions]
    assert sum(float(step[1]) for step in steps) == start - steps[-1][4]["distance"]


def test_walker_prefers_moves_that_come_nearer() -> None:
    """e / (2e + 2/e) for the two moves that come nearer, 1/e over the same for the two that lead away."""
    total = 2 * math.e + 2 / math.e
    below_door = action_probabilities(GridState((4, 2), (4, 2)), door_open=True)  # goal below, walls right and left
    np.testing.assert_allclose(below_door, np.array([1, math.e, 1, 1 / math.e]) / (2 + math.e + 1 / math.e))
    free = action_probabilities(GridState((1, 3), (2, 4)), door_open=False)  # key to the right and below
    expected = np.array([math.e, math.e, 1.0, 1 / math.e]) / (2 * math.e + 1 + 1 / math.e)  # left is a wall
    np.testing.assert_allclose(free, expected)
    quirky = action_probabilities(GridState((1, 3), (2, 4)), door_open=False, reference_quirks=True)
    np.testing.assert_allclose(quirky, np.array([math.e, math.e, 1 / math.e, 1 / math.e]) / total)
    np.testing.assert_allclose(quirky, [0.4404, 0.4404, 0.0596, 0.0596], atol=5e-5)


def test_walker_fetches_the_key_then_opens_the_door_then_goes_to_the_goal() -> None:
    assert sub_goal(GridState((1, 1), (2, 4)), door_open=False) == (2, 4)
    assert sub_goal(GridState((2, 4), (2, 4)), door_open=False) == DOOR
    assert sub_goal(GridState(DOOR, DOOR), door_open=True) == GOAL


def test_walker_draws_with_its_probabilities() -> None:
    env = make_env(DOORKEY)
    obs, _ = env.reset(seed=0, options={"agent": (1, 3), "key": (2, 4)})
    walker = Walker(env, np.random.default_rng(0))
    counts = np.bincount([int(walker(obs)) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(counts, action_probabilities(GridState((1, 3), (2, 4)), False), atol=0.025)  # 3 sigma


@pytest.mark.filterwarnings("ignore:.*we recommend.*:UserWarning")
def test_gymnasium_finds_nothing_wrong_with_it() -> None:
    check_env(gym.make(DOORKEY, render_mode="rgb_array").unwrapped)


def test_the_picture_shows_agent_key_door_and_goal() -> None:
    env = make_env(DOORKEY, render_mode="rgb_array")
    pictures = []
    for options in (
        {"agent": (1, 1), "key": (2, 4)},
        {"agent": (2, 3), "key": (2, 4)},
        {"agent": (1, 1), "key": (1, 2)},
    ):
        env.reset(seed=0, options=options)
        pictures.append(env.render())
    first, moved_agent, moved_key = pictures
    assert first.shape == (336, 336, 3)
    assert first.dtype == np.uint8
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 5
    assert (first != moved_agent).any()
    assert (first != moved_key).any()
    env.reset(seed=0, options={"agent": (2, 1), "key": (2, 2)})
    closed = env.render()
    for action in (DOWN, UP, RIGHT):
        env.step(action)
    assert (env.render() != closed).any()


def test_what_is_drawn_is_never_where_the_other_was_put() -> None:
    env = make_env(DOORKEY)
    assert isinstance(env.unwrapped, DoorKeyEnv)
    for seed in range(40):
        for name in ("agent", "key"):
            env.reset(seed=seed, options={name: (1, 1)})
            state = env.unwrapped.state
            assert state.agent != state.key
            assert getattr(state, name) == (1, 1)
            assert not state.has_key


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agent": (3, 2)}, r"puts the agent on \(3, 2\); it needs a free cell \(x, y\), one of \(\(1, 1\), "),
        ({"key": (3, 1)}, "puts the key on"),  # the door
        ({"agent": (0, 1)}, "puts the agent on"),
        ({"agent": (3, 1), "key": (1, 1)}, "puts the agent on"),
        ({"agent": 5}, "puts the agent on 5; it needs a free cell"),
        ({"agent": (1, 2, 3)}, "puts the agent on"),
        ({"agents": (1, 1)}, "has the options 'agent' and 'key', cells .* got 'agents'"),
    ],
)
def test_a_start_that_is_no_free_cell_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(DOORKEY).reset(seed=0, options=options)


@pytest.mark.parametrize("action", [-1, 4, 1.5, None])
def test_an_action_outside_the_space_is_refused(action: Any) -> None:
    env = DoorKeyEnv()
    env.reset(seed=0)
    before = env.state
    with pytest.raises(ConfigError, match=r"DoorKey's actions are the whole numbers 0 to 3, got"):
        env.step(action)
    assert env.state == before
