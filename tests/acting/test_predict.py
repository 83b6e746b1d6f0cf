"""`predict` line by line: shapes, dtypes, where the reward comes from, warnings and errors."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import CountingEnv, change_in_place, make_agent
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, ObservationError, ShapeError, SpaceError, UnknownNameError
from agentzoo.models.dt import DTConfig
from agentzoo.types import ActionSpec

OBS = np.array([0.5, -0.5, 0.1], dtype=np.float32)
QUIET = {"reward": 0.0}


def newest_rtg(state: object) -> list[float]:
    return [float(r[n - 1]) for r, n in zip(state.returns_to_go, state.length, strict=True)]  # type: ignore[attr-defined]


def test_target_ten_rewards_four_then_one_gives_ten_six_five() -> None:
    agent = make_agent()
    agent.target_return = 10.0
    state, seen = None, []
    for reward in (0.0, 4.0, 1.0):
        _, state = agent.predict(OBS, state, reward=reward)
        seen += newest_rtg(state)
    assert seen == [10.0, 6.0, 5.0]


@pytest.mark.parametrize(("batch", "shape"), [(OBS, (2,)), (np.stack([OBS] * 5), (5, 2))])
def test_box_actions_have_the_space_s_shape_and_dtype(batch: np.ndarray, shape: tuple[int, ...]) -> None:
    action, _ = make_agent().predict(batch)
    assert action.shape == shape
    assert action.dtype == np.float32


def test_box_actions_are_clipped() -> None:
    agent = make_agent()
    agent.model.bounded = False  # as an agent whose head has no tanh
    with torch.no_grad():
        agent.model.predict_action.bias.fill_(9.0)  # type: ignore[union-attr, operator]
    action, state = agent.predict(OBS)
    assert action.tolist() == [2.0, 2.0]
    assert state.actions[0, 0].tolist() == [2.0, 2.0]  # the history holds what was really answered


def test_float64_actions_stay_inside_their_bounds() -> None:
    """0.1 rounded to float32 is larger than 0.1."""
    made = make_agent()
    narrow = ActionSpec(kind="box", size=2, low=(-0.1, -0.1), high=(0.1, 0.1), dtype="float64")
    config = made.config.model_copy(update={"io": made.config.io.model_copy(update={"action": narrow})})
    made.model.bounded = False
    with torch.no_grad():
        made.model.predict_action.bias.fill_(9.0)  # type: ignore[union-attr, operator]
    agent = Agent(made.model, config, made.recipe)
    action, _ = agent.predict(OBS)
    assert action.tolist() == [0.1, 0.1]
    assert agent.action_space.contains(action)


def test_a_goal_among_keys_that_are_not_read_is_ignored() -> None:
    agent = make_agent("tests/CountingDict-v0")
    plain, _ = agent.predict({"a": OBS, "b": -OBS})
    more, _ = agent.predict({"a": OBS, "b": -OBS, "goal": OBS})
    np.testing.assert_array_equal(plain, more)


def test_a_single_discrete_action_is_a_0d_int64_array() -> None:
    agent = make_agent("tests/CountingDiscrete-v0")
    action, _ = agent.predict(OBS, deterministic=True)
    assert isinstance(action, np.ndarray)
    assert (action.shape, action.dtype) == ((), np.dtype(np.int64))
    assert agent.action_space.contains(np.int64(action))
    many, _ = agent.predict(np.stack([OBS] * 3), deterministic=True)
    assert many.shape == (3,)


def test_discrete_sampling_follows_the_softmax() -> None:
    agent = make_agent("tests/CountingDiscrete-v0")
    agent.set_random_seed(0)
    many, state = agent.predict(np.repeat(OBS[None], 20_000, axis=0))
    from agentzoo.acting.history import rows, to_batch

    with torch.no_grad():
        window = to_batch(rows(state, np.array([0])), 10.0, torch.device("cpu"))
        expected = agent.model.act(window).softmax(-1)[0].numpy()
    found = np.bincount(many - 2, minlength=4) / len(many)
    np.testing.assert_allclose(found, expected, atol=0.015)  # four standard errors of a share of 20,000


def test_dict_observations_single_and_batched() -> None:
    agent = make_agent("tests/CountingDict-v0")
    one, _ = agent.predict({"a": OBS, "b": -OBS})
    two, _ = agent.predict({"b": np.stack([-OBS] * 2), "a": np.stack([OBS] * 2)})
    np.testing.assert_allclose(two, np.stack([one] * 2), atol=1e-6)


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


def doubled(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return gym.wrappers.TransformReward(env, lambda reward: 2 * float(reward))


def monitor_inside() -> gym.Env[Any, Any]:
    return doubled(Monitor(CountingEnv()))


def monitor_outside() -> gym.Env[Any, Any]:
    return Monitor(doubled(CountingEnv()))


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
        lambda: gym.wrappers.RecordEpisodeStatistics(doubled(gym.wrappers.RecordEpisodeStatistics(CountingEnv()))),
        lambda: DummyVecEnv([monitors] * 2),
        lambda: DummyVecEnv([lambda: gym.wrappers.RecordEpisodeStatistics(CountingEnv())] * 2),
        lambda: gym.vector.SyncVectorEnv([lambda: gym.wrappers.RecordEpisodeStatistics(CountingEnv())] * 2),
        lambda: gym.vector.SyncVectorEnv([monitor_inside] * 2),
        lambda: SubprocVecEnv([monitor_inside], start_method="fork"),
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


def test_without_any_reward_the_target_stays_and_one_warning_says_so() -> None:
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


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda agent: pickle.loads(pickle.dumps(agent))])
def test_a_copy_is_bound_to_no_environment(copied: Callable[[Agent], Agent]) -> None:
    agent = make_agent()
    agent.set_env(DummyVecEnv([lambda: Monitor(CountingEnv())]))
    other = copied(agent)
    assert other.get_env() is None
    assert agent.get_env() is not None
    np.testing.assert_array_equal(other.predict(OBS)[0], agent.predict(OBS)[0])
    _, state = other.predict(OBS)
    with pytest.warns(UserWarning, match="no reward reaches predict"):
        other.predict(OBS, state)
    mine = CountingEnv()
    other.set_env(Monitor(mine))
    obs, _ = other.get_env().reset()
    _, state = other.predict(obs)
    obs, reward, *_ = other.get_env().step(np.zeros(2, np.float32))
    assert newest_rtg(other.predict(obs, state)[1]) == [50.0 - reward]


def test_another_environment_may_be_wrong_in_its_own_way() -> None:
    agent = make_agent()
    with pytest.warns(UserWarning, match="no reward reaches predict"):
        agent.predict(OBS, agent.predict(OBS)[1])
    agent.set_env(Monitor(gym.wrappers.NormalizeReward(CountingEnv())))
    with pytest.warns(UserWarning, match="no reward unchanged by NormalizeReward reaches predict"):
        agent.predict(OBS, agent.predict(OBS)[1])


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


@pytest.mark.parametrize("starts", [[False], [True]])
def test_starts_alone_are_no_history(starts: list[bool]) -> None:
    agent = make_agent()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(3):
            agent.predict(OBS, episode_start=np.array(starts))
    assert len(warned) == (starts == [False])


def test_another_network_in_its_place_acts_and_what_is_none_is_refused() -> None:
    agent, other = make_agent(), make_agent()
    change_in_place(other.model)
    wanted = other.predict(OBS)[0]
    assert not np.allclose(agent.predict(OBS)[0], wanted, atol=1e-3)
    agent.model = other.model
    np.testing.assert_array_equal(agent.predict(OBS)[0], wanted)
    with pytest.raises(ConfigError, match="network is a SequenceModel, got Linear"):
        agent.model = torch.nn.Linear(2, 2)  # type: ignore[assignment]


def test_a_network_left_training_acts_without_dropout() -> None:
    agent = make_agent(model=DTConfig(embed_dim=16, n_layers=1, dropout=0.5))
    wanted = agent.predict(OBS)[0]
    agent.model.train()
    np.testing.assert_array_equal(agent.predict(OBS)[0], wanted)


def test_a_target_is_saved_with_the_agent(tmp_path: Path) -> None:
    agent = make_agent()
    agent.target_return = 7.0
    loaded = Agent.from_pretrained(agent.save_pretrained(tmp_path / "agent"))
    assert loaded.target_return == 7.0
    assert loaded.recipe is not None
    assert loaded.recipe.eval.target_return == 7.0


def test_dropping_the_history_warns_once() -> None:
    agent = make_agent()
    agent.predict(OBS)
    with pytest.warns(UserWarning, match="twice in a row without the state") as warned:
        agent.predict(OBS)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.predict(OBS)


def test_a_bound_environment_that_stands_still_is_said_at_the_line_of_the_caller() -> None:
    agent = make_agent()
    agent.set_env(Monitor(CountingEnv(5)))
    agent.get_env().reset()
    _, state = agent.predict(OBS)
    with pytest.warns(UserWarning, match="is still at step 0 of its episode, the agent at step 1") as warned:
        agent.predict(OBS, state)
    assert warned[0].filename == __file__


def test_episode_start_is_copied() -> None:
    starts = np.array([True])
    agent = make_agent()
    _, state = agent.predict(OBS[None], None, starts, reward=[0.0])
    starts[0] = False  # as SB3's evaluate_policy does
    assert state.length.tolist() == [1]


def test_delayed_rewards_keep_the_target() -> None:
    agent = make_agent()
    agent.config = agent.config.model_copy(update={"rewards": "delayed"})
    _, state = agent.predict(OBS)
    _, state = agent.predict(OBS, state, reward=5.0)
    assert newest_rtg(state) == [50.0]


@pytest.mark.parametrize(
    ("obs", "error", "words"),
    [
        ((OBS, {}), ShapeError, r"tuple as observation.*obs, info = env.reset\(\)"),
        (np.zeros(4, np.float32), ShapeError, r"shape \(4,\); dt-test expects \(3,\) or \(N, 3\)"),
        (np.zeros((2, 2, 3), np.float32), ShapeError, r"shape \(2, 2, 3\)"),
        (np.zeros((0, 3), np.float32), ShapeError, r"an empty batch, shape \(0, 3\)"),
        (np.array(["a", "b", "c"]), ShapeError, "must hold numbers"),
        ({"a": OBS}, ShapeError, "expects an array"),
        ([[1.0, 2.0], [3.0]], ShapeError, "not an array of numbers"),
        (np.array([0.0, np.nan, 0.0]), ObservationError, "obs holds nan at environment 0, number 1"),
        (np.array([0.0, 1.0, np.inf]), ObservationError, "inf"),
    ],
)
def test_bad_observations_are_explained(obs: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make_agent().predict(obs)


def test_bad_rewards_states_and_starts_are_explained() -> None:
    agent = make_agent()
    two = np.stack([OBS, OBS])
    _, state = agent.predict(two)
    with pytest.raises(ShapeError, match="state holds 2 environments, the observation has 1"):
        agent.predict(OBS[None], state)
    with pytest.raises(ShapeError, match="reward has 1 number, the observation has 2 rows"):
        agent.predict(two, state, reward=1.0)
    with pytest.raises(ObservationError, match="reward of environment 1 is not finite"):
        agent.predict(two, state, reward=[0.0, np.nan])
    with pytest.raises(ShapeError, match="episode_start has 3 values"):
        agent.predict(two, state, np.zeros(3, dtype=bool))
    with pytest.raises(ShapeError, match="state must be what the last predict returned"):
        agent.predict(two, np.zeros(3))  # type: ignore[arg-type]
    other = make_agent(context=9)
    with pytest.raises(ShapeError, match=r"state.observations has shape \(2, 4, 3\), this agent needs \(2, 9, 3\)"):
        other.predict(two, state)


def test_an_environment_that_does_not_fit_is_refused() -> None:
    agent = make_agent()
    both = r"observations differ: Box\(3,\).*Box\(2,\); actions differ: Box\(2\) is.* Box\(1\)"
    with pytest.raises(SpaceError, match=both):
        agent.set_env(gym.make("MountainCarContinuous-v0"))
    with pytest.raises(SpaceError, match=r"Box\(2\) is expected, this is Discrete\(4, start=2\)"):
        agent.set_env(gym.make("tests/CountingDiscrete-v0"))
    with pytest.raises(SpaceError, match=r"Discrete\(4, start=2\) is expected, this is Discrete\(4\)"):
        make_agent("tests/CountingDiscrete-v0").check_spaces(agent.observation_space, gym.spaces.Discrete(4))
    other = gym.spaces.Box(np.array([-2.0, -1.0], np.float32), np.array([2.0, 3.0], np.float32))
    with pytest.raises(SpaceError, match=r"Box\(2\) whose number 1 lies in \[-2, 2\] is expected.*in \[-1, 3\]"):
        agent.check_spaces(agent.observation_space, other)
    with pytest.raises(SpaceError, match=r"Box\(2\) is expected, this is an unbounded Box\(2\)"):
        agent.check_spaces(agent.observation_space, gym.spaces.Box(-np.inf, np.inf, (2,)))


def test_bounds_that_only_their_dtype_tells_apart_fit() -> None:
    agent, spec = make_agent(), {"kind": "box", "size": 2, "low": (-0.1, -0.1), "high": (0.1, 0.1)}
    io = agent.config.io.model_copy(update={"action": ActionSpec(**spec, dtype="float64")})
    agent.config = agent.config.model_copy(update={"io": io})
    agent.check_spaces(agent.observation_space, gym.spaces.Box(-0.1, 0.1, (2,), np.float32))


def test_what_a_network_cannot_work_out_is_no_action() -> None:
    agent = make_agent()
    with torch.no_grad():
        agent.model.predict_action.bias.fill_(np.nan)  # type: ignore[union-attr, operator]
    words = r"dt-test outputs \[nan nan\].*return-to-go is 50 in units of 10"
    with pytest.raises(ObservationError, match=words):
        agent.predict(OBS)


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


def test_observations_are_not_normalized_twice() -> None:
    agent = make_agent()
    with pytest.raises(SpaceError, match=r"dt-test does itself; pass VecNormalize\(..., norm_obs=False\)"):
        agent.set_env(VecNormalize(DummyVecEnv([CountingEnv])))
    with pytest.raises(SpaceError, match="norm_obs=False"):
        agent.set_env(VecMonitor(VecNormalize(DummyVecEnv([CountingEnv]))))  # at any depth
    agent.set_env(VecNormalize(DummyVecEnv([CountingEnv]), norm_obs=False))


def test_nor_where_gymnasium_normalizes_them() -> None:
    agent, wrapper = make_agent(), gym.wrappers.NormalizeObservation
    for env in (
        Monitor(wrapper(CountingEnv())),
        DummyVecEnv([lambda: Monitor(wrapper(CountingEnv()))]),
        gym.wrappers.vector.NormalizeObservation(gym.make_vec("tests/Counting-v0", num_envs=2)),
        gym.make_vec("tests/Counting-v0", num_envs=2, wrappers=[wrapper]),
    ):
        with pytest.raises(SpaceError, match="NormalizeObservation normalizes observations, which dt-test does itself"):
            agent.set_env(env)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("load", "from_pretrained"),
        ("save", r"save_pretrained\(folder\)"),
        ("learn", "agentzoo finetune"),
        ("reset", "state=None"),
        ("select_action", r"agent.predict\(obs, state\)"),
    ],
)
def test_names_other_libraries_have_say_what_to_use(name: str, words: str) -> None:
    for holder in (make_agent(), Agent):
        assert not hasattr(holder, name)
        with pytest.raises(AttributeError, match=words):
            getattr(holder, name)


def test_an_agent_moves_as_a_module_does() -> None:
    agent = make_agent()
    assert agent.to("meta") is agent
    assert agent.device == torch.device("meta")
    with pytest.raises(ConfigError, match="no device 'gpu' here"):
        make_agent().to("gpu")
    with pytest.raises(ConfigError, match=r"no device 'xpu' here .*; use 'auto', 'cpu' or"):
        make_agent().to("xpu")  # a name torch knows


def test_spaces_are_those_of_the_environment() -> None:
    env = gym.make("tests/Counting-v0")
    agent = make_agent()
    assert agent.action_space == env.action_space
    assert agent.observation_space == env.observation_space
    assert isinstance(agent, Agent)
    assert "dt-test" in repr(agent)


class TwoSided:
    """Actions of 1 or -1 at even odds; the mode is 0.5."""

    def __init__(self, size: tuple[int, ...]) -> None:
        self.size = size

    def mode(self) -> torch.Tensor:
        return torch.full(self.size, 0.5)

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        return 1.0 - 2.0 * torch.randint(2, self.size, generator=generator)


def test_a_distribution_is_sampled_or_its_mode_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent()
    size = agent.config.io.action.size
    monkeypatch.setattr(agent.model, "act", lambda batch: TwoSided((len(batch.valid), size)))
    obs = np.zeros((200, agent.config.io.observation.size), dtype=np.float32)
    starts = np.ones(200, dtype=bool)
    sure, _ = agent.predict(obs, None, starts, deterministic=True, reward=np.zeros(200))
    assert (sure == 0.5).all()
    agent.set_random_seed(3)
    drawn, state = agent.predict(obs, None, starts, reward=np.zeros(200))
    assert set(np.unique(drawn)) == {-1.0, 1.0}
    assert abs(drawn.mean()) < 0.2  # 200 fair coins or more: a standard deviation of 0.07 or less
    agent.set_random_seed(3)
    again, _ = agent.predict(obs, None, starts, reward=np.zeros(200))
    assert (again == drawn).all()
    rows, newest = np.arange(200), np.asarray(state.length) - 1
    assert (np.asarray(state.actions)[rows, newest] == drawn).all()  # what was drawn is what the history holds
