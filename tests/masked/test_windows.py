"""Windows that a caller makes or changes are checked before they are asked about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import make_agent

from agentzoo.errors import ConfigError, ObservationError, ShapeError
from agentzoo.masked.histories import futures, histories
from agentzoo.masked.question import Window, read_window
from agentzoo.models.unimask import UniMaskConfig
from masked.cases import SIZES


def own_window(agent: Any, steps: int = 4) -> Window:
    return read_window(agent.config, np.zeros((steps, 3)), np.zeros((steps, 2)))[0]


def test_a_window_of_another_agent_is_refused_in_words() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    longer = own_window(make_agent(model=UniMaskConfig(**SIZES), context=6), 6)
    words = r"^window= holds 1 window of 6 steps; dt-test reads one or more of 1 to 4 steps\.$"
    with pytest.raises(ShapeError, match=words):
        agent.infer(window=longer)
    with pytest.raises(ShapeError, match=words):
        agent.infer(window=longer, task="past", step=2)
    hidden = replace(longer, mask=longer.mask._replace(actions=np.zeros((1, 6), dtype=bool)))
    with pytest.raises(ShapeError, match=words):
        histories(agent, hidden, lambda *rows: np.ones(len(rows[0]), dtype=bool))
    with pytest.raises(ShapeError, match=words):
        futures(agent, hidden, lambda seen, _: seen)
    discrete = make_agent("tests/CountingDiscrete-v0", UniMaskConfig(**SIZES))
    with pytest.raises(ShapeError, match=r"window\.actions has shape \(1, 4, 2\); dt-test expects \(1, 4\)\."):
        discrete.infer(window=own_window(agent))


def test_parts_of_a_window_that_do_not_fit_together_are_named() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    window = own_window(agent)
    wide, short, two = np.zeros((1, 4, 5), np.float32), np.ones((1, 3), bool), np.zeros(2)
    for parts, words in (
        ({"observations": wide}, r"window\.observations has shape \(1, 4, 5\); dt-test expects \(1, 4, 3\)"),
        ({"observations": wide[0, :, :3]}, r"window\.observations has shape \(4, 3\); dt-test expects \(4, 3, 3\)"),
        ({"returns": two}, r"window\.returns has shape \(2,\); dt-test expects \(1,\)"),
        ({"mask": window.mask._replace(actions=short)}, r"window\.mask\.actions has shape \(1, 3\); .* \(1, 4\)"),
    ):
        with pytest.raises(ShapeError, match=words):
            agent.infer(window=replace(window, **parts), task="past", step=2)
    with pytest.raises(ShapeError, match="window= holds 0 windows of 4 steps"):
        agent.infer(window=window.take(np.zeros(0, dtype=int)))


def test_a_window_may_hold_arrays_of_any_kind() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    rng = np.random.default_rng(0)
    window, _ = read_window(agent.config, rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), returns=2.0)
    expected = agent.infer(window=window, task="past", step=2).actions
    wide = window.observations.astype(np.float64)
    mask: Any = tuple(shown.astype(int) for shown in window.mask)
    for parts in (
        {"observations": wide, "actions": window.actions.astype(np.float64)},
        {"observations": window.observations.tolist(), "returns": [2]},
        {"observations": np.ascontiguousarray(window.observations[:, ::-1])[:, ::-1]},
        {"mask": mask},
    ):
        changed = replace(window, **parts)
        np.testing.assert_array_equal(agent.infer(window=changed, task="past", step=2).actions, expected)


def test_a_window_with_what_no_network_reads_is_refused() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    window = own_window(agent)
    nan = window.observations * np.nan
    for error, parts, words in (
        (
            ObservationError,
            {"observations": nan},
            r"window\.observations hold NaN or infinity where the mask shows them",
        ),
        (ShapeError, {"observations": "abc"}, r"window\.observations must hold numbers"),
        (ShapeError, {"mask": window.mask[:2]}, r"window\.mask is a Mask of observations, actions, returns, got tuple"),
        (ShapeError, {"timestep": -5}, "timestep is the environment step .* got -5"),
        (ShapeError, {"timestep": "x"}, "timestep is the environment step .* got 'x'"),
    ):
        with pytest.raises(error, match=words):
            agent.infer(window=replace(window, **parts))
    hidden = window.mask._replace(observations=np.zeros((1, 4), dtype=bool))
    agent.infer(window=replace(window, observations=nan, mask=hidden))  # hidden parts may hold anything


@pytest.mark.parametrize("stands", [-1, 4, 99])
def test_hidden_choices_may_hold_any_number_and_shown_ones_count_from_0(stands: int) -> None:
    agent = make_agent("tests/CountingDiscrete-v0", UniMaskConfig(**SIZES))  # actions 2 to 5
    window, _ = read_window(agent.config, np.ones((4, 3)), [2, 3, 4, 5])
    shown = np.array([[True, False, True, True]])
    hidden = replace(window, mask=window.mask._replace(actions=shown))
    actions = window.actions.copy()
    actions[0, 1] = stands
    np.testing.assert_array_equal(
        agent.infer(window=replace(hidden, actions=actions)).actions, agent.infer(window=hidden).actions
    )
    with pytest.raises(ShapeError, match=rf"window\.actions are counted from 0, here to 3; got {stands}\."):
        agent.infer(window=replace(window, actions=actions))


def test_functions_of_the_environment_answer_for_each_window() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    window, _ = read_window(agent.config, np.zeros((2, 4, 3)))
    shown = np.array([[True, True, False, False]] * 2)
    window = replace(window, mask=window.mask._replace(observations=shown))
    said = r"^possible= says whether the environment allows each step, an array of shape \(2,\); got shape "
    with pytest.raises(ShapeError, match=said + r"\(\)\.$"):
        histories(agent, window, lambda *_: True)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=said + r"\(2, 3\)\.$"):
        histories(agent, window, lambda seen, _, following: np.isclose(seen, following))
    with pytest.raises(ConfigError, match="tries is a whole number from 1 on, got 0"):
        histories(agent, window, lambda seen, *_: np.ones(len(seen), dtype=bool), tries=0)
    with pytest.raises(ShapeError, match=r"^transition= returns .*, an array of shape \(2, 3\); got shape \(3,\)\.$"):
        futures(agent, window, lambda seen, _: seen[0])


def test_a_step_that_a_task_does_not_have_is_said_once_for_all_windows() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    with pytest.raises(ConfigError, match=r"^task 'past' is asked at steps 1 to 4 of 4, got \[9\]\.$"):
        agent.infer(observations=np.zeros((50, 4, 3)), task="past", step=9)


def test_a_question_of_the_return_needs_one() -> None:
    """Without it the answer was that of bc."""
    agent = make_agent(model=UniMaskConfig(**SIZES))
    parts = {"observations": np.ones((4, 3)), "actions": np.zeros((4, 2)), "step": 2}
    for unknown in ({}, {"returns": np.nan}):
        with pytest.raises(ConfigError, match=r"^task 'rc' shows the first step's return-to-go: pass returns=, or ask"):
            agent.infer(**parts, **unknown, task="rc")
    asked = agent.infer(**parts, returns=90.0, task="rc").observations
    assert not np.allclose(asked, agent.infer(**parts, returns=90.0, task="bc").observations)
    several = {name: np.stack([value] * 2) for name, value in parts.items() if name != "step"}
    both = agent.infer(**several, returns=[90.0, np.nan], task="rc", step=2).observations
    np.testing.assert_allclose(both[0], asked, atol=1e-6)
    np.testing.assert_allclose(both[1], agent.infer(**parts, task="bc").observations, atol=1e-6)
