"""Statistics over runs and tasks: by hand, as properties, and against rliable itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import library, metrics

from agentzoo.errors import DataError
from agentzoo.evaluation import statistics
from agentzoo.evaluation.method_comparison import compare_methods
from agentzoo.evaluation.statistics import (
    aggregate,
    convergence,
    convergence_in,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)

finite = st.floats(-200.0, 200.0)
runs = st.lists(finite, min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], 4.5),  # without 1, 2, 7 and 8
        ([0, 0, 0, 100], 0.0),
        ([7.0], 7.0),
        ([1, 2, 9], 4.0),  # three values: none is cut
    ],
)
def test_interquartile_mean_by_hand(values: list[float], expected: float) -> None:
    assert interquartile_mean(np.array(values, dtype=float)) == expected


def test_figures_are_rliables() -> None:
    """Three runs on four tasks, as rliable reads them: (runs, tasks)."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(60, 20, (3, 4)), rng.normal(50, 20, (3, 4))
    ours, theirs = ({f"task {i}": z[:, i].tolist() for i in range(4)} for z in (x, y))
    assert aggregate(ours).value == pytest.approx(metrics.aggregate_iqm(x), abs=1e-12)
    levels = np.linspace(0, 100, 21)
    expected = [library.run_score_deviation(x, level) for level in levels]
    assert performance_profile(ours, levels).share == pytest.approx(expected, abs=1e-12)
    won = probability_of_improvement(ours, theirs)
    assert won.value == pytest.approx(metrics.probability_of_improvement(x, y), abs=1e-12)


def test_intervals_are_rliables_up_to_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both draw runs within tasks; 2,000 draws leave a bound uncertain: twelve of rliable's own are 46.7 to 48.0."""
    x = np.random.default_rng(4).normal(60, 20, (5, 3))
    ours = aggregate({f"task {i}": x[:, i].tolist() for i in range(3)})
    # rliable draws from NumPy's global generator, whatever `random_state` it is given
    monkeypatch.setattr(np.random, "choice", np.random.RandomState(0).choice)
    _, intervals = library.get_interval_estimates({"x": x}, lambda z: np.array([metrics.aggregate_iqm(z)]), reps=2_000)
    assert np.array([ours.low, ours.high]) == pytest.approx(intervals["x"][:, 0], abs=0.8)


def test_intervals_do_not_depend_on_how_many_resamples_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"a": [1.0, 2.0, 6.0], "b": [100.0, 90.0]}
    whole = aggregate(scores, resamples=100)
    monkeypatch.setattr(statistics, "AT_ONCE", 7)  # the last part has two
    assert aggregate(scores, resamples=100) == whole


def test_a_profile_by_hand() -> None:
    """Task a: 10 and 30, task b: 20. Above 15: half of a and all of b, (1/2 + 1) / 2."""
    found = performance_profile({"a": [10.0, 30.0], "b": [20.0]}, np.array([5.0, 15.0, 25.0, 30.0]))
    assert found.share.tolist() == [1.0, 0.75, 0.25, 0.0]
    assert found.low.tolist() == [1.0, 0.5, 0.0, 0.0]  # both drawn runs of a are 10
    assert found.high.tolist() == [1.0, 1.0, 0.5, 0.0]


def test_probability_of_improvement_by_hand() -> None:
    """a: 2 > 1, 2 = 2: 3/4. b: 0 < 5: 0. Their mean is 3/8; a task of one side alone does not count."""
    found = probability_of_improvement({"a": [2.0], "b": [0.0], "c": [9.0]}, {"a": [1.0, 2.0], "b": [5.0]})
    assert found.value == pytest.approx(3 / 8)


@given(st.dictionaries(st.sampled_from("abc"), runs, min_size=1))
@settings(max_examples=30, deadline=None)
def test_statistics_of_any_scores_are_in_range_and_repeat(scores: dict[str, list[float]]) -> None:
    found = aggregate(scores, resamples=15)
    values = [value for each in scores.values() for value in each]
    slack = 1e-9
    assert min(values) - slack <= found.low <= found.high <= max(values) + slack
    assert found == aggregate(scores, resamples=15)
    profile = performance_profile(scores, np.linspace(-201, 201, 9), resamples=5)
    assert (np.diff(profile.share) <= 0).all()
    assert (profile.share[0], profile.share[-1]) == (1.0, 0.0)
    won = probability_of_improvement(scores, scores, resamples=5)
    assert won.value == pytest.approx(0.5)


def test_constant_scores_have_an_interval_of_zero_width() -> None:
    assert aggregate({"a": [5.0, 5.0], "b": [5.0]}, resamples=20) == (5.0, 5.0, 5.0)


def test_tasks_count_alike_however_many_runs_they_have() -> None:
    """Three runs of a against one of b: 1, 2, 6 and 100, 100, 100; without the lowest and the highest 52."""
    assert aggregate({"a": [1.0, 2.0, 6.0], "b": [100.0]}, resamples=20).value == 52.0


def test_convergence_is_the_first_update_within_two_points_of_the_final_score() -> None:
    updates = [2_500, 5_000, 7_500, 10_000, 12_500]
    assert convergence(updates, [10, 50, 79, 81, 80]) == 7_500
    assert convergence(updates, [10, 90, 50, 60, 60]) == 5_000  # above counts
    assert convergence(updates, [10, 20, 30, 40, 50]) == 12_500


def test_convergence_of_a_log_is_in_updates_and_time() -> None:
    """Rows without an evaluation stand between; time is the log's own."""
    scores = {100: "", 200: "10", 300: "58.5", 400: "", 500: "60"}
    log = [{"step": str(step), "eval_score": score, "seconds": str(step / 4)} for step, score in scores.items()]
    assert convergence_in(log) == (300, 75.0)
    assert convergence_in(log[:3]) == (300, 75.0)
    assert convergence_in(log[:2]) is None
    assert convergence_in([]) is None
    assert convergence_in([{"step": "1", "eval_return": "3"}] * 3) is None  # a maze has no points


@pytest.mark.parametrize("scores", [{}, {"a": []}, {"a": [float("nan")]}])
def test_scores_that_are_none_are_refused(scores: dict[str, list[float]]) -> None:
    with pytest.raises(DataError):
        aggregate(scores)


@pytest.mark.parametrize(
    ("scores", "low", "high"),
    [
        ((40.0, 90.0), 0.0, 110.0),
        ((-4.0, 111.5), -6.0, 112.0),
        ((0.0, 112.0), -2.0, 112.0),
        ((5.0, 90_000.0), 0.0, 9e4),
    ],
)
def test_profiles_go_from_all_runs_to_none(scores: tuple[float, float], low: float, high: float) -> None:
    found = compare_methods({"a": {"task": [scores[0]]}, "b": {"task": [scores[1]]}})
    assert found is not None
    for profile in found.profiles.values():
        assert (profile.thresholds[0], profile.thresholds[-1]) == (low, high)
        assert (profile.share[0], profile.share[-1]) == (1.0, 0.0)
    spacing = np.diff(found.profiles["a"].thresholds)
    assert spacing == pytest.approx(2.0 if high < 1_000.0 else high / 499)


def test_methods_without_a_common_task_are_refused() -> None:
    with pytest.raises(DataError, match="no task in common: a against b"):
        probability_of_improvement({"a": [1.0]}, {"b": [1.0]})


def test_convergence_needs_as_many_updates_as_scores() -> None:
    with pytest.raises(DataError, match="2 updates and 1 scores"):
        convergence([1, 2], [1.0])
