"""Which rewards `predict` takes off the target: those of a bound environment, its wrappers or the observation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import CountingEnv, doubled, make_agent
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize

from acting.cases import OBS, newest_rtg
from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, ShapeError, SpaceError, UnknownNameError
from agentzoo.models.bc import BCConfig


def test_reward_key_of_a_dict_observation_is_the_reward() -> None:
    agent = make_agent("tests/CountingDict-v0")
    obs = {"a": OBS[None], "b": OBS[None], "reward": np.array([3.0])}
    _, state = agent.predict(obs)
    _, state = agent.predict(obs, state)
    assert newest_rtg(state) == [47.0]
    assert agent.rtg_source == "observation"
    _, state = agent.predict(obs, state, reward=[1.0])  # the keyword wins
    assert newest_rtg(state) == [46.0]
    assert agent.rtg_source == "reward"


def test_reward_comes_from_a_bound_monitor() -> None:
    env = Monitor(CountingEnv())
    agent = make_agent()
    agent.set_env(env)
    obs, _ = env.reset(seed=0)
    state = None
    for t in range(5):
        action, state = agent.predict(obs, state)
        assert newest_rtg(state) == [50.0 - t * (t + 1) / 2]
        obs, *_ = env.step(action)
    assert agent.rtg_source == "env"


@pytest.mark.parametrize("autoreset", list(gym.vector.AutoresetMode))
def test_reward_comes_from_record_episode_statistics_of_a_vector_env(autoreset: gym.vector.AutoresetMode) -> None:
    envs = gym.vector.SyncVectorEnv([CountingEnv] * 2, autoreset_mode=autoreset)
    recorded = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    agent = make_agent()
    agent.set_env(recorded)
    obs, _ = recorded.reset(seed=0)
    state = None
    for t in range(4):
        action, state = agent.predict(obs, state)
        assert newest_rtg(state) == [50.0 - t * (t + 1) / 2] * 2
        obs, *_ = recorded.step(action)
    assert agent.rtg_source == "env"


def test_reward_comes_from_vec_monitor() -> None:
    env = VecMonitor(DummyVecEnv([CountingEnv] * 2))
    agent = make_agent()
    agent.set_env(env)
    obs, state = env.reset(), None
    for t in range(4):
        action, state = agent.predict(obs, state)
        assert newest_rtg(state) == [50.0 - t * (t + 1) / 2] * 2
        obs, *_ = env.step(action)


def monitor_inside() -> gym.Env[Any, Any]:
    return doubled(Monitor(CountingEnv()))


def monitor_outside() -> gym.Env[Any, Any]:
    return Monitor(doubled(CountingEnv()))


def with_rewards_of_its_own() -> gym.Env[Any, Any]:
    env = CountingEnv()
    env.rewards = [3.0, 5.0]  # type: ignore[attr-defined]
    return env


class Logs(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps attributes with the names of a recorder's, for its own purposes."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.rewards, self.episode_returns, self.episode_lengths = [1.0, -1.0], [], []  # type: ignore[var-annotated]


class OwnMonitor(Monitor[Any, Any]):
    """A subclass is a Monitor, too."""


def monitors() -> gym.Env[Any, Any]:
    return Monitor(monitor_inside())


def statistics(env: Any) -> Any:
    return gym.wrappers.vector.RecordEpisodeStatistics(env)


def act_three_times(agent: Agent, env: Any) -> list[float]:
    """The returns-to-go of the first environment."""
    agent.set_env(env)
    reset = env.reset()
    single = isinstance(env, gym.Env)
    obs, state, seen = reset[0] if isinstance(reset, tuple) else reset, None, []
    for _ in range(3):
        action, state = agent.predict(obs, state)
        seen.append(newest_rtg(state)[0])
        obs = env.step(np.asarray(action) if single else action)[0]
    env.close()
    return seen


@pytest.mark.parametrize(
    "make",
    [
        monitor_inside,
        monitors,
        lambda: Monitor(Logs(CountingEnv())),
        lambda: OwnMonitor(CountingEnv()),
        lambda: DummyVecEnv([lambda: Monitor(Logs(CountingEnv()))]),
        lambda: VecMonitor(DummyVecEnv([lambda: Logs(CountingEnv())])),
        lambda: gym.wrappers.RecordEpisodeStatistics(doubled(gym.wrappers.RecordEpisodeStatistics(CountingEnv()))),
        lambda: DummyVecEnv([monitors] * 2),
        lambda: DummyVecEnv([lambda: gym.wrappers.RecordEpisodeStatistics(CountingEnv())] * 2),
        lambda: gym.vector.SyncVectorEnv([lambda: gym.wrappers.RecordEpisodeStatistics(CountingEnv())] * 2),
        lambda: gym.vector.SyncVectorEnv([monitor_inside] * 2),
        lambda: SubprocVecEnv([monitor_inside], start_method="fork"),
        lambda: VecMonitor(SubprocVecEnv([with_rewards_of_its_own], start_method="fork")),
        lambda: VecMonitor(VecNormalize(VecMonitor(DummyVecEnv([CountingEnv])), norm_obs=False)),
        lambda: VecMonitor(VecNormalize(DummyVecEnv([CountingEnv]), norm_obs=False, norm_reward=False)),
        lambda: statistics(
            gym.wrappers.vector.NormalizeReward(statistics(gym.make_vec("tests/Counting-v0", num_envs=2)))
        ),
    ],
)
def test_the_innermost_that_keeps_rewards_is_read(make: Callable[[], Any]) -> None:
    agent = make_agent()
    assert act_three_times(agent, make()) == [50.0, 49.0, 47.0]
    assert agent.rtg_source == "env"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (monitor_outside, "TransformReward"),
        (lambda: gym.wrappers.RecordEpisodeStatistics(gym.wrappers.NormalizeReward(CountingEnv())), "NormalizeReward"),
        (lambda: DummyVecEnv([monitor_outside]), "TransformReward"),
        (lambda: SubprocVecEnv([monitor_outside], start_method="fork"), "TransformReward"),
        (lambda: VecMonitor(VecNormalize(DummyVecEnv([CountingEnv]), norm_obs=False)), "VecNormalize"),
        (lambda: VecMonitor(DummyVecEnv([lambda: doubled(CountingEnv())])), "TransformReward"),
        (lambda: statistics(gym.make_vec("tests/Counting-v0", num_envs=2, wrappers=[doubled])), "TransformReward"),
    ],
)
def test_rewards_that_a_wrapper_changed_are_not_read(make: Callable[[], Any], name: str) -> None:
    agent = make_agent()
    said = f"no reward unchanged by {name} reaches predict.*wrapped in Monitor inside {name}"
    with pytest.warns(UserWarning, match=said):
        assert act_three_times(agent, make()) == [50.0, 50.0, 50.0]
    assert agent.rtg_source == "constant"


def test_rewards_changed_in_the_processes_of_an_async_vector_env_are_not_read() -> None:
    agent = make_agent()
    env = statistics(gym.make_vec("tests/Counting-v0", 2, "async", {"context": "fork"}, wrappers=[doubled]))
    with pytest.warns(UserWarning, match=r"no reward unchanged by TransformReward .* without TransformReward"):
        assert act_three_times(agent, env) == [50.0, 50.0, 50.0]
    env = statistics(gym.make_vec("tests/Counting-v0", 2, "async", {"context": "fork"}))
    assert act_three_times(agent, env) == [50.0, 49.0, 47.0]


def test_an_agent_that_reads_neither_returns_nor_a_past_warns_of_neither(recwarn: pytest.WarningsRecorder) -> None:
    agent = make_agent("tests/Counting-v0", BCConfig(embed_dim=16), context=1)
    _, state = agent.predict(OBS)
    for _ in range(2):
        agent.predict(OBS)
        _, state = agent.predict(OBS, state)
    assert not recwarn.list
    agent = make_agent("tests/Counting-v0", BCConfig(embed_dim=16), context=2)
    agent.predict(OBS)
    with pytest.warns(UserWarning, match="without the state of an unfinished episode"):
        agent.predict(OBS)


def test_a_bound_environment_that_is_not_played_is_said_at_the_callers_line() -> None:
    agent = make_agent()
    bound = Monitor(CountingEnv())
    bound.reset(seed=0)
    agent.set_env(bound)
    _, state = agent.predict(OBS)
    said = r"^the bound environment is still at step 0 of its episode, the agent at step 1: it is not the env"
    with pytest.warns(UserWarning, match=said) as warned:
        _, state = agent.predict(OBS, state)
    assert warned[0].filename == __file__
    assert (newest_rtg(state), agent.rtg_source) == ([50.0], "constant")
    agent = make_agent()
    agent.set_env(VecMonitor(DummyVecEnv([CountingEnv] * 2)))
    _, state = agent.predict(OBS)
    with pytest.warns(UserWarning, match="holds 2 episodes, the observation 1: it is not") as warned:
        agent.predict(OBS, state)
    assert warned[0].filename == __file__


def test_without_any_reward_the_target_stays_and_one_warning_is_given() -> None:
    agent = make_agent()
    _, state = agent.predict(OBS)
    said = r"return-to-go stays at the target. Bind an environment wrapped in Monitor"
    with pytest.warns(UserWarning, match=said) as warned:
        _, state = agent.predict(OBS, state)
    assert warned[0].filename == __file__
    assert newest_rtg(state) == [50.0]
    assert agent.rtg_source == "constant"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.predict(OBS, state)


def test_a_first_step_without_a_source_forgets_the_last_one() -> None:
    agent = make_agent()
    agent.predict(OBS, reward=0.0)
    assert agent.rtg_source == "reward"
    agent.predict(OBS, None, np.array([True]))
    assert agent.rtg_source == "constant"


def test_no_environment_is_bound_any_more() -> None:
    agent = make_agent()
    agent.set_env(Monitor(CountingEnv()))
    agent.set_env(None)
    assert agent.get_env() is None
    _, state = agent.predict(OBS)
    with pytest.warns(UserWarning, match="no reward reaches predict"):
        agent.predict(OBS, state)


def test_a_bound_vector_environment_without_a_record_says_which_wrapper_keeps_one() -> None:
    recorder = gym.wrappers.vector.RecordEpisodeStatistics
    agent = make_agent()
    agent.set_env(gym.make_vec("tests/Counting-v0", num_envs=1))
    _, state = agent.predict(OBS[None])
    with pytest.warns(UserWarning, match=r"wrapped in gymnasium\.wrappers\.vector\.RecordEpisodeStatistics \("):
        agent.predict(OBS[None], state)
    env = recorder(gym.make_vec("tests/Counting-v0", num_envs=1))
    agent.set_env(env)
    observation, _ = env.reset(seed=0)
    action, state = agent.predict(observation)
    agent.predict(env.step(action)[0], state)
    assert agent.rtg_source == "env"


def test_plain_observations_may_come_beside_their_reward() -> None:
    """For every kind of agent, a Dict of exactly the two."""
    agent = make_agent()
    space = gym.spaces.Dict({"observation": agent.observation_space, "reward": gym.spaces.Box(-9.0, 9.0, (1,))})
    agent.check_spaces(space, agent.action_space)
    plain, _ = agent.predict(OBS, reward=0.0)
    action, state = agent.predict({"observation": OBS, "reward": 0.0})
    np.testing.assert_array_equal(action, plain)
    _, state = agent.predict({"observation": OBS, "reward": np.array([3.0])}, state)
    assert newest_rtg(state) == [47.0]
    assert agent.rtg_source == "observation"
    more = gym.spaces.Dict({**space.spaces, "wind": gym.spaces.Box(-1.0, 1.0, (1,))})
    with pytest.raises(SpaceError, match="observations differ"):
        agent.check_spaces(more, agent.action_space)
    with pytest.raises(ShapeError, match="expects an array"):
        agent.predict({"observation": OBS, "reward": 0.0, "wind": OBS})


def test_delayed_rewards_keep_the_target() -> None:
    agent = make_agent()
    agent.config = agent.config.model_copy(update={"rewards": "delayed"})
    _, state = agent.predict(OBS)
    _, state = agent.predict(OBS, state, reward=5.0)
    assert newest_rtg(state) == [50.0]


def test_an_environment_may_be_named_as_for_sb3() -> None:
    agent = make_agent(env_options={"length": 3})
    agent.set_env("tests/Counting-v0")
    env = agent.get_env()
    assert env.envs[0].unwrapped.length == 3  # the options it was trained with
    obs, state = env.reset(), None
    for t in range(3):
        action, state = agent.predict(obs, state)
        assert newest_rtg(state) == [50.0 - t * (t + 1) / 2]
        obs, *_ = env.step(action)
    assert agent.rtg_source == "env"
    with pytest.raises(UnknownNameError, match="Did you mean 'Hopper-v5'"):
        agent.set_env("Hoper-v5")
    with pytest.raises(ConfigError, match="runs its code"):
        agent.set_env("os:Evil-v0")
