"""Masked agents act: the window they see, goals and waypoints, through stock SB3 code."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import make_agent
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from agentzoo.acting.conditions import Conditions
from agentzoo.acting.history import AgentState, append, empty_state, newest, with_actions
from agentzoo.agent import Agent
from agentzoo.envs import DOORKEY
from agentzoo.errors import ConfigError, ObservationError, ShapeError, SpaceError
from agentzoo.evaluation.rollout import rollout, run_episode, run_seeded
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.nn.masked_model import Known
from agentzoo.nn.masking import Masking
from masked.cases import SIZES, doorkey_agent


def counting_agent(**config: Any) -> Agent:
    """Context 4, observations (3,), Box actions (2,)."""
    return make_agent(model=UniMaskConfig(**{**SIZES, **config}))


def spy(agent: Agent) -> list[tuple[Any, Masking]]:
    """Collects what the network is given."""
    seen: list[tuple[Any, Masking]] = []
    forward = agent.model.forward

    def note(batch: Any, masking: Masking) -> Any:
        seen.append((batch, masking.within(batch.valid)))
        return forward(batch, masking)

    agent.model.forward = note  # type: ignore[method-assign]
    return seen


def row(mask: torch.Tensor) -> str:
    """The four steps of the first window; those it leaves out are hidden."""
    return "".join(".x"[int(on)] for on in mask[0]).ljust(4, ".")


def run(agent: Agent, steps: int, **predict: Any) -> None:
    state = None
    for t in range(steps):
        obs = np.array([t, 10 + t, 0.5], dtype=np.float32)
        _, state = agent.predict(predict.get("wrap", lambda o: o)(obs), state, deterministic=True, reward=1.0)


def test_the_first_window_shows_the_first_observation_and_the_return_alone() -> None:
    for acts_on_returns in (True, False):
        agent = counting_agent(acts_on_returns=acts_on_returns)
        seen = spy(agent)
        run(agent, 1)
        batch, masking = seen[0]
        assert (row(masking.observations), row(masking.actions)) == ("x...", "....")
        assert row(masking.returns) == ("x..." if acts_on_returns else "....")
        assert float(batch.returns_to_go[0, 0]) == pytest.approx(50.0 / 10.0)


def test_windows_fill_then_slide_and_the_return_is_that_of_their_first_step() -> None:
    agent = counting_agent()
    seen = spy(agent)
    run(agent, 6)
    shown = [(row(m.observations), row(m.actions), row(m.returns)) for _, m in seen]
    assert shown[1] == ("xx..", "x...", "x...")
    assert shown[3] == shown[5] == ("xxxx", "xxx.", "x...")
    last, _ = seen[5]
    assert last.timesteps[0].tolist() == [2, 3, 4, 5]
    assert last.observations[0, :, 0].tolist() == [2, 3, 4, 5]
    assert float(last.returns_to_go[0, 0]) == pytest.approx((50.0 - 2.0) / 10.0)  # two rewards of 1 before step 2


def test_a_goal_keeps_the_last_place_of_the_window() -> None:
    agent = counting_agent().condition(goal=[7.0, 8.0, 9.0])
    seen = spy(agent)
    run(agent, 6)
    shown = [(row(m.observations), row(m.actions)) for _, m in seen]
    assert shown[0] == ("x..x", "....")
    assert shown[2] == shown[5] == ("xxxx", "xx..")
    for batch, _ in seen:
        assert batch.observations[0, 3].tolist() == [7.0, 8.0, 9.0]
    assert seen[5][0].observations[0, :3, 0].tolist() == [3, 4, 5]
    assert seen[5][0].timesteps[0, :3].tolist() == [3, 4, 5]


def test_waypoints_stand_at_their_steps_until_they_are_past() -> None:
    agent = counting_agent().condition(waypoints={2: [5.0, 5.0, 5.0], 5: [6.0, 6.0, 6.0]})
    seen = spy(agent)
    run(agent, 6)
    shown = [row(m.observations) for _, m in seen]
    assert shown[0] == "x.x."
    assert seen[0][0].observations[0, 2].tolist() == [5.0, 5.0, 5.0]
    assert shown[1] == "xxx."  # step 5 is not in the window yet
    assert shown[2] == "xxx."  # step 2 is now what was really seen
    assert seen[2][0].observations[0, 2].tolist() == [2.0, 12.0, 0.5]
    assert shown[3] == "xxxx"
    assert seen[5][0].observations[0, 3].tolist() == [5.0, 15.0, 0.5]


def test_acting_may_read_the_newest_steps_alone() -> None:
    """With two steps of a window of four, the third window is that of an episode that began a step later."""
    agent = counting_agent()
    agent.history = 2
    seen = spy(agent)
    run(agent, 3)
    batch, masking = seen[2]
    assert (row(masking.observations), row(masking.actions), row(masking.returns)) == ("xx..", "x...", "x...")
    assert batch.observations[0, :2, 0].tolist() == [1.0, 2.0]  # the first number counts the steps
    assert batch.timesteps[0, :2].tolist() == [1, 2]
    agent = counting_agent()
    agent.history = 2
    seen = spy(agent)
    agent.condition(goal=np.full(3, 9.0, np.float32))
    run(agent, 3)
    batch, masking = seen[2]
    assert row(masking.observations) == "xx.x"  # the goal keeps the last place
    assert batch.observations[0, :, 0].tolist() == [1.0, 2.0, 0.0, 9.0]


@pytest.mark.parametrize(("history", "ahead"), [(1, 3), (2, 2), (3, 1), (4, 1), (None, 1)])
def test_a_goal_is_as_many_steps_ahead_as_the_window_has_room_for(history: int | None, ahead: int) -> None:
    """In a window of K=4 steps the goal is K - history steps ahead of the newest, as a waypoint there is."""
    agent = counting_agent()
    agent.history = history
    seen = spy(agent)
    goal = np.full(3, 9.0, np.float32)
    run(agent.condition(goal=goal), 5)
    agent.history = min(history or 3, 3)  # a goal takes a place, a waypoint only where it is
    run(agent.condition(waypoints={4 + ahead: goal}), 5)
    for told, known in zip(seen[4][0].observations[0], seen[9][0].observations[0], strict=True):
        assert told.tolist() == known.tolist()
    assert row(seen[4][1].observations) == row(seen[9][1].observations)


def test_waypoints_beyond_a_full_window_are_warned_of() -> None:
    agent, point = counting_agent(), np.full(3, 9.0, np.float32)
    seen = spy(agent)
    with pytest.warns(UserWarning, match=r"waypoints of steps \[4, 9\] have no effect: from step 3 on .* to 1, before"):
        agent.condition(waypoints={3: point, 4: point, 9: point})
    run(agent, 12)
    assert [t for t, (batch, _) in enumerate(seen) if 9.0 in batch.observations[..., 2]] == [0, 1, 2]  # that of step 3
    agent.history = 1
    seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.condition(waypoints={9: point})
    run(agent, 12)
    assert [t for t, (batch, _) in enumerate(seen) if 9.0 in batch.observations[..., 2]] == [6, 7, 8]  # K - 1 before


def test_goals_change_actions_and_can_be_taken_back() -> None:
    agent = counting_agent()
    obs = np.zeros((2, 3), dtype=np.float32)
    plain, _ = agent.predict(obs, None, deterministic=True)
    told, _ = agent.condition(goal=np.stack([[3.0, 0, 0], [0, 0, 3.0]])).predict(obs, None, deterministic=True)
    assert not np.allclose(plain, told, atol=1e-4)
    assert not np.allclose(told[0], told[1], atol=1e-4)  # each environment its own
    for i, goal in enumerate(([3.0, 0, 0], [0, 0, 3.0])):
        alone, _ = agent.condition(goal=goal).predict(obs[i], None, deterministic=True)
        np.testing.assert_allclose(alone, told[i], atol=1e-5)
    again, _ = agent.condition().predict(obs, None, deterministic=True)
    np.testing.assert_array_equal(again, plain)
    assert agent.condition(target_return=7.0).target_return == 7.0


def test_a_goal_in_the_observation_is_the_same_as_a_condition() -> None:
    obs, goal = np.ones(3, dtype=np.float32), np.array([3.0, 0.0, 1.0])
    agent = counting_agent()
    inside, _ = agent.predict({"observation": obs, "goal": goal}, None, deterministic=True)
    plain, _ = agent.predict(obs, None, deterministic=True)
    told, _ = agent.condition(goal=goal).predict(obs, None, deterministic=True)
    np.testing.assert_array_equal(inside, told)
    assert not np.array_equal(inside, plain)
    door = doorkey_agent()
    cells = np.eye(16, dtype=np.float32)
    seen = {"agent": cells[0], "key": cells[3]}
    there = {"agent": cells[15], "key": cells[15]}
    a, _ = door.predict({**seen, "goal": there}, None, deterministic=True)
    b, _ = door.condition(goal=there).predict(seen, None, deterministic=True)
    assert a == b
    c, _ = door.predict({**seen, "goal": cells[15]}, None, deterministic=True)  # a key of the environment, not read
    d, _ = door.condition().predict(seen, None, deterministic=True)
    assert c == d
    with pytest.raises(ShapeError, match="needs \\['key'\\] in the observation"):
        door.predict({**seen, "goal": {"agent": there["agent"]}}, None)


def test_the_reward_beside_a_goal_counts() -> None:
    agent = counting_agent()
    seen = {"observation": np.ones(3), "goal": np.ones(3), "reward": np.array([4.0])}
    _, state = agent.predict(seen, None)
    _, state = agent.predict(seen, state)
    assert state.newest_return_to_go().tolist() == [agent.target_return - 4.0]
    assert agent.rtg_source == "observation"
    with pytest.raises(ShapeError, match=r"obs\['reward'\] must hold numbers"):
        agent.predict({**seen, "reward": "much"}, state)


def test_an_environment_that_names_its_goals_can_be_bound() -> None:
    class Goals(gym.ObservationWrapper[Any, Any, Any]):
        def __init__(self, env: gym.Env[Any, Any]) -> None:
            super().__init__(env)
            own = env.observation_space
            self.observation_space = gym.spaces.Dict({"observation": own, "goal": own})

        def observation(self, observation: Any) -> Any:
            return {"observation": observation, "goal": observation + 1}

    agent, env = counting_agent(), Monitor(Goals(gym.make("tests/Counting-v0")))
    agent.set_env(env)
    mean, _ = evaluate_policy(agent, env, n_eval_episodes=1)
    assert np.isfinite(mean)
    with pytest.raises(SpaceError, match="observations"):
        make_agent().set_env(env)  # no masked agent: it has no use for a goal


def test_rollouts_read_goals_among_keys_and_pass_over_other_keys() -> None:
    """`trail` has as many numbers as the agent's cell says, so no common shape in two environments."""
    space, cells = gym.make(DOORKEY).observation_space, np.eye(16, dtype=np.float32)

    class Named(gym.ObservationWrapper[Any, Any, Any]):
        def __init__(self, env: gym.Env[Any, Any]) -> None:
            super().__init__(env)
            trail = gym.spaces.Sequence(gym.spaces.Discrete(3))
            self.observation_space = gym.spaces.Dict({**space.spaces, "goal": space, "trail": trail})  # type: ignore[attr-defined]

        def observation(self, observation: Any) -> Any:
            trail = tuple(range(int(observation["agent"].argmax()) % 3))
            return {**observation, "goal": {"agent": cells[15], "key": cells[15]}, "trail": trail}

    agent, env = doorkey_agent(), Named(gym.make(DOORKEY))
    seen = spy(agent)
    run_episode(agent, env, 10_000)
    rollout(agent, env, 1)
    run_seeded(agent, [Named(gym.make(DOORKEY)) for _ in range(4)], 4, deterministic=False)
    assert {row(masking.observations)[-1] for _, masking in seen} == {"x"}  # the goal, in each step of each


def test_wrong_conditions_are_explained() -> None:
    agent = counting_agent()
    with pytest.raises(ShapeError, match=r"expects \(3,\) or \(N, 3\)"):
        agent.condition(goal=np.zeros(4))
    with pytest.raises(ShapeError, match="waypoints map environment steps"):
        agent.condition(waypoints={-1: np.zeros(3)})
    for waypoints in ([np.zeros(3)], np.zeros((2, 3))):
        with pytest.raises(ShapeError, match=r"waypoints map .*, for example \{7: obs\}; got (list|ndarray)"):
            agent.condition(waypoints=waypoints)
    agent.condition(goal=np.zeros((3, 3)))
    with pytest.raises(ShapeError, match="given for 3 environments, the observation has 2"):
        agent.predict(np.zeros((2, 3)), None)
    one = make_agent(model=UniMaskConfig(**SIZES), context=1).condition(goal=np.zeros(3))
    with pytest.raises(ConfigError, match="it needs a context of at least 2"):
        one.predict(np.zeros(3), None)
    with pytest.raises(ConfigError, match="'dt' network cannot be given a goal"):
        make_agent().predict({"observation": np.zeros(3), "goal": np.zeros(3)}, None)


def test_a_wrong_goal_or_waypoint_is_named() -> None:
    """Its message was that of the observation, which may be right."""
    agent, now = counting_agent(), np.zeros(3)
    with pytest.raises(ShapeError, match=r"^the goal: obs has shape \(2,\); dt-test expects \(3,\) or"):
        agent.condition(goal=np.zeros(2))
    with pytest.raises(ObservationError, match=r"^the waypoint of step 7: obs holds nan at environment 0, number 1"):
        agent.condition(waypoints={5: now, 7: [0.0, np.nan, 0.0]})
    with pytest.raises(ObservationError, match=r"^the goal: obs holds inf at environment 0, number 2"):
        agent.predict({"observation": now, "goal": [0.0, 0.0, np.inf]}, reward=0.0)
    with pytest.raises(ObservationError, match=r"^obs holds nan at environment 0, number 0"):
        agent.predict({"observation": np.full(3, np.nan), "goal": now}, reward=0.0)
    assert not agent.is_conditioned


def test_newest_steps_of_a_history() -> None:
    agent = counting_agent()
    state = empty_state(agent.config.io, 2)
    for t in range(5):
        starts = np.array([False, t == 3])
        state = append(state, np.full((2, 3), t, dtype=np.float32), np.array([9.0 - t, 5.0]), starts)
        state = with_actions(state, np.full((2, 2), t / 10, dtype=np.float32))
    short = newest(state, 3)
    assert short.length.tolist() == [3, 2]
    assert short.observations[:, :, 0].tolist() == [[2, 3, 4, 0], [3, 4, 0, 0]]
    np.testing.assert_allclose(short.actions[0, :, 0], [0.2, 0.3, 0.4, 0.0])
    assert short.returns_to_go[0].tolist() == [7, 6, 5, 0]
    assert short.timesteps.tolist() == state.timesteps.tolist() == [4, 1]
    assert newest(short, 3) is short
    assert isinstance(short, AgentState)


def test_known_observations_behind_the_newest_step_are_ignored() -> None:
    agent = counting_agent()
    state = append(empty_state(agent.config.io, 1), np.ones((1, 3), np.float32), np.zeros(1), np.array([True]))
    conditions = Conditions(waypoints={0: np.full((1, 3), 9.0, np.float32)})
    batch, known = conditions.place(state, 1.0, torch.device("cpu"))
    assert not known.shown.any()
    everything = Known(torch.full_like(batch.observations, 9.0), torch.ones_like(batch.valid))
    model = agent.model
    only_ahead = Known(everything.observations, ~batch.valid)
    with torch.no_grad():
        assert torch.equal(model.act_knowing(batch, everything), model.act_knowing(batch, only_ahead))  # type: ignore[operator]


def test_stock_sb3_evaluates_a_masked_agent() -> None:
    vec_env = make_vec_env(DOORKEY, n_envs=3, seed=1)
    agent = doorkey_agent()
    agent.set_env(vec_env)
    agent.set_random_seed(0)
    returns, lengths = evaluate_policy(agent, vec_env, 6, deterministic=False, return_episode_rewards=True)
    assert lengths == [10] * 6
    assert all(-9.0 <= total <= 9.0 for total in returns)
    assert agent.rtg_source == "env"


def test_parts_of_a_question_with_other_numbers_of_steps_are_named() -> None:
    agent = make_agent("tests/CountingDict-v0", UniMaskConfig(**SIZES))
    parts = {key: np.ones((4, *agent.observation_space[key].shape)) for key in ("a", "b")}  # type: ignore[index]
    assert agent.infer(observations=parts) is not None
    with pytest.raises(ShapeError, match=r"windows or steps: 'a' has shape \(4, .*\), 'b' has shape \(3, .*\)\.$"):
        agent.infer(observations={**parts, "b": parts["b"][1:]})
