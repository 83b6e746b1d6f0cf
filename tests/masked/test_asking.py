"""Questions about windows: shapes, masks, samples, and histories that the environment could have produced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_agent

from agentzoo.agent import Agent
from agentzoo.envs import DOORKEY, make_env
from agentzoo.envs.doorkey_rules import GridState, cell_index, possible_rows, transition, transition_rows
from agentzoo.errors import ConfigError, ObservationError, ShapeError, UnknownNameError
from agentzoo.masked.histories import futures, histories
from agentzoo.masked.question import Window, read_window
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.nn.masking import STEP_TASKS, masking_at, steps_of
from masked.cases import SIZES, doorkey_agent

EYE = np.eye(16, dtype=np.float32)


def walk(seed: int = 0, steps: int = 10) -> tuple[dict[str, Any], np.ndarray]:
    """A random walk of the real environment: observations (K, 16) each, actions (K,)."""
    env = make_env(DOORKEY)
    obs, _ = env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    seen, taken = [], []
    for _ in range(steps):
        seen.append(obs)
        taken.append(int(rng.integers(4)))
        obs, *_ = env.step(np.int64(taken[-1]))
    return {key: np.stack([one[key] for one in seen]) for key in ("agent", "key")}, np.array(taken)


def test_an_answer_has_the_environments_shapes() -> None:
    agent = doorkey_agent()
    observations, actions = walk()
    answer = agent.infer(observations=observations, actions=actions, returns=3.0, task="past", step=6)
    assert answer.observations["agent"].shape == (10, 16)
    assert answer.actions.shape == (10, 4)
    np.testing.assert_allclose(answer.observations["key"].sum(-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(answer.actions.sum(-1), 1.0, atol=1e-5)
    batch = agent.infer(
        observations={k: np.stack([v, v]) for k, v in observations.items()}, actions=np.stack([actions, actions])
    )
    assert batch.actions.shape == (2, 10, 4)
    assert batch.observations["agent"].shape == (2, 10, 16)
    box = make_agent(model=UniMaskConfig(**SIZES))
    found = box.infer(observations=np.ones((4, 3)), actions=np.zeros((4, 2)))
    assert (found.observations.shape, found.actions.shape) == ((4, 3), (4, 2))


@pytest.mark.parametrize("task", STEP_TASKS)
def test_a_custom_mask_equal_to_a_tasks_gives_its_answer(task: Any) -> None:
    agent = doorkey_agent()
    observations, actions = walk(3)
    step = steps_of(task, 10).last - 2
    masking = masking_at(task, torch.tensor([step]), 10)
    by_task = agent.infer(observations=observations, actions=actions, returns=3.0, task=task, step=step)
    mask = {
        "observations": masking.observations[0].numpy(),
        "actions": masking.actions[0].numpy(),
        "returns": bool(masking.returns[0, 0]),
    }
    by_mask = agent.infer(observations=observations, actions=actions, returns=3.0, mask=mask)
    # a third way: what is hidden was never known
    unknown = {k: np.where(mask["observations"][:, None], v, np.nan) for k, v in observations.items()}
    by_nan = agent.infer(
        observations=unknown,
        actions=np.where(mask["actions"], actions, -1),
        returns=3.0 if mask["returns"] else None,
    )
    for other in (by_mask, by_nan):
        np.testing.assert_array_equal(by_task.actions, other.actions)
        for key in observations:
            np.testing.assert_array_equal(by_task.observations[key], other.observations[key])


def test_samples_follow_the_probabilities_and_keep_what_was_shown() -> None:
    agent = doorkey_agent()
    observations, actions = walk(1)
    window, _ = read_window(
        agent.config, {k: np.stack([v] * 4000) for k, v in observations.items()}, np.stack([actions] * 4000)
    )
    answer = agent.infer(window=window, task="past", step=6)
    drawn = answer.sample(0)
    np.testing.assert_array_equal(drawn.observations[:, 6:], window.observations[:, 6:])
    np.testing.assert_array_equal(drawn.actions[:, 6:], window.actions[:, 6:])
    assert set(np.unique(drawn.observations)) == {0.0, 1.0}
    assert (drawn.observations[..., :16].sum(-1) == 1).all()
    counts = np.bincount(drawn.actions[:, 2], minlength=4) / 4000
    np.testing.assert_allclose(counts, answer.actions[0, 2], atol=0.03)
    likely = answer.most_likely()
    assert (likely.actions[:, :6] == answer.actions[:, :6].argmax(-1)).all()
    same, other = answer.sample(0), answer.sample(1)
    np.testing.assert_array_equal(same.actions, drawn.actions)
    assert not np.array_equal(other.actions, drawn.actions)


def test_continuous_answers_come_in_the_environments_units() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    agent.model.obs_mean.fill_(100.0)
    agent.model.obs_std.fill_(0.01)
    obs = np.full((4, 3), 100.0)
    found = agent.infer(observations=obs, actions=np.zeros((4, 2)), task="future", step=1)
    assert np.abs(found.observations - 100.0).max() < 1.0
    filled = found.most_likely()
    np.testing.assert_allclose(filled.observations[0, :2], 100.0)
    np.testing.assert_array_equal(filled.observations[0, 2:], found.observations[2:])


def test_questions_without_a_meaning_are_refused() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    seen = np.ones((2, 3))
    with pytest.raises(ShapeError, match=r"a return lies within 1e\+09 of 0, got -1e\+300"):
        agent.infer(observations=seen, returns=-1e300)
    with pytest.raises(ShapeError, match="there are 0 windows; a question needs"):
        agent.infer(observations=np.ones((0, 2, 3)))
    with pytest.raises(ConfigError, match="step= is the step of a task"):
        agent.infer(observations=seen, step=1)


def test_inferred_actions_lie_in_the_action_space() -> None:
    """As those of `predict`, so that they can be played."""
    agent = make_agent(model=UniMaskConfig(**{**SIZES, "n_layers": 1}))
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.mul_(20.0)
    found = agent.infer(observations=np.full((4, 3), 100.0), task="future", step=1)
    assert np.abs(found.actions).max() == 2.0
    assert np.abs(found.most_likely().actions).max() == 2.0


def test_shorter_windows_and_their_place_in_time() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    found = agent.infer(observations=np.ones((2, 3)), actions=np.zeros((2, 2)), returns=5.0, timestep=3)
    later = agent.infer(observations=np.ones((2, 3)), actions=np.zeros((2, 2)), returns=5.0, timestep=900)
    assert found.actions.shape == (2, 2)
    assert not np.allclose(found.observations, later.observations)  # the return comes with its time
    a = agent.infer(observations=np.ones((2, 3)), actions=np.zeros((2, 2)), timestep=3)
    b = agent.infer(observations=np.ones((2, 3)), actions=np.zeros((2, 2)), timestep=900)
    np.testing.assert_array_equal(a.actions, b.actions)  # without one, time is not seen


@pytest.mark.parametrize(
    ("question", "error", "words"),
    [
        ({}, ShapeError, "needs observations or actions"),
        ({"observations": np.zeros((5, 3))}, ShapeError, "the window has 5 steps; dt-test reads at most 4"),
        ({"observations": np.zeros((4, 2))}, ShapeError, r"have shape \(4, 2\); dt-test expects \(K, 3\)"),
        ({"observations": {"a": np.zeros((4, 3))}}, ShapeError, "expects an array of observations, got dict"),
        ({"observations": np.zeros((0, 3))}, ShapeError, "at least one step"),
        ({"observations": np.zeros((4, 3)), "actions": np.zeros((3, 2))}, ShapeError, r"actions \(1, 3\)"),
        ({"actions": np.zeros((4, 3))}, ShapeError, r"expects \(K, 2\) or \(N, K, 2\)"),
        ({"observations": np.zeros((4, 3)), "task": "pst", "step": 1}, UnknownNameError, "Did you mean 'past'"),
        ({"observations": np.zeros((4, 3)), "task": "past"}, ConfigError, "needs step="),
        ({"observations": np.zeros((4, 3)), "task": "past", "step": 9}, ConfigError, "steps 1 to 4 of 4, got"),
        ({"observations": np.zeros((4, 3)), "task": "past", "step": 1, "mask": {}}, ConfigError, "defines the mask"),
        ({"observations": np.zeros((4, 3)), "task": "past", "step": 0.5}, ConfigError, "got 0.5"),
        ({"observations": np.zeros((4, 3)), "timestep": -5}, ShapeError, "0, 1, ...; got -5"),
        (
            {"observations": np.zeros((4, 3)), "returns": [1.0, 2.0]},
            ShapeError,
            r"shape \(2,\); expected one number or \(1,\)",
        ),
        ({"observations": [[1, 2, 3], [1, 2]]}, ShapeError, "observations is not an array of numbers"),
        ({"actions": [["a", "b"]]}, ShapeError, "actions must hold numbers"),
        ({"observations": np.zeros((4, 3)), "mask": {2: 1, "rewards": 1}}, ShapeError, r"got \[2, 'rewards'\]"),
        ({"observations": np.zeros((4, 3)), "mask": np.ones(4)}, ShapeError, "a mask is a dict with .* got ndarray"),
        ({"observations": np.zeros((4, 3)), "mask": {"actions": np.ones(3)}}, ShapeError, r"a mask is \(K,\)"),
        ({"observations": np.zeros((4, 3)), "mask": {"observations": None}}, ShapeError, "must hold numbers"),
        ({"observations": np.zeros((4, 3)), "mask": {"actions": [1, 2, 0, 1]}}, ShapeError, "holds True where"),
        ({"observations": np.zeros((4, 3)), "mask": {"actions": ["a", "", "b", ""]}}, ShapeError, "must hold numbers"),
        (
            {"observations": np.zeros((4, 3)), "task": 3, "step": 1},
            ConfigError,
            "such as 'past'; got 3",
        ),
        ({"observations": np.zeros((4, 3)), "task": "past", "step": 10**20}, ConfigError, "step must be 0, 1"),
        ({"observations": np.zeros((4, 3)), "timestep": 10**20}, ShapeError, "0, 1, ...; got 1000"),
        ({"observations": np.full((4, 3), np.inf)}, ObservationError, "observations hold infinity"),
        ({"observations": np.full((4, 3), 1e300)}, ObservationError, "beyond float32; NaN stands for"),
        ({"actions": np.full((4, 2), -np.inf)}, ObservationError, "actions hold infinity"),
        ({"actions": np.full((4, 2), 3e38)}, ObservationError, "answers with NaN or infinity"),
    ],
)
def test_bad_questions_are_explained(question: dict[str, Any], error: type[Exception], words: str) -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    with pytest.raises(error, match=words):
        agent.infer(**question)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_network_of_16_bits_cannot_be_asked(dtype: torch.dtype) -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    agent.model.to(dtype)
    with pytest.raises(ConfigError, match=rf"weights of {dtype} cannot act .* agent\.model\.float\(\)"):
        agent.infer(observations=np.ones((4, 3)), actions=np.zeros((4, 2)), task="past", step=2)


def test_a_network_left_training_answers_without_dropout() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES, dropout=0.5))
    window = {"observations": np.ones((4, 3)), "actions": np.zeros((4, 2)), "task": "past", "step": 2}
    wanted = agent.infer(**window).actions
    agent.model.train()
    np.testing.assert_array_equal(agent.infer(**window).actions, wanted)


def test_an_answer_is_not_sampled_with_a_seed_below_zero() -> None:
    answer = make_agent(model=UniMaskConfig(**SIZES)).infer(observations=np.ones((4, 3)))
    with pytest.raises(ConfigError, match="a seed is a whole number from 0 on"):
        answer.sample(-1)


def test_a_window_and_its_parts_cannot_be_passed_together() -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    window, _ = read_window(agent.config, np.zeros((4, 3)), np.zeros((4, 2)))
    with pytest.raises(ConfigError, match=r"^window= already holds observations, returns, timestep: pass either"):
        agent.infer(window=window, observations=np.ones((4, 3)), returns=1.0, timestep=0)
    with pytest.raises(ConfigError, match="already holds actions"):
        agent.infer(window=window, actions=np.zeros((4, 2)), task="past", step=1)
    with pytest.raises(ShapeError, match=r"window= is a Window, .* got ndarray; pass arrays as observations="):
        agent.infer(window=np.ones((4, 3)))


def test_unknown_discrete_actions() -> None:
    agent = make_agent("tests/CountingDiscrete-v0", UniMaskConfig(**SIZES))  # actions 2 to 5
    a = agent.infer(observations=np.ones((3, 3)), actions=[2, 1, 5])
    b = agent.infer(observations=np.ones((3, 3)), actions=[2, 4, 5], mask={"actions": [True, False, True]})
    np.testing.assert_array_equal(a.actions, b.actions)
    c = agent.infer(observations=np.ones((3, 3)), actions=[2.0, np.nan, 5.0])
    np.testing.assert_array_equal(a.actions, c.actions)
    for wrong in ([2, 6, 5], [2.7, 4, 5], [2, np.inf, 5]):
        with pytest.raises(ShapeError, match="actions are whole numbers from 2 to 5, or 1 where unknown"):
            agent.infer(observations=np.ones((3, 3)), actions=wrong)


# -- step by step ------------------------------------------------------------------------------------------------------


def windows(agent: Agent, count: int, seed: int = 0) -> Window:
    observations, actions = walk(seed)
    found, _ = read_window(
        agent.config, {k: np.stack([v] * count) for k, v in observations.items()}, np.stack([actions] * count)
    )
    return found


def hidden(window: Window, observations: Any, actions: Any) -> Window:
    from dataclasses import replace

    seen, acted = window.mask.observations.copy(), window.mask.actions.copy()
    seen[:, observations], acted[:, actions] = False, False
    return replace(window, mask=window.mask._replace(observations=seen, actions=acted))


def really_happens(window: Window, i: int) -> bool:
    """Replayed in the environment's own rules, cell by cell."""
    states = [
        GridState(
            (int(row[:16].argmax()) // 4 + 1, int(row[:16].argmax()) % 4 + 1),
            (int(row[16:].argmax()) // 4 + 1, int(row[16:].argmax()) % 4 + 1),
        )
        for row in window.observations[i]
    ]
    return all(transition(states[t], int(window.actions[i, t])) == states[t + 1] for t in range(len(states) - 1))


def test_consistent_histories_are_reachable_and_end_as_asked() -> None:
    agent = doorkey_agent()
    true = windows(agent, 12)
    asked = hidden(true, slice(0, 3), slice(0, 3))
    found = histories(agent, asked, possible_rows, seed=0, tries=400)
    np.testing.assert_array_equal(found.window.observations[:, 3:], true.observations[:, 3:])
    np.testing.assert_array_equal(found.window.actions[:, 3:], true.actions[:, 3:])
    assert found.consistent.any()
    for i in range(12):
        assert really_happens(found.window, i) == bool(found.consistent[i])
    assert len({row.tobytes() for row in found.window.actions[:, :3]}) > 1  # different pasts lead there


def test_a_history_that_cannot_be_is_marked_and_what_was_shown_stays() -> None:
    agent = doorkey_agent()
    window = windows(agent, 2)
    seen = window.observations.copy()
    seen[:, 5] = np.concatenate([EYE[cell_index((4, 4))], EYE[0]])  # at the goal without the key: nothing leads there
    from dataclasses import replace

    asked = hidden(replace(window, observations=seen), slice(3, 5), slice(3, 5))
    found = histories(agent, asked, possible_rows, seed=0, tries=20)
    assert not found.consistent.any()
    np.testing.assert_array_equal(found.window.observations[:, 5], seen[:, 5])


def test_a_shown_step_that_does_not_lead_on_is_marked() -> None:
    """Nothing is drawn at step 0, and still what is drawn behind it must follow from it."""
    agent = make_agent(model=UniMaskConfig(**SIZES))
    observations, actions = np.full((3, 3), np.nan), np.full((3, 2), np.nan)
    observations[[0, 2]], actions[[0, 2]] = [[0.0] * 3, [5.0] * 3], 0.0
    window, _ = read_window(agent.config, observations, actions)

    def only_to_1000(obs: Any, _: Any, following: Any) -> Any:
        return np.where((obs == 0).all(1), (following == 1000).all(1), True)

    found = histories(agent, window.take(np.zeros(5, dtype=int)), only_to_1000, tries=5)
    assert not found.consistent.any()
    shown, _ = read_window(agent.config, np.zeros((2, 3, 3)), np.zeros((2, 3, 2)))
    assert not histories(agent, shown, lambda obs, *_: np.zeros(len(obs), dtype=bool)).consistent.any()
    assert histories(agent, shown, lambda obs, *_: np.ones(len(obs), dtype=bool)).consistent.all()


def test_a_step_is_drawn_again_until_the_one_before_leads_there() -> None:
    agent = doorkey_agent()
    asked = hidden(windows(agent, 12), slice(1, 2), slice(1, 2))
    found = histories(agent, asked, possible_rows, seed=0, tries=400)
    assert [really_happens(found.window, i) for i in range(12)] == found.consistent.tolist()
    assert found.consistent.any()


def test_futures_follow_the_environment() -> None:
    agent = doorkey_agent()
    asked = hidden(windows(agent, 6), slice(1, None), slice(None))
    found = futures(agent, asked, transition_rows, seed=1)
    assert found.mask.observations.all()
    assert found.mask.actions.all()
    assert all(really_happens(found, i) for i in range(6))
    np.testing.assert_array_equal(found.observations, futures(agent, asked, transition_rows, seed=1).observations)
    with pytest.raises(ConfigError, match="a future starts from the first observation"):
        futures(agent, hidden(asked, slice(0, 1), slice(0)), transition_rows)


def test_rows_move_as_the_environment_does() -> None:
    env = make_env(DOORKEY)
    rng = np.random.default_rng(0)
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        for _ in range(10):
            flat = np.concatenate([obs["agent"], obs["key"]])[None]
            action = np.array([rng.integers(4)])
            obs, *_ = env.step(action[0])
            after = np.concatenate([obs["agent"], obs["key"]])[None]
            np.testing.assert_array_equal(transition_rows(flat, action), after)
            assert possible_rows(flat, action, after).all()
            assert not possible_rows(flat, action, np.roll(after, 1)).any()
