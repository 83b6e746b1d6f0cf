"""`predict` line by line: shapes, dtypes, bounds, states and copies."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import SMALL, CountingEnv, change_in_place, make_agent, random_observations
from models.acting_cases import small_config
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from acting.cases import OBS, newest_rtg
from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.models.dt import DTConfig
from agentzoo.registry import families
from agentzoo.types import ActionSpec


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
    with pytest.raises(ConfigError, match=r"is a SequenceModel, got Linear\..*agent\.freeze\('onnx'\) acts faster"):
        agent.model = torch.nn.Linear(2, 2)  # type: ignore[assignment]


@pytest.mark.parametrize("other", [make_agent(model=SMALL["bc"]), make_agent(context=7), make_agent("Hopper-v5")])
def test_a_network_that_the_config_does_not_describe_is_refused(other: Agent) -> None:
    """It would be saved beside the config of another network."""
    agent = make_agent()
    before = agent.model
    with pytest.raises(ConfigError, match=r"made from another config, or for other spaces, than that of dt-test"):
        agent.model = other.model
    assert agent.model is before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("family", sorted(families()))
def test_weights_of_another_type_act_or_say_what_to_do(family: str, dtype: torch.dtype) -> None:
    agent = make_agent(model=small_config(family))
    observations = random_observations(agent.config.io, (1,))
    wanted = agent.predict(observations, deterministic=True)[0]
    agent.model.to(dtype)
    try:
        found = agent.predict(observations, deterministic=True)[0]
    except ConfigError as error:
        assert f"weights of {dtype} cannot act" in str(error)  # noqa: PT017
        agent.model.float()
        found = agent.predict(observations, deterministic=True)[0]
    np.testing.assert_allclose(found, wanted, atol=0.2)


def test_a_copy_warns_and_samples_for_itself() -> None:
    agent = make_agent("tests/CountingDiscrete-v0")
    agent.set_random_seed(3)
    twin = copy.copy(agent)
    drawn = [int(agent.predict(OBS)[0]) for _ in range(20)]
    assert [int(twin.predict(OBS)[0]) for _ in range(20)] == drawn
    assert twin._warned is not agent._warned


def test_a_seed_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="a seed is a whole number from 0 on, or None; got -1"):
        make_agent().set_random_seed(-1)


def test_a_network_left_training_acts_without_dropout() -> None:
    agent = make_agent(model=DTConfig(embed_dim=16, n_layers=1, dropout=0.5))
    wanted = agent.predict(OBS)[0]
    agent.model.train()
    np.testing.assert_array_equal(agent.predict(OBS)[0], wanted)


def test_dropping_the_history_warns_once() -> None:
    agent = make_agent()
    agent.predict(OBS)
    with pytest.warns(UserWarning, match="twice in a row without the state") as warned:
        agent.predict(OBS)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.predict(OBS)


def test_a_bound_environment_that_stands_still_warns_at_the_line_of_the_caller() -> None:
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


def test_an_agent_moves_as_a_module_does() -> None:
    agent = make_agent()
    assert agent.to("meta") is agent
    assert agent.device == torch.device("meta")
    with pytest.raises(ConfigError, match="no device 'gpu' here"):
        make_agent().to("gpu")
    with pytest.raises(ConfigError, match=r"no device 'xpu' here .*; use 'auto', 'cpu' or"):
        make_agent().to("xpu")  # a name torch knows
    for wrong in (None, torch.float64):
        with pytest.raises(ConfigError, match=rf"^no device '{wrong}' here; use 'auto', 'cpu' or"):
            make_agent().to(wrong)  # type: ignore[arg-type]


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
