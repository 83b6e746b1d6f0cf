"""Another target return while an agent acts, and what it must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import CountingEnv, make_agent
from stable_baselines3.common.monitor import Monitor

from acting.cases import OBS, newest_rtg
from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, ObservationError, ShapeError


@pytest.mark.parametrize("wrapper", [Monitor, gym.wrappers.RecordEpisodeStatistics, None])
def test_a_new_target_counts_from_now_on_whatever_the_rewards_come_from(wrapper: Any) -> None:
    """Rewards 1, 2, 3, 4: the target 1000 is asked for after three of them, 20 for one of two environments."""
    env = CountingEnv() if wrapper is None else wrapper(CountingEnv())
    agent = make_agent()
    agent.set_env(env)
    obs, _ = env.reset(seed=0)
    state, reward, seen = None, 0.0, []
    for t in range(5):
        if t == 3:
            agent.condition(target_return=1000)
        action, state = agent.predict(obs, state, reward=reward if wrapper is None else None)
        seen += newest_rtg(state)
        obs, reward, *_ = env.step(action)
    assert seen == [50.0, 49.0, 47.0, 994.0, 990.0]
    assert state is not None
    assert state.targets.tolist() == [1000.0]


def test_a_new_target_of_one_environment_leaves_the_others() -> None:
    agent, two = make_agent(), np.stack([OBS, OBS])
    _, state = agent.predict(two, reward=[0.0, 0.0])
    _, state = agent.predict(two, state, reward=[0.1, 0.1])
    unchanged = newest_rtg(agent.predict(two, state, reward=[0.2, 0.2])[1])
    _, after = agent.condition(target_return=[50.0, 20.0]).predict(two, state, reward=[0.2, 0.2])
    assert newest_rtg(after)[0] == unchanged[0] == 50.0 - 0.1 - 0.2
    assert newest_rtg(after)[1] == pytest.approx(20.0 - 0.3)
    _, begun = agent.predict(two, after, np.array([False, True]), reward=[0.0, 7.0])
    assert newest_rtg(begun)[1] == 20.0


def test_a_new_target_is_what_delayed_rewards_leave_to_come() -> None:
    agent = make_agent()
    agent.config = agent.config.model_copy(update={"rewards": "delayed"})
    _, state = agent.predict(OBS)
    _, state = agent.condition(target_return=70.0).predict(OBS, state, reward=5.0)
    assert newest_rtg(state) == [70.0]


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (np.nan, ConfigError, "must be finite, got nan"),
        ([1.0, np.inf], ConfigError, "must be finite"),
        ("x", ShapeError, "target_return must hold numbers"),
        ([[1.0], [2.0]], ShapeError, r"target_return has shape \(2, 1\); it is one number, or one for each"),
        ([[1.0], [2.0, 3.0]], ShapeError, "target_return is not an array of numbers"),
    ],
)
def test_bad_targets_are_explained(target: object, error: type[Exception], words: str) -> None:
    agent = make_agent().condition(target_return=7.0)
    with pytest.raises(error, match=words):
        agent.condition(target_return=target)
    assert agent.target_return == 7.0


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (np.nan, ConfigError, "must be finite, got nan"),
        (None, ShapeError, "target_return must hold numbers"),
        ("high", ShapeError, "target_return must hold numbers"),
        (2e9, ConfigError, r"must lie within 1e\+09 of 0, got 2000000000.0"),
        ([1.0, 2.0], ShapeError, r"is one number, got 2; agent.condition\(target_return=\[...\]\)"),
    ],
)
def test_the_attribute_takes_one_number(target: Any, error: type[Exception], words: str) -> None:
    agent = make_agent()
    agent.target_return = 7
    with pytest.raises(error, match=words):
        agent.target_return = target
    assert agent.target_return == 7.0


def test_a_target_is_saved_with_the_agent(tmp_path: Path) -> None:
    agent = make_agent()
    agent.target_return = 7.0
    loaded = Agent.from_pretrained(agent.save_pretrained(tmp_path / "agent"))
    assert loaded.target_return == 7.0
    assert loaded.recipe is not None
    assert loaded.recipe.eval.target_return == 7.0


def test_one_number_replaces_the_targets_of_each_environment() -> None:
    agent = make_agent()
    agent.condition(target_return=[10.0, 20.0])
    agent.target_return = 500.0
    _, state = agent.predict(np.stack([OBS, OBS]), reward=np.zeros(2))
    assert newest_rtg(state) == [500.0, 500.0]


def test_an_action_that_is_no_number_names_the_target_of_its_environment() -> None:
    agent = make_agent()
    agent.condition(target_return=[1.0, 2.0])
    with torch.no_grad():
        next(agent.model.parameters()).fill_(float("nan"))
    with pytest.raises(ObservationError, match=r"for environment 0, .*\(target_return is 1\)"):
        agent.predict(np.stack([OBS, OBS]), reward=np.zeros(2))


def test_the_scale_of_a_new_config_counts_at_once() -> None:
    """Twice the target in units of twice the size is the same number for the network."""
    agent = make_agent()
    wanted, _ = agent.predict(OBS)
    agent.target_return *= 2
    doubled, _ = agent.predict(OBS)
    assert not np.array_equal(doubled, wanted)
    agent.config = agent.config.model_copy(update={"rtg_scale": 2 * agent.config.rtg_scale})
    np.testing.assert_array_equal(agent.predict(OBS)[0], wanted)
