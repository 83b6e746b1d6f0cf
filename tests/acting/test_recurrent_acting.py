"""Acting step by step from a memory: the same actions as from a window that holds the whole episode."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import make_agent
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from agentzoo.acting.modes import MemoryState
from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, ShapeError
from agentzoo.evaluation.results import evaluate
from agentzoo.evaluation.rollout import run_episode, run_seeded
from agentzoo.models.dm import DMConfig

STEPS = 30
SMALL = DMConfig(embed_dim=16, n_layers=2, state_size=4)


def make_pair(env_id: str = "tests/Counting-v0") -> tuple[Agent, Agent]:
    """The same network acting from a window longer than anything here, and from its memory."""
    window = make_agent(env_id, SMALL, context=STEPS + 10)
    recurrent = copy.deepcopy(window)
    recurrent.acting = "recurrent"
    return window, recurrent


@pytest.mark.parametrize("env_id", ["tests/Counting-v0", "tests/CountingDiscrete-v0"])
def test_recurrent_acts_as_a_window_that_holds_the_whole_episode(env_id: str) -> None:
    """Three environments whose episodes begin at different times."""
    rng = np.random.default_rng(0)
    states: list[object] = [None, None]
    agents = make_pair(env_id)
    for step in range(STEPS):
        observations = rng.standard_normal((3, 3)).astype(np.float32)
        starts = np.array([step == 0, step % 7 == 0, step == 11])
        rewards = rng.uniform(0, 3, 3)
        found = []
        for i, agent in enumerate(agents):
            actions, states[i] = agent.predict(observations, states[i], starts, True, reward=rewards)  # type: ignore[arg-type]
            found.append(actions)
        np.testing.assert_allclose(found[1], found[0], atol=2e-5, rtol=1e-4)


def test_float64_actions_come_back_as_the_network_reads_them() -> None:
    """In PyTorch, as where there is no compiler; C does not know these input maps."""
    agent = make_agent(model=SMALL.model_copy(update={"input_map": "linear"}))
    agent.acting = "recurrent"
    io = agent.config.io
    wide = io.model_copy(update={"action": io.action.model_copy(update={"dtype": "float64"})})
    double = Agent(agent.model, agent.config.model_copy(update={"io": wide}))
    double.acting = "recurrent"
    states: list[object] = [None, None]
    for _ in range(3):
        found = []
        for i, one in enumerate((agent, double)):
            action, states[i] = one.predict(np.ones(3, np.float32), states[i], reward=1.0)  # type: ignore[arg-type]
            found.append(action)
        assert [action.dtype for action in found] == [np.float32, np.float64]
        np.testing.assert_array_equal(*found)


def test_both_states_say_what_is_still_to_come() -> None:
    """Right after a reset too, where a window's last place is padding."""
    rewards = np.array([[0.0, 0.0], [4.0, 1.0], [0.0, 2.0]])
    for agent in make_pair():
        state = None
        for reward, start, expected in zip(rewards, (True, False, False), ([50, 50], [46, 49], [50, 47]), strict=True):
            starts = np.array([start or reward[0] == 0.0, start])  # the first environment starts again at the end
            _, state = agent.predict(np.zeros((2, 3), np.float32), state, starts, reward=reward)
            assert state.newest_return_to_go().tolist() == expected


def test_one_by_one_equals_the_batch_and_states_that_came_in_stay_as_they_were() -> None:
    _, agent = make_pair()
    rng = np.random.default_rng(1)
    together, alone = None, [None, None]
    for _ in range(5):
        observations = rng.standard_normal((2, 3)).astype(np.float32)
        before = copy.deepcopy(together)
        actions, after = agent.predict(observations, together, reward=np.ones(2))
        if together is not None:
            assert all(torch.equal(a, b) for a, b in zip(together.memory, before.memory, strict=True))
        together = after
        for i in range(2):
            action, alone[i] = agent.predict(observations[i], alone[i], reward=1.0)
            np.testing.assert_allclose(action, actions[i], atol=1e-5, rtol=1e-4)  # without AVX-512 6e-5 were seen


def test_evaluation_steps_environments_side_by_side_as_alone() -> None:
    _, agent = make_pair("CartPole-v1")
    envs = [gym.make("CartPole-v1") for _ in range(3)]
    side_by_side = run_seeded(agent, envs, 5)
    alone = [run_episode(agent, envs[0], one.seed) for one in side_by_side if one.seed is not None]
    np.testing.assert_allclose([a.total_reward for a in alone], [b.total_reward for b in side_by_side], rtol=1e-5)
    assert [a.length for a in alone] == [b.length for b in side_by_side]


def test_stock_evaluate_policy_and_the_return_to_go_of_a_memory() -> None:
    _, agent = make_pair()
    vec_env = make_vec_env("tests/Counting-v0", n_envs=2)
    agent.set_env(vec_env)
    evaluate_policy(agent, vec_env, n_eval_episodes=4)
    assert agent.rtg_source == "env"
    _, state = agent.predict(np.zeros(3, dtype=np.float32), reward=0.0)
    _, state = agent.predict(np.zeros(3, dtype=np.float32), state, reward=4.0)
    assert isinstance(state, MemoryState)
    assert state.returns_to_go.tolist() == [46.0]  # 50 asked, 4 received
    assert state.timesteps.tolist() == [1]


def test_a_new_target_counts_from_now_on_for_a_memory_too() -> None:
    for agent in make_pair():
        _, state = agent.predict(np.zeros((2, 3), np.float32), reward=np.zeros(2))
        _, state = agent.predict(np.zeros((2, 3), np.float32), state, reward=np.array([4.0, 1.0]))
        agent.condition(target_return=[100.0, 50.0])
        _, state = agent.predict(np.zeros((2, 3), np.float32), state, reward=np.array([1.0, 1.0]))
        assert state.newest_return_to_go().tolist() == [100.0 - 5.0, 50.0 - 2.0]
        assert state.targets.tolist() == [100.0, 50.0]


def test_results_say_how_the_agent_acted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))
    window, recurrent = make_pair()
    recurrent.save_pretrained(tmp_path / "dt-test")
    assert evaluate(window, episodes=2).acting == "window"
    assert evaluate(recurrent, episodes=2).acting == "recurrent"
    assert "--acting recurrent" in evaluate(recurrent, episodes=2).command


def test_a_state_of_the_other_way_or_another_size_is_refused() -> None:
    window, recurrent = make_pair()
    obs = np.zeros(3, dtype=np.float32)
    _, kept = window.predict(obs, reward=0.0)
    _, memory = recurrent.predict(obs, reward=0.0)
    with pytest.raises(ShapeError, match="AgentState"):
        recurrent.predict(obs, kept, reward=0.0)
    with pytest.raises(ShapeError, match="MemoryState"):
        window.predict(obs, memory, reward=0.0)
    with pytest.raises(ShapeError, match="state holds 1 environment,"):
        recurrent.predict(np.stack([obs, obs]), memory, reward=0.0)
    other = make_agent("tests/Counting-v0", SMALL.model_copy(update={"state_size": 5}))
    other.acting = "recurrent"
    with pytest.raises(ShapeError, match="memory"):
        other.predict(obs, memory, reward=0.0)


@pytest.mark.parametrize(
    ("field", "shape", "needs"),
    [
        ("actions", (1, 2), "(3, 2)"),
        ("returns_to_go", (1,), "(3,)"),  # NumPy would give every environment the first one's
        ("targets", (1,), "(3,)"),
        ("recorded", (3, 1), "(3, 2)"),
    ],
)
def test_a_state_that_was_put_together_wrongly_is_refused(field: str, shape: tuple[int, ...], needs: str) -> None:
    _, agent = make_pair()
    obs = np.zeros((3, 3), np.float32)
    _, state = agent.predict(obs)
    assert isinstance(state, MemoryState)
    with pytest.raises(ShapeError, match=re.escape(f"state.{field} has shape {shape}, this agent needs {needs}.")):
        agent.predict(obs, state._replace(**{field: np.zeros(shape)}))  # type: ignore[arg-type]
    fewer = type(state.memory)(*(part[:1] for part in state.memory))
    with pytest.raises(ShapeError, match=r"state\.memory has shape"):
        agent.predict(obs, state._replace(memory=fewer))


def test_another_network_acts_in_the_chosen_way() -> None:
    _, agent = make_pair()
    agent.model = copy.deepcopy(agent.model)
    assert agent.acting == "recurrent"


def test_recurrent_acting_is_refused_by_a_family_without_it() -> None:
    agent = make_agent()
    with pytest.raises(ConfigError, match="'dt' network has no recurrent form"):
        agent.acting = "recurrent"
    with pytest.raises(ConfigError, match="'window' or 'recurrent'"):
        agent.acting = "fast"  # type: ignore[assignment]
    assert agent.acting == "window"
    agent.predict(np.zeros(3, dtype=np.float32), reward=0.0)
