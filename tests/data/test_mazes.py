"""The dense maze and the controller that drives through mazes."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from agentzoo.data.making.runners import ControllerRunner
from agentzoo.data.making.waypoints import WaypointController, shortest_path
from agentzoo.envs import MAZE2D_DENSE, make_env
from agentzoo.envs.env_options import check_env_options
from agentzoo.envs.making import make_configured
from agentzoo.errors import ConfigError, DataError

MAP = [
    [1, 1, 1, 1, 1],
    [1, 0, 0, 0, 1],
    [1, 1, 1, 0, 1],
    [1, 0, 0, 0, 1],
    [1, 1, 1, 1, 1],
]


def test_shortest_path_around_a_wall() -> None:
    assert shortest_path(MAP, (1, 1), (3, 1)) == [(1, 1), (1, 2), (1, 3), (2, 3), (3, 3), (3, 2), (3, 1)]
    assert shortest_path(MAP, (1, 1), (1, 1)) == [(1, 1)]


def test_no_path_is_an_error() -> None:
    walled = [row.copy() for row in MAP]
    walled[2][3] = 1
    with pytest.raises(DataError, match=r"\(1, 1\).*\(3, 1\)"):
        shortest_path(walled, (1, 1), (3, 1))


def test_reward_is_the_straight_distance_covered() -> None:
    env = make_env(MAZE2D_DENSE)
    obs, info = env.reset(seed=5)
    start = np.linalg.norm(obs[:2] - obs[2:])
    assert info["distance"] == pytest.approx(start)
    total = 0.0
    for action in np.random.default_rng(0).uniform(-1, 1, (200, 2)).astype(np.float32):
        obs, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        assert not terminated
    assert truncated
    assert total == pytest.approx(start - np.linalg.norm(obs[:2] - obs[2:]))


@pytest.mark.parametrize("option", ["reward_type", "continuing_task", "reset_target"])
def test_options_of_pointmaze_that_would_have_no_effect_are_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=f"multiple values for keyword argument '{option}'"):
        make_configured(MAZE2D_DENSE, {}, **{option: False})
    with pytest.raises(ConfigError, match="is not in the allowed options"):
        check_env_options(MAZE2D_DENSE, {option: "sparse"})


def test_starts_and_goals_are_spread_over_the_maze() -> None:
    env = make_env(MAZE2D_DENSE)
    base = env.unwrapped
    seen = [env.reset(seed=seed)[0] for seed in range(300)]
    starts = {tuple(base.maze.cell_xy_to_rowcol(obs[:2])) for obs in seen}
    goals = {tuple(base.maze.cell_xy_to_rowcol(obs[2:])) for obs in seen}
    free = {tuple(cell) for cell in base.free_cells}
    assert starts == goals == free
    assert all(np.abs(obs[:2] - obs[2:]).max() > 0.5 for obs in seen)  # never in the goal's own cell


def test_options_choose_the_cells_and_walls_are_refused() -> None:
    env = make_env(MAZE2D_DENSE)
    base = env.unwrapped
    one, other = base.free_cells[0], base.free_cells[-1]
    obs, _ = env.reset(seed=0, options={"reset_cell": one, "goal_cell": other})
    assert tuple(base.maze.cell_xy_to_rowcol(obs[:2])) == one
    np.testing.assert_allclose(obs[2:], base.maze.cell_rowcol_to_xy(np.array(other)))
    with pytest.raises(ConfigError, match="not free"):
        env.reset(options={"goal_cell": (0, 0)})


@pytest.mark.parametrize("option", ["reset_cell", "goal_cell"])
def test_what_is_drawn_is_never_where_the_other_was_put(option: str) -> None:
    env = make_env(MAZE2D_DENSE)
    cell = env.unwrapped.free_cells[3]
    for seed in range(150):
        obs, _ = env.reset(seed=seed, options={option: cell})
        start, goal = (tuple(env.unwrapped.maze.cell_xy_to_rowcol(part)) for part in (obs[:2], obs[2:]))
        assert cell == (start if option == "reset_cell" else goal)
        assert start != goal


def test_the_same_seed_is_the_same_episode_whatever_came_before() -> None:
    env = make_env(MAZE2D_DENSE)
    first = env.reset(seed=3)[0]
    for _ in range(20):
        env.step(np.array([1.0, -1.0], np.float32))
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    np.testing.assert_array_equal(make_env(MAZE2D_DENSE).reset(seed=3)[0], first)


def test_a_picture_shows_the_point_in_every_cell_and_films_run_in_real_time() -> None:
    env = make_env(MAZE2D_DENSE, render_mode="rgb_array", width=160, height=120)
    base = env.unwrapped
    assert env.metadata["render_fps"] * base.data.model.opt.timestep == 1.0  # a frame a step
    for cell in base.free_cells:
        env.reset(seed=0, options={"reset_cell": cell, "goal_cell": base.free_cells[0]})
        red, green, blue = np.moveaxis(env.render().astype(int), -1, 0)
        assert ((green > red + 20) & (green > blue + 20)).sum() > 10, cell
    env.close()


@pytest.mark.filterwarnings("ignore:.*we recommend.*:UserWarning")
def test_gymnasium_finds_nothing_wrong_with_it() -> None:
    check_env(make_env(MAZE2D_DENSE).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("maze", ["UMaze", "Medium", "Large"])
def test_the_controller_reaches_its_goals(maze: str) -> None:
    runner = ControllerRunner(f"PointMaze_{maze}-v3", WaypointController, (("continuing_task", False),))
    episodes = runner(0, 0, 3)
    assert all(one.terminations[-1] and not one.truncations[-1] for one in episodes)
    for one in episodes:
        assert one.rewards.tolist() == [0.0] * (len(one) - 1) + [1.0]
        assert np.abs(one.actions).max() <= 1.0
        assert one.actions.dtype == np.float32
        assert len(one.observations["desired_goal"]) == len(one) + 1


def test_noise_is_on_every_action_and_drawn_from_the_episode_s_seed() -> None:
    runner = ControllerRunner(MAZE2D_DENSE, WaypointController)
    one, same, other = runner(0, 0, 1)[0], runner(0, 0, 1)[0], runner(1, 0, 1)[0]
    np.testing.assert_array_equal(one.actions, same.actions)
    assert not np.array_equal(one.actions, other.actions)
    inside = np.abs(one.actions) < 1.0  # where the force was not clipped; two equal draws in a row never occur
    assert (np.diff(one.actions, axis=0)[inside[1:]] != 0).all()
    assert inside.mean() > 0.3


def test_render_without_a_mode_warns_and_gives_nothing() -> None:
    env = make_env(MAZE2D_DENSE).unwrapped
    env.reset(seed=0)
    with pytest.warns(UserWarning, match=r"render\(\) needs gymnasium\.make\(\.\.\., render_mode='rgb_array'\)"):
        assert env.render() is None
