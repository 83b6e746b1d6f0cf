"""The tasks' masks, written out by hand, and the distributions random ones are drawn from."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare

from agentzoo.errors import ConfigError, UnknownNameError
from agentzoo.nn.masking import RANDOM_TASKS, STEP_TASKS, Masking, StepTask, draw, masking_at, steps_of, waypoints

# K = 3. observations, actions, returns shown; observations, actions asked: x where on
BY_HAND = {
    ("past", 1): ".xx .xx ... x.. x..",
    ("past", 2): "..x ..x ... xx. xx.",
    ("past", 3): "... ... ... xxx xxx",
    ("future", 0): "x.. ... ... .xx xxx",
    ("future", 1): "xx. x.. ... ..x .xx",
    ("future", 2): "xxx xx. ... ... ..x",
    ("bc", 0): "x.. ... ... ... x..",
    ("bc", 1): "xx. x.. ... ... .x.",
    ("bc", 2): "xxx xx. ... ... ..x",
    ("rc", 0): "x.. ... x.. ... x..",
    ("rc", 1): "xx. x.. x.. ... .x.",
    ("rc", 2): "xxx xx. x.. ... ..x",
    ("goal", 0): "x.x ... ... ... x..",
    ("goal", 1): "xxx x.. ... ... .x.",
    ("waypoint", 0): "xxx ... ... ... x..",
    ("waypoint", 1): "xxx x.. ... ... .x.",
    ("waypoint", 2): "xxx xx. ... ... ..x",
    ("forward", 0): "x.. x.. ... .x. ...",
    ("forward", 1): ".x. .x. ... ..x ...",
    ("inverse", 1): ".x. x.. ... x.. ...",
    ("inverse", 2): "..x .x. ... .x. ...",
}


def written(masking: Masking, row: int = 0) -> str:
    return " ".join("".join(".x"[int(on)] for on in mask[row]) for mask in masking)


def test_every_task_at_every_step_of_three() -> None:
    found = {}
    for task in STEP_TASKS:
        steps = steps_of(task, 3)
        for i in range(steps.first, steps.last + 1):
            found[task, i] = written(masking_at(task, torch.tensor([i]), 3))
    assert found == BY_HAND


def test_waypoints_of_ten_steps() -> None:
    assert waypoints(10) == (0, 3, 6, 9)
    assert written(masking_at("waypoint", torch.tensor([1]), 10)).split()[0] == "xx.x..x..x"


@given(st.sampled_from((*STEP_TASKS, *RANDOM_TASKS)), st.integers(2, 12), st.integers(1, 40), st.integers(0, 999))
@settings(max_examples=150, deadline=None)
def test_nothing_is_both_shown_and_asked_and_only_the_first_return_is_shown(
    task: str, context: int, batch: int, seed: int
) -> None:
    masking = draw(task, batch, context, torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    assert all(mask.shape == (batch, context) and mask.dtype == torch.bool for mask in masking)
    assert not (masking.observations & masking.ask_observations).any()
    assert not (masking.actions & masking.ask_actions).any()
    assert not masking.returns[:, 1:].any()
    assert bool(masking.returns.any()) <= (task in ("rc", "rnd", "rnd-rc"))
    asked = (masking.ask_observations | masking.ask_actions).any(dim=1)
    assert asked.all() or task in RANDOM_TASKS


@pytest.mark.parametrize("task", ["bc", "rc", "waypoint", "future", "past"])
def test_a_batch_of_a_multiple_of_k_holds_every_step_equally_often(task: StepTask) -> None:
    masking = draw(task, 50, 10, torch.Generator().manual_seed(0))
    lengths = masking.observations.sum(dim=1) if task == "past" else masking.actions.sum(dim=1)
    assert torch.bincount(lengths).tolist() == [5] * 10
    assert lengths.tolist() != sorted(lengths.tolist())  # in random order


@pytest.mark.parametrize(("task", "low", "high"), [("goal", 0, 8), ("forward", 0, 8), ("inverse", 1, 9), ("bc", 0, 9)])
def test_independent_draws_are_uniform_over_the_steps_of_the_task(task: StepTask, low: int, high: int) -> None:
    masking = draw(task, 9_001, 10, torch.Generator().manual_seed(1))
    asked = masking.ask_observations if task in ("forward", "inverse") else masking.ask_actions
    at = asked.long().argmax(dim=1) + {"forward": -1, "inverse": 1}.get(task, 0)
    counts = torch.bincount(at, minlength=10)[low : high + 1]
    assert int(counts.sum()) == 9_001
    assert chisquare(counts.numpy()).pvalue > 1e-4


def test_the_number_of_hidden_items_of_a_random_mask_is_uniform() -> None:
    masking = draw("rnd", 10_000, 10, torch.Generator().manual_seed(2))
    hidden = masking.ask_observations.sum(dim=1) + masking.ask_actions.sum(dim=1)
    counts = torch.bincount(hidden, minlength=21)
    assert len(counts) == 21
    statistic, expected = 0.0, 10_000 / 21
    for count in counts.tolist():
        statistic += (count - expected) ** 2 / expected
    assert statistic < chi2.ppf(1 - 1e-4, df=20)
    assert abs(float(hidden.double().mean()) - 10.0) < 4 * (((21**2 - 1) / 12) / 10_000) ** 0.5
    # a fixed probability would not do: its number of hidden items is binomial
    fixed = torch.bincount((torch.rand(10_000, 20) < 0.5).sum(dim=1), minlength=21)
    assert sum((count - expected) ** 2 / expected for count in fixed.tolist()) > 1_000


@pytest.mark.parametrize(("task", "share"), [("rnd", 0.5), ("rnd-bc", 0.0), ("rnd-rc", 1.0)])
def test_how_often_a_random_mask_shows_the_first_return(task: str, share: float) -> None:
    shown = draw(task, 10_000, 4, torch.Generator().manual_seed(3)).returns[:, 0]  # type: ignore[arg-type]
    assert abs(float(shown.double().mean()) - share) < 4 * 0.5 / 100


def test_observations_and_actions_are_hidden_independently() -> None:
    masking = draw("rnd", 20_000, 2, torch.Generator().manual_seed(4))
    # given the window's own probability p they are independent: P(both hidden) = E[p^2] = 1/3, not E[p]^2 = 1/4
    both = (masking.ask_observations[:, 0] & masking.ask_actions[:, 1]).double().mean()
    assert abs(float(both) - 1 / 3) < 0.015


def test_errors_say_what_is_possible() -> None:
    with pytest.raises(UnknownNameError, match=r"no task 'pst'\. Did you mean 'past'"):
        draw("pst", 4, 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'past' is asked at steps 1 to 3 of 3, got \\[0\\]"):
        masking_at("past", torch.tensor([0]), 3)
    with pytest.raises(ConfigError, match="at least 2 steps"):
        draw("goal", 4, 1)
