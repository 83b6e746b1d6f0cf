"""Episodes and windows, worked out by hand."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import CountingEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from agentzoo.acting.output import Actions
from agentzoo.data.episodes import Episodes, returns_to_go
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import load_episodes, write_dataset
from agentzoo.data.normalize import observation_statistics
from agentzoo.data.spaces import action_spec, observation_spec
from agentzoo.data.windows import WindowSampler
from agentzoo.errors import ConfigError, DataError, SpaceError
from agentzoo.recipe import load_recipe
from data.cases import episodes_of


def test_returns_to_go_of_three_rewards() -> None:
    assert returns_to_go(np.array([1.0, 2.0, 3.0])).tolist() == [6.0, 5.0, 3.0]


@pytest.mark.parametrize("rewards", [np.array([]), np.array([1.0, np.nan]), np.ones((2, 2))])
def test_returns_to_go_refuses_what_has_none(rewards: np.ndarray) -> None:
    with pytest.raises(DataError):
        returns_to_go(rewards)


def test_the_network_sees_scaled_returns() -> None:
    sampler = WindowSampler(episodes_of([1, 2, 3]), context=3, rtg_scale=2.0)
    assert sampler.at(torch.tensor([0])).returns_to_go.tolist() == [[3.0, 2.5, 1.5]]


def test_a_window_past_the_end_is_padded_on_the_right_with_zeros() -> None:
    sampler = WindowSampler(episodes_of([1, 2, 3], [4, 5]), context=4, rtg_scale=1.0)
    batch = sampler.at(torch.tensor([1, 3]))
    assert batch.valid.tolist() == [[True, True, False, False]] * 2
    assert batch.observations[..., 0].tolist() == [[2, 3, 0, 0], [4, 5, 0, 0]]
    assert batch.timesteps.tolist() == [[1, 2, 0, 0], [0, 1, 0, 0]]
    assert batch.returns_to_go.tolist() == [[5, 3, 0, 0], [9, 5, 0, 0]]
    assert batch.actions.tolist() == [[1, 2, 0, 0], [0, 1, 0, 0]]


def test_windows_hold_the_rewards_of_their_steps() -> None:
    batch = WindowSampler(episodes_of([1.0, 2.0, 4.0], [8.0]), 2, 10.0).at(torch.tensor([1, 2, 3]))
    assert batch.rewards is not None
    assert batch.rewards.tolist() == [[2.0, 4.0], [4.0, 0.0], [8.0, 0.0]]
    assert batch.map(lambda part: part[:1]).rewards.tolist() == [[2.0, 4.0]]  # type: ignore[union-attr]


def test_windows_up_to_a_step_hold_the_history_that_acting_has_there() -> None:
    sampler = WindowSampler(episodes_of([1, 2, 3], [4, 5, 6, 7]), context=3, rtg_scale=1.0)
    batch = sampler.until(torch.tensor([0, 2, 3, 6]))
    assert batch.valid.tolist() == [[True, False, False], [True] * 3, [True, False, False], [True] * 3]
    assert batch.observations[..., 0].tolist() == [[1, 0, 0], [1, 2, 3], [4, 0, 0], [5, 6, 7]]
    assert batch.timesteps.tolist() == [[0, 0, 0], [0, 1, 2], [0, 0, 0], [1, 2, 3]]
    assert batch.returns_to_go.tolist() == [[6, 0, 0], [6, 5, 3], [22, 0, 0], [18, 13, 7]]


def test_the_last_steps_of_windows_are_drawn_uniformly_too() -> None:
    sampler = WindowSampler(episodes_of([1] * 5, [1]), context=3, rtg_scale=1.0, drawn="last")
    batch = sampler.sample(6_000, torch.Generator().manual_seed(0))
    newest = batch.observations[torch.arange(6_000), batch.valid.sum(1) - 1, 0]
    counts = torch.bincount(newest.long() - 1, minlength=6) / 6_000
    assert (counts - 1 / 6).abs().max() < 0.015  # three standard errors


def test_windows_are_drawn_uniformly_over_steps() -> None:
    """Episodes of 1 and 3 steps: a quarter of the windows from the first, each start of the other as likely."""
    sampler = WindowSampler(episodes_of([1], [1, 1, 1]), context=2, rtg_scale=1.0)
    batch = sampler.sample(40_000, torch.Generator().manual_seed(0))
    share = torch.bincount(batch.observations[:, 0, 0].long(), minlength=5)[1:] / 40_000
    torch.testing.assert_close(share, torch.full((4,), 0.25), atol=0.01, rtol=0)  # five standard errors


def test_the_same_generator_gives_the_same_windows() -> None:
    sampler = WindowSampler(episodes_of([1] * 50), context=5, rtg_scale=1.0)
    a, b = (sampler.sample(16, torch.Generator().manual_seed(7)).observations for _ in range(2))
    assert torch.equal(a, b)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 6))
def test_windows_never_cross_an_episode(lengths: list[int], context: int) -> None:
    data = episodes_of(*[[1.0] * n for n in lengths])
    sampler = WindowSampler(data, context, 1.0)
    batch = sampler.at(torch.arange(len(data)))
    number = np.repeat(np.arange(len(lengths)), lengths)
    for row, valid in zip(batch.observations[..., 0].int().tolist(), batch.valid.tolist(), strict=True):
        steps = [step - 1 for step, real in zip(row, valid, strict=True) if real]
        assert len({number[step] for step in steps}) == 1
        assert steps == list(range(steps[0], steps[0] + len(steps)))


@pytest.mark.parametrize(("fraction", "kept"), [(0.01, [5.0]), (0.4, [5.0]), (0.5, [5.0, 3.0]), (1.0, [1.0, 5.0, 3.0])])
def test_best_keeps_whole_episodes_up_to_the_share(fraction: float, kept: list[float]) -> None:
    """Ten steps: returns 1 (5 steps), 5 (4 steps), 3 (1 step)."""
    data = episodes_of([0, 0, 0, 0, 1], [5, 0, 0, 0], [3])
    assert data.best(fraction).returns.tolist() == kept


def test_a_share_that_fits_to_the_step_is_kept_whole() -> None:
    """0.29 times 100 is a little less than 29 in binary."""
    data = episodes_of([10] + [0] * 9, [9] + [0] * 18, [0] * 71)
    assert data.best(0.29).lengths.tolist() == [10, 19]
    assert data.best(0.28).lengths.tolist() == [10]


def test_delayed_moves_the_return_to_the_last_step() -> None:
    assert episodes_of([1, 2, 3], [4, 5]).delayed().rewards.tolist() == [0, 0, 6, 0, 9]


def test_broken_arrays_are_refused() -> None:
    good = episodes_of([1, 2, 3])
    with pytest.raises(DataError, match="rewards are not finite at step 1"):
        episodes_of([1, np.inf, 3])
    with pytest.raises(DataError, match="observations have 2 rows, the episodes 3"):
        Episodes(**{**vars(good), "observations": good.observations[:2]})
    with pytest.raises(DataError, match="has an empty episode or none"):
        Episodes(**{**vars(good), "lengths": np.array([], dtype=int)})


def test_a_number_that_cannot_be_used_is_found_in_its_episode() -> None:
    good = episodes_of([1, 2, 3], [4, 5])
    with pytest.raises(DataError, match=r"rewards are not finite at step 1 of episode 1\. Write the dataset again"):
        episodes_of([1, 2, 3], [4, np.nan])
    with pytest.raises(DataError, match="action 7 at step 0 of episode 1 is not in 0 to 2"):
        Episodes(**{**vars(good), "actions": np.array([0, 1, 2, 7, 0])})
    box = action_spec(gym.spaces.Box(-1.0, 1.0, (1,), np.float32))
    with pytest.raises(DataError, match=r"action \[2.\] at step 1 of episode 1 lies outside its space"):
        Episodes(**{**vars(good), "action": box, "actions": np.array([[0], [1], [0], [1], [2]], np.float32)})


def test_numbers_beyond_float32_are_refused_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without numpy's warning of the overflow."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    box, ends = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64), np.array([False, True])
    small, far = np.zeros((3, 1)), np.array([[1.0], [1e60], [1.0]])
    for name, seen, taken in (("observations", far, small), ("actions", small, far)):
        one = Rollout(0, seen, taken[:2], np.ones(2), ends, np.zeros(2, bool))
        write_dataset(f"my/{name}-v0", [one], observation_space=box, action_space=box)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            with pytest.raises(DataError, match=rf"{name} .* at step 1 of episode 0 \(numbers are read as float32"):
                load_episodes(f"my/{name}-v0")


def test_keys_of_no_dict_name_the_setting_that_drops_them() -> None:
    with pytest.raises(SpaceError, match=r"need a Dict observation; .*\. Set data\.obs_keys=null\."):
        observation_spec(gym.spaces.Box(-1.0, 1.0, (3,)), ("position",))


def test_a_key_that_is_missing_or_named_twice_is_refused() -> None:
    space = gym.spaces.Dict({"a": gym.spaces.Box(-1.0, 1.0, (3,)), "n": gym.spaces.Discrete(2)})
    with pytest.raises(SpaceError, match=r"^no observation key 'q'; keys: \['a', 'n'\]\. Choose others .*=\[\"a\"\]"):
        observation_spec(space, ("q",))
    with pytest.raises(SpaceError, match=r"observation key 'n' must be a Box, but is Discrete\(2\)"):
        observation_spec(space, ("n",))
    empty = gym.spaces.Dict({"a": gym.spaces.Box(-1.0, 1.0, (3,)), "e": gym.spaces.Box(-1.0, 1.0, (0,))})
    with pytest.raises(SpaceError, match=r"'e' has shape \(0,\), without a number\. Use data\.obs_keys=\[\"a\"\]"):
        observation_spec(empty)
    with pytest.raises(SpaceError, match=r"keys: 'a' more than once; name each key once"):
        observation_spec(space, ("a", "a"))
    with pytest.raises(ConfigError, match=r"data\.obs_keys: 'a' more than once; name each key once"):
        load_recipe("dt-pointmaze-medium").override(['data.obs_keys=["a","b","a"]'])


def test_observation_statistics() -> None:
    mean, std = observation_statistics(np.array([[1.0, 5.0], [3.0, 5.0]], dtype=np.float32))
    assert mean.tolist() == [2.0, 5.0]
    np.testing.assert_allclose(std, [1.0 + 1e-6, 1e-6])


@pytest.mark.parametrize("as_dict", [False, True])
def test_frames_of_more_numbers_than_a_network_reads_are_refused(as_dict: bool) -> None:
    frames = gym.spaces.Box(0.0, 255.0, (210, 160, 3), np.float32)
    with pytest.raises(SpaceError, match=r"no network supports .*Box\(0.0, 255.0, \(210, 160, 3\).* size: .*65536"):
        observation_spec(gym.spaces.Dict({"frame": frames}) if as_dict else frames)


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (gym.spaces.Discrete(4), 4),
        (gym.spaces.MultiBinary(3), 3),
        (gym.spaces.MultiDiscrete([2, 3]), 5),
        (gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Box(-1.0, 1.0, (2,)))), 4),
        (gym.spaces.Dict(a=gym.spaces.Discrete(2), b=gym.spaces.Discrete(3)), 5),
    ],
)
def test_a_wrapper_that_makes_a_box_of_observations_is_named(space: gym.Space[Any], size: int) -> None:
    with pytest.raises(SpaceError, match="gymnasium's wrapper FlattenObservation makes it a Box"):
        observation_spec(space)
    env = CountingEnv()
    env.observation_space = space
    assert observation_spec(gym.wrappers.FlattenObservation(env).observation_space).size == size
    with pytest.raises(SpaceError, match=r"this space is Sequence\(Discrete\(2\), stack=False\)\.$"):
        observation_spec(gym.spaces.Sequence(gym.spaces.Discrete(2)))


def test_actions_that_cannot_vary_or_are_too_many_are_refused() -> None:
    with pytest.raises(SpaceError, match="each low must be below its high"):
        action_spec(gym.spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 0.0]), dtype=np.float64))
    for many in (gym.spaces.Discrete(70_000), gym.spaces.Box(-np.inf, np.inf, (70_000,))):
        with pytest.raises(SpaceError, match="size: "):
            action_spec(many)


def test_huge_bounds_of_actions_count_as_unbounded() -> None:
    for bound in (1e30, np.finfo(np.float32).max):
        spec = action_spec(gym.spaces.Box(-bound, bound, (2,), np.float32))
        assert (spec.low, spec.high) == (None, None)
    assert action_spec(gym.spaces.Box(-1e6, 1e6, (2,), np.float32)).high == (1e6, 1e6)


@pytest.mark.parametrize(
    ("low", "high"), [([0.0, 0.0], [np.inf, np.inf]), ([-np.inf, -1.0], [0.0, np.inf]), ([-1.0, -1.0], [1.0, np.inf])]
)
def test_actions_bounded_on_one_side_are_refused(low: list[float], high: list[float]) -> None:
    with pytest.raises(SpaceError, match="bounded on every side or on none"):
        action_spec(gym.spaces.Box(np.array(low), np.array(high), dtype=np.float64))


def test_a_float16_box_gets_float16_actions_within_it() -> None:
    space = gym.spaces.Box(-0.1, 0.1, (2,), np.float16)
    actions = Actions(action_spec(space))
    decoded = actions.decode(np.array([[0.05, 3.0]], dtype=np.float32), deterministic=True)
    assert space.contains(actions.to_space(decoded)[0])
