"""Loops of users' own: a plain one with `reward=`, and Gymnasium's vector environments, which reset a step later."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import ClosingEnv, CountingEnv, make_agent
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from agentzoo.acting.reward_records import BoundEnv
from agentzoo.agent import Agent
from agentzoo.env_ids import same_but_version
from agentzoo.errors import ConfigError, SpaceError
from agentzoo.evaluation.results import evaluate

N = 2
TARGET = 50.0


def vector_env(late: bool = True) -> gym.vector.VectorEnv[Any, Any, Any]:
    mode = gym.vector.AutoresetMode.NEXT_STEP if late else gym.vector.AutoresetMode.SAME_STEP
    made = [lambda length=length: CountingEnv(length) for length in (3, 5)]
    return gym.wrappers.vector.RecordEpisodeStatistics(gym.vector.SyncVectorEnv(made, autoreset_mode=mode))


def newest(state: Any) -> np.ndarray:
    """(N,) the return-to-go of the last call."""
    return np.asarray(state.newest_return_to_go())


def still_to_come(observations: np.ndarray) -> np.ndarray:
    """(N,) the target less the rewards 1, 2, ... of the steps an observation counts."""
    now = observations[:, 0]
    return np.asarray(TARGET - now * (now + 1) / 2)


def test_a_plain_loop_that_passes_rewards() -> None:
    agent, env = make_agent(), CountingEnv()
    observation, _ = env.reset(seed=0)
    state, reward, done, step = None, 0.0, False, 0
    while not done:
        action, state = agent.predict(observation, state, reward=reward)
        assert newest(state) == TARGET - step * (step + 1) / 2
        observation, reward, terminated, truncated, _ = env.step(action)
        done, step = terminated or truncated, step + 1
    assert agent.rtg_source == "reward"


@pytest.mark.parametrize("passes", [True, False])
def test_a_vector_loop_that_counts_starts_one_step_late(passes: bool) -> None:
    """As README has it: an observation is the first of an episode where the step before it ended one."""
    envs = vector_env()
    agent = make_agent()
    if not passes:
        agent.set_env(envs)
    observations, _ = envs.reset(seed=0)
    state, rewards, starts, ended = None, np.zeros(N), np.ones(N, bool), np.zeros(N, bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(25):
            given = {"reward": rewards} if passes else {}
            actions, state = agent.predict(observations, state, starts, deterministic=True, **given)
            np.testing.assert_allclose(newest(state), still_to_come(observations), atol=1e-4)
            observations, rewards, terminations, truncations, _ = envs.step(actions)
            starts, ended = ended, terminations | truncations


def test_a_vector_loop_that_marks_no_starts_is_warned_once() -> None:
    """Nothing shows where its episodes begin; all rows may still begin together, with state=None."""
    envs, agent = vector_env(), make_agent()
    observations, _ = envs.reset(seed=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, state = agent.predict(observations, None, reward=np.zeros(N))
        agent.predict(observations, None, reward=np.ones(N))
        assert [str(one.message) for one in caught if "episode_start" in str(one.message)] == []
        for _ in range(3):
            _, state = agent.predict(observations, state, reward=np.ones(N))
    (said,) = [one for one in caught if "episode_start" in str(one.message)]
    assert str(said.message).startswith("predict got 2 observations with their rewards but no episode_start: a row")
    assert said.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = make_agent()
        _, state = other.predict(observations[:1], None, reward=0.0)
        other.predict(observations[:1], state, reward=1.0)  # the caller of one environment knows where it begins


@pytest.mark.parametrize("names", ["ends", "nothing"])
def test_a_bound_vector_env_corrects_a_loop_in_the_manner_of_sb3(names: str) -> None:
    """`terminations | truncations` name the last observation of an episode; the environment says which one is first."""
    envs = vector_env()
    agent = make_agent()
    agent.set_env(envs)
    observations, _ = envs.reset(seed=0)
    state, starts, ended = None, np.ones(N, bool), np.zeros(N, bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(25):
            actions, state = agent.predict(observations, state, starts, deterministic=True)
            counts = ~ended  # the env ignores the action after the last observation of an episode
            np.testing.assert_allclose(newest(state)[counts], still_to_come(observations)[counts], atol=1e-4)
            observations, _, terminations, truncations, _ = envs.step(actions)
            ended = terminations | truncations
            starts = ended if names == "ends" else np.zeros(N, bool)
    assert agent.rtg_source == "env"


@pytest.mark.parametrize("marks", [True, False])
def test_a_loop_that_passes_rewards_is_corrected_too(marks: bool) -> None:
    """By a VectorEnv that resets a step late, with and without `episode_start`; by SB3's VecEnv, without it."""
    envs = vector_env()
    agent = make_agent()
    agent.set_env(envs)
    observations, _ = envs.reset(seed=0)
    state, rewards, ended = None, np.zeros(N), np.ones(N, bool)
    for step in range(25):
        actions, state = agent.predict(observations, state, ended if marks else None, reward=rewards)
        counts = ~ended | (step == 0)
        np.testing.assert_allclose(newest(state)[counts], still_to_come(observations)[counts], atol=1e-4)
        observations, rewards, terminations, truncations, _ = envs.step(actions)
        ended = terminations | truncations
    venv = VecMonitor(DummyVecEnv([lambda length=length: CountingEnv(length) for length in (3, 5)]))
    agent.set_env(venv)
    seen: Any = venv.reset()
    state, rewards, done = None, np.zeros(N), np.ones(N, bool)
    for _ in range(25):
        actions, state = agent.predict(seen, state, done if marks else None, reward=rewards)
        np.testing.assert_allclose(newest(state), still_to_come(seen), atol=1e-4)
        seen, rewards, done, _ = venv.step(actions)


def test_an_evaluation_does_not_depend_on_the_bound_environment() -> None:
    """Its batch shrinks as episodes end, and passes the number of the bound environments on the way."""
    agent = Agent.from_pretrained("zoo/dt-cartpole-mixed", device="cpu")
    agent.target_return = 40.0
    unbound = evaluate(agent, episodes=8, n_envs=8).returns
    assert len(set(unbound)) > 3
    bound = gym.wrappers.vector.RecordEpisodeStatistics(gym.make_vec("CartPole-v1", num_envs=2))
    bound.reset(seed=0)
    agent.set_env(bound)
    assert evaluate(agent, episodes=8, n_envs=8).returns == unbound


def test_the_right_environment_may_be_bound_in_the_middle() -> None:
    """As the warning advises; what was earned in the meantime counts."""
    envs, wrong = vector_env(), gym.wrappers.vector.RecordEpisodeStatistics(gym.vector.SyncVectorEnv([CountingEnv] * 3))
    agent = make_agent()
    agent.set_env(wrong)
    wrong.reset(seed=0)
    observations, _ = envs.reset(seed=0)
    actions, state = agent.predict(observations, None)
    observations, *_ = envs.step(actions)
    with pytest.warns(UserWarning, match=r"Call agent.set_env\(...\) with the environment that you step"):
        actions, state = agent.predict(observations, state)
    agent.set_env(envs)
    observations, *_ = envs.step(actions)
    _, state = agent.predict(observations, state)
    np.testing.assert_allclose(newest(state), still_to_come(observations), atol=1e-4)


def test_two_vector_envs_may_be_played_in_turn() -> None:
    """The bound one begins episodes in the middle of those of the other one."""
    agent = make_agent()
    played = [vector_env(), vector_env()]
    agent.set_env(played[0])
    made = gym.vector.SyncVectorEnv([lambda: CountingEnv(11)] * N)
    played[1] = gym.wrappers.vector.RecordEpisodeStatistics(made)
    observations = [envs.reset(seed=0)[0] for envs in played]
    states, rewards = [None, None], [np.zeros(N)] * 2
    starts, ended = [np.ones(N, bool)] * 2, [np.zeros(N, bool)] * 2
    for step in range(10):
        for i, envs in enumerate(played):
            actions, states[i] = agent.predict(observations[i], states[i], starts[i], reward=rewards[i])
            observations[i], rewards[i], terminations, truncations, _ = envs.step(actions)
            starts[i], ended[i] = ended[i], terminations | truncations
        state: Any = states[1]
        assert (state.timesteps == step).all()


def test_a_vector_env_that_resets_at_once_is_read_as_before() -> None:
    envs = vector_env(late=False)
    agent = make_agent()
    agent.set_env(envs)
    observations, _ = envs.reset(seed=0)
    state, starts = None, np.ones(N, bool)
    for _ in range(25):
        actions, state = agent.predict(observations, state, starts, deterministic=True)
        np.testing.assert_allclose(newest(state), still_to_come(observations), atol=1e-4)
        observations, _, terminations, truncations, _ = envs.step(actions)
        starts = terminations | truncations


def test_a_vector_env_made_later_does_not_change_how_one_resets() -> None:
    """Before gymnasium 1.4 both have the same dict as metadata, and the second one writes its mode into it."""
    first, second = (
        gym.vector.SyncVectorEnv([CountingEnv], autoreset_mode=mode)
        for mode in (gym.vector.AutoresetMode.NEXT_STEP, gym.vector.AutoresetMode.DISABLED)
    )
    agent = make_agent()
    returns = evaluate(agent, second, episodes=4).returns
    first.metadata, second.metadata = second.metadata, first.metadata
    assert evaluate(agent, second, episodes=4).returns == returns
    for env in (first, gym.wrappers.vector.RecordEpisodeStatistics(first)):
        bound = BoundEnv.of(env)
        assert (bound.resets_late, bound.resets_itself) == (True, True)
    bound = BoundEnv.of(second)
    assert (bound.resets_late, bound.resets_itself) == (False, False)


def test_a_bound_vector_env_that_nobody_steps_starts_no_episodes() -> None:
    envs, other = vector_env(), vector_env()
    agent = make_agent()
    agent.set_env(other)
    other.reset(seed=0)
    observations, _ = envs.reset(seed=0)
    _, state = agent.predict(observations, None, np.ones(N, bool))
    with pytest.warns(UserWarning, match="is not the environment being played"):
        _, state = agent.predict(observations, state)
    _, state = agent.predict(observations, state)
    assert (state.timesteps == 2).all()


gym.register("tests/CountingTwin-v0", CountingEnv)


def agent_of_options() -> Agent:
    return make_agent(env_options={"length": 5})


def test_binding_an_environment_of_other_options_says_how_to_make_it() -> None:
    agent = agent_of_options()
    line = r"gym.make\('tests/Counting-v0', length=5\)"
    for other in (gym.make("tests/Counting-v0"), DummyVecEnv([lambda: gym.make("tests/Counting-v0", length=4)])):
        with pytest.warns(UserWarning, match=line) as said:
            agent.set_env(other)
        assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.set_env(gym.make("tests/Counting-v0", length=5))
        agent.set_env("tests/Counting-v0")
        agent.set_env(CountingEnv())  # of no id: its maker knows what it is


def test_another_environment_whose_spaces_fit_is_warned_of(tmp_path: Path) -> None:
    agent = make_agent()
    for env in (gym.make("tests/CountingTwin-v0"), gym.make_vec("tests/CountingTwin-v0", num_envs=2)):
        with pytest.warns(
            UserWarning, match=r"was trained for tests/Counting-v0; this is tests/CountingTwin-v0"
        ) as said:
            agent.set_env(env)
        assert said[0].filename == __file__
    folder = agent.save_pretrained(tmp_path / "agent")
    with pytest.warns(UserWarning, match="was trained for tests/Counting-v0; this is tests/CountingTwin-v0") as said:
        Agent.from_pretrained(folder, env="tests/CountingTwin-v0")
    assert said[0].filename == __file__
    with pytest.warns(UserWarning, match=r"was trained for tests/Counting-v0; this is tests/CountingTwin-v0"):
        evaluate(agent, "tests/CountingTwin-v0", episodes=1)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Hopper-v5", "Hopper-v4", True),
        ("Hopper-v5", "gymnasium:Hopper-v5", True),
        ("a/Maze-v10", "a/Maze-v3", True),
        ("Hopper-v5", "HalfCheetah-v5", False),
        ("a/Maze-v3", "b/Maze-v3", False),
        ("Cart-v2-v0", "Cart-v1-v0", False),
    ],
)
def test_versions_of_one_environment(one: str, other: str, same: bool) -> None:
    assert same_but_version(one, other) is same_but_version(other, one) is same


def test_an_environment_that_an_agent_creates_is_closed_when_another_one_is_bound() -> None:
    agent = make_agent()
    for env in ("tests/Closing-v0", "tests/Counting-v0", "tests/Closing-v0", None):
        agent.set_env(env)
        assert len(ClosingEnv.open) == (env == "tests/Closing-v0")
    agent.set_env("tests/Closing-v0")
    agent.set_env(agent.get_env())
    agent.set_env(VecMonitor(agent.get_env()))
    with pytest.raises(SpaceError):
        agent.set_env("CartPole-v1")
    assert len(ClosingEnv.open) == 1  # it is still bound
    agent.set_env(None)
    assert not ClosingEnv.open
    own = ClosingEnv()
    agent.set_env(own)
    agent.set_env(None)
    assert ClosingEnv.open == {id(own)}  # the caller closes it
    own.close()


def test_a_runtime_that_does_not_exist_leaves_no_environment_open(tmp_path: Path) -> None:
    folder = make_agent().save_pretrained(tmp_path / "agent")
    with pytest.raises(ConfigError, match="not 'onx'"):
        Agent.from_pretrained(folder, env="tests/Closing-v0", runtime="onx")  # type: ignore[arg-type]
    assert not ClosingEnv.open


def test_the_demo_of_loops_runs_as_it_is_written() -> None:
    """Rewards are 1, 2, 3, ... of each step."""
    path = Path(__file__).parents[2] / "demos" / "act_in_loops.py"
    demo: dict[str, Any] = runpy.run_path(str(path))
    ends = CountingEnv()
    ends.reset(seed=0)
    assert demo["plain_loop"](make_agent(), CountingEnv(), 100) == ends.end * (ends.end + 1) / 2
    assert demo["plain_loop"](make_agent(), CountingEnv(), 2) == 3.0
    agent = make_agent()
    assert demo["vector_loop"](agent, vector_env(), 3) == 12.0
    assert agent.rtg_source == "reward"


def test_an_old_gymnasium_that_miscounts_same_step_resets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent()
    monkeypatch.setattr(gym, "__version__", "1.3.0")
    before = vector_env(late=True)
    agent.set_env(before)
    with pytest.raises(ConfigError, match=r"gymnasium 1\.3\.0 counts wrong .* Install gymnasium 1\.4 or later"):
        agent.set_env(vector_env(late=False))
    assert agent.get_env() is before
    monkeypatch.setattr(gym, "__version__", "1.4.0")
    agent.set_env(vector_env(late=False))
