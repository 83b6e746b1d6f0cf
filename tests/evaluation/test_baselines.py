"""Baselines: their record, the paired bootstrap, and what it says in words."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from conftest import make_agent

from agentzoo.agent import Agent
from agentzoo.data.making.collect import reset_seed
from agentzoo.evaluation.baselines import (
    Baselines,
    Comparison,
    add_row,
    compare_with_clones,
    paired_difference,
    read_baselines,
    write_baselines,
)
from agentzoo.evaluation.results import Baseline, Result, evaluate
from agentzoo.evaluation.seeds import VALIDATION, episode_seed


def measured(**changes: object) -> Result:
    return evaluate(make_agent(), episodes=3, n_envs=3).model_copy(update=changes)


def row(method: str = "bc", **changes: object) -> Baseline:
    return Baseline.model_validate({"method": method, "trained_with": "by hand", "result": measured(**changes)})


def test_headlines_and_choices_share_no_episode() -> None:
    assert [episode_seed(0, e) for e in (0, 99)] == [10_000, 10_099]
    headline = {episode_seed(0, e) for e in range(10_000)}
    validation = {episode_seed(VALIDATION, e) for e in range(10_000)}  # the most that a recipe may ask for
    assert not headline & validation


@pytest.mark.parametrize("seed", [0, 1, 2, 99])
def test_datasets_and_evaluations_share_no_episode(seed: int) -> None:
    assert [reset_seed(0, e) for e in (0, 9_999)] == [0, 9_999]  # those of every dataset that we built
    data = {reset_seed(seed, e) for e in range(50_000)}
    assert len(data) == 50_000
    for evaluated in (0, 1, 7, VALIDATION, 200, 99_998):
        assert not data & {episode_seed(evaluated, e) for e in range(10_000)}


def test_pairs_take_the_difficulty_of_episodes_out() -> None:
    """Both sides have 0, 100, 0, 100, ...: the difference of 1 is the same in every episode."""
    theirs = np.array([[0.0, 100.0] * 50])
    assert paired_difference(theirs + 1.0, theirs) == pytest.approx((1.0, 1.0, 1.0))


def test_equal_returns_tie_in_spite_of_rounding() -> None:
    """Means with resampled weights add up to 1 - 2e-16 as well as to 1."""
    found = paired_difference(np.ones((1, 100)), np.ones((3, 100)))
    assert found == (0.0, 0.0, 0.0)
    assert Comparison(*found).verdict == "ties"
    assert paired_difference(np.full((1, 100), 3e9), np.full((3, 100), 3e9)) == (0.0, 0.0, 0.0)


def test_an_interval_of_the_mean_difference() -> None:
    """Differences are 0 or 2, half and half: the mean of 100 of them has a standard error of 0.1."""
    theirs = np.zeros((1, 100))
    mean, low, high = paired_difference(np.array([[0.0, 2.0] * 50]), theirs)
    assert mean == 1.0
    assert low == pytest.approx(1.0 - 1.96 * 0.1, abs=0.02)
    assert high == pytest.approx(1.0 + 1.96 * 0.1, abs=0.02)


def test_three_training_seeds_are_resampled_two_are_not() -> None:
    clone = np.zeros((1, 10))
    seeds = np.array([[0.0] * 10, [3.0] * 10, [6.0] * 10])
    assert paired_difference(seeds[:2], clone) == pytest.approx((1.5, 1.5, 1.5))
    mean, low, high = paired_difference(seeds, clone)
    assert (mean, low, high) == (3.0, 0.0, 6.0)  # three times the same seed: 1 of 27, more than 2.5 %


@pytest.mark.parametrize(
    ("difference", "less_is_better", "verdict"),
    [
        ((2.0, 1.0, 3.0), False, "beats"),
        ((2.0, 1.0, 3.0), True, "loses"),
        ((-2.0, -3.0, -1.0), False, "loses"),
        ((-2.0, -3.0, -1.0), True, "beats"),
        ((1.0, -1.0, 3.0), False, "ties"),
        ((1.0, 0.0, 3.0), False, "ties"),
    ],
)
def test_a_difference_counts_where_its_interval_leaves_zero_out(
    difference: tuple[float, float, float], less_is_better: bool, verdict: str
) -> None:
    assert Comparison(*difference, less_is_better=less_is_better).verdict == verdict


def test_only_the_same_episodes_are_compared() -> None:
    head = measured()
    assert compare_with_clones([head], [row(), row(seed=1), row(env="tests/Other-v0"), row("iql")]) is not None
    assert compare_with_clones([head], [row(seed=1), row(env="tests/Other-v0"), row("iql")]) is None


def test_options_of_the_environment_make_other_episodes_if_both_records_hold_them() -> None:
    options: tuple[dict[str, float] | None, ...] = (None, {}, {"ctrl_cost_weight": 0.1})
    for own, plain in ((one, other) for one in options for other in options):
        found = compare_with_clones([measured(env_options=own)], [row(env_options=plain)])
        assert (found is None) == (None not in (own, plain) and own != plain)


def test_a_measurement_records_the_options_of_its_environment() -> None:
    agent = make_agent("Pendulum-v1")
    assert evaluate(agent, episodes=1).env_options == {}
    agent = Agent(agent.model, agent.config.model_copy(update={"env_options": {"g": 5.0}}))
    assert evaluate(agent, episodes=1).env_options == {"g": 5.0}
    assert evaluate(agent, gym.make("Pendulum-v1"), episodes=1).env_options is None  # ours to name no options of


def test_scores_are_points_between_the_references() -> None:
    head = measured(random_reference=0.0, expert_reference=200.0)
    clone = row(returns=tuple(value - 10.0 for value in head.returns))
    found = compare_with_clones([head], [clone])
    assert found is not None
    assert found.score == pytest.approx((5.0, 5.0, 5.0, False))
    assert found.verdict == "beats"


def test_a_row_replaces_the_one_of_its_method_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    assert read_baselines(path) == Baselines()
    found = Baselines()
    for one in (row("cql", training_seed=0), row(training_seed=1), row(training_seed=0), row(training_seed=1)):
        found = found.with_row("zoo/x-v0", one)
    write_baselines(path, found)
    kept = read_baselines(path).datasets["zoo/x-v0"]
    assert [(one.method, one.result.training_seed) for one in kept] == [("bc", 0), ("bc", 1), ("cql", 0)]


def test_rows_added_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path, first = tmp_path / "baselines.json", row()
    rows = [first.model_copy(update={"result": measured_again(first, seed)}) for seed in range(24)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: add_row(path, "zoo/x-v0", one), rows))
    assert read_baselines(path).datasets["zoo/x-v0"] == tuple(rows)


def measured_again(one: Baseline, seed: int) -> Result:
    return one.result.model_copy(update={"training_seed": seed})
