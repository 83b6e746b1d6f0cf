"""Wrong observations, rewards, flags and environments get one of our errors, not a library's."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import CountingEnv, make_agent
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecMonitor, VecNormalize

from acting.cases import OBS
from agentzoo import evaluate
from agentzoo.acting.history import rows
from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, ObservationError, ShapeError, SpaceError
from agentzoo.models.dm import DMConfig
from agentzoo.types import ActionSpec


def pickled(agent: Agent) -> Agent:
    copied: Agent = pickle.loads(pickle.dumps(agent))
    return copied


@pytest.mark.parametrize("wrong", ["yes", ["yes"], [None], torch.ones(1, requires_grad=True), {"a": 1}])
@pytest.mark.parametrize("name", ["episode_start", "reward"])
def test_no_truth_values_and_no_numbers_are_named(name: str, wrong: Any) -> None:
    with pytest.raises(ShapeError, match=f"^{name} "):
        make_agent().predict(OBS, **{name: wrong})


def test_a_tensor_is_read_and_one_with_grad_is_refused() -> None:
    agent = make_agent()
    np.testing.assert_array_equal(agent.predict(torch.from_numpy(OBS))[0], agent.predict(OBS)[0])
    with pytest.raises(ShapeError, match=r"^obs is not an array of numbers: .* requires grad\. Use tensor\.detach\(\)"):
        agent.predict(torch.zeros(3, requires_grad=True))


def test_a_class_is_no_environment() -> None:
    class Missing(CountingEnv):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (3,))
        action_space = gym.spaces.Box(-2, 2, (2,))

    with pytest.raises(SpaceError, match=r"got the class Missing; pass an environment, Missing\(\.\.\.\)\."):
        make_agent().set_env(Missing)


@pytest.mark.parametrize("wrong", [3, [1], {"a": 1}, object])
def test_what_is_no_environment_is_named(wrong: Any) -> None:
    agent = make_agent()
    with pytest.raises(SpaceError, match=r"is not an environment; pass a gymnasium\.Env"):
        agent.set_env(wrong)
    with pytest.raises(SpaceError, match=r"is not an environment; pass a gymnasium\.Env"):
        evaluate(agent, wrong, 1)


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


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("FrameStackObservation", lambda: gym.wrappers.FrameStackObservation(CountingEnv(), 2)),
        ("RescaleAction", lambda: Monitor(gym.wrappers.RescaleAction(CountingEnv(), -9.0, 9.0))),
        ("ClipAction", lambda: DummyVecEnv([lambda: Monitor(gym.wrappers.ClipAction(CountingEnv()))])),
        ("VecFrameStack", lambda: VecMonitor(VecFrameStack(DummyVecEnv([CountingEnv]), 2))),
        (
            "TimeAwareObservation",
            lambda: gym.vector.SyncVectorEnv([lambda: gym.wrappers.TimeAwareObservation(TimeLimit(CountingEnv(), 9))]),
        ),
    ],
)
def test_the_wrapper_that_changes_the_spaces_is_named(name: str, wrap: Callable[[], Any]) -> None:
    with pytest.raises(SpaceError, match=rf"differ: .* Remove the wrapper {name}\.$"):
        make_agent().set_env(wrap())
    with pytest.raises(SpaceError, match=r"is expected, this is Discrete\(2\)\.$"):
        make_agent().set_env(Monitor(gym.make("CartPole-v1")))


def test_a_dict_without_a_key_that_the_agent_reads_is_shown_beside_the_agents() -> None:
    agent, env = make_agent("tests/CountingDict-v0"), gym.make("tests/CountingDict-v0")
    with pytest.raises(SpaceError, match=r"^dt-test cannot act here: .*b: \(3,\).* Remove the wrapper FilterObs"):
        agent.set_env(gym.wrappers.FilterObservation(env, ["a"]))


def test_parts_of_an_observation_for_other_numbers_of_environments_are_named() -> None:
    agent = make_agent("tests/CountingDict-v0")
    with pytest.raises(ShapeError, match=r"environments: 'a' has 2 rows, 'b' has 1 row\.$"):
        agent.predict({"a": np.stack([OBS, OBS]), "b": OBS[None]})
    with pytest.raises(ShapeError, match=r"environments: 'a' has 1 row, 'b' is a single one\.$"):
        agent.predict({"a": OBS[None], "b": OBS})


def test_observations_are_not_normalized_twice() -> None:
    agent = make_agent()
    with pytest.raises(SpaceError, match=r"dt-test does itself; pass VecNormalize\(..., norm_obs=False\)"):
        agent.set_env(VecNormalize(DummyVecEnv([CountingEnv])))
    with pytest.raises(SpaceError, match="norm_obs=False"):
        agent.set_env(VecMonitor(VecNormalize(DummyVecEnv([CountingEnv]))))  # at any depth
    agent.set_env(VecNormalize(DummyVecEnv([CountingEnv]), norm_obs=False))


def test_environments_that_gymnasium_normalizes_are_refused() -> None:
    agent, wrapper = make_agent(), gym.wrappers.NormalizeObservation
    for env in (
        Monitor(wrapper(CountingEnv())),
        DummyVecEnv([lambda: Monitor(wrapper(CountingEnv()))]),
        gym.wrappers.vector.NormalizeObservation(gym.make_vec("tests/Counting-v0", num_envs=2)),
        gym.make_vec("tests/Counting-v0", num_envs=2, wrappers=[wrapper]),
        gym.make_vec("tests/Counting-v0", 2, "async", {"context": "fork"}, wrappers=[wrapper]),
    ):
        with pytest.raises(SpaceError, match="NormalizeObservation normalizes observations, which dt-test does itself"):
            agent.set_env(env)
        env.close()
    agent.set_env(env)  # closed, an AsyncVectorEnv cannot be asked
    processes = SubprocVecEnv([CountingEnv], start_method="fork")
    processes.close()
    with pytest.raises(ConfigError, match="the processes of this SubprocVecEnv have ended: it is closed"):
        agent.set_env(processes)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("load", "from_pretrained"),
        ("save", r"save_pretrained\(folder\)"),
        ("learn", "agentzoo finetune"),
        ("reset", "state=None"),
        ("select_action", r"agent.predict\(obs, state\)"),
        ("env", r"agent.set_env\(env\)"),
        ("get_parameters", r"agent.model.state_dict\(\)"),
        ("set_parameters", "load_state_dict"),
        ("policy", "agent.model is the network"),
        ("parameters", r"agent.model.parameters\(\)"),
        ("state_dict", r"agent.model.state_dict\(\)"),
        ("load_state_dict", r"agent.model.load_state_dict\(weights\)"),
        ("eval", "without dropout"),
        ("train", "agentzoo train"),
        ("cpu", r"agent.to\('cpu'\)"),
        ("cuda", r"agent.to\('cuda'\)"),
        ("seed", r"agent.set_random_seed\(seed\)"),
    ],
)
def test_names_other_libraries_have_say_what_to_use(name: str, words: str) -> None:
    for holder in (make_agent(), Agent):
        assert not hasattr(holder, name)
        with pytest.raises(AttributeError, match=words):
            getattr(holder, name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("targetreturn", "^an Agent has no 'targetreturn'. Did you mean 'target_return'?"),
        ("target", "^an Agent has no 'target'. Did you mean 'target_return'?"),
        ("origins", "^an Agent has no 'origins'. Did you mean 'origin'?"),
        ("note", "^an Agent has no 'note'. Attributes of your own need a subclass"),
        ("env", r"^an Agent has no 'env'; agent.set_env\(env\) binds one"),
        ("device", r"^'device' cannot be assigned; use agent.to\(device\)\.$"),
        ("runtime", r"^'runtime' cannot be assigned; use agent.freeze\(runtime\)\.$"),
        ("action_space", r"^'action_space' cannot be assigned\.$"),
    ],
)
@pytest.mark.parametrize("copied", [lambda agent: agent, copy.copy, copy.deepcopy, pickled])
def test_an_attribute_by_a_wrong_name_cannot_be_set(name: str, words: str, copied: Callable[[Agent], Agent]) -> None:
    agent = copied(make_agent())
    before = set(vars(agent))
    with pytest.raises(AttributeError, match=words):
        setattr(agent, name, 1.0)
    assert set(vars(agent)) == before


def test_a_subclass_has_attributes_of_its_own() -> None:
    class Named(Agent):
        def __init__(self, agent: Agent) -> None:
            super().__init__(agent.model, agent.config, agent.recipe)
            self.targets, self.env = [1.0], "mine"

    own = copy.deepcopy(Named(make_agent()))
    assert (own.targets, own.env) == ([1.0], "mine")


def test_the_methods_and_the_public_attributes_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent()
    monkeypatch.setattr(agent, "predict", lambda *_: "replaced")
    assert agent.predict(OBS) == "replaced"
    monkeypatch.undo()
    assert agent.predict(OBS)[0].shape == (2,)
    for name in ("config", "recipe", "origin", "model", "target_return", "history", "acting", "trust_env_options"):
        setattr(agent, name, getattr(agent, name))


def test_the_state_of_one_environment_keeps_its_leading_axis() -> None:
    recurrent = make_agent("tests/Counting-v0", DMConfig(embed_dim=16, n_layers=2, state_size=4))
    recurrent.acting = "recurrent"
    for agent in (make_agent(), recurrent):
        _, state = agent.predict(np.stack([OBS, -OBS]), reward=[0.0, 0.0])
        alone = type(state)(*(field[0] for field in state))
        with pytest.raises(
            ShapeError, match=r"no rows of environments. `agentzoo.acting.history.rows\(state, \[i\]\)`"
        ):
            agent.predict(OBS, alone, reward=1.0)
        one, _ = agent.predict(OBS, rows(state, [0]), reward=1.0)
        both, _ = agent.predict(np.stack([OBS, -OBS]), state, reward=[1.0, 1.0])
        np.testing.assert_allclose(one, both[0], atol=1e-5)


def test_a_number_beyond_float32_is_one_error_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ObservationError, match=r"obs holds inf .* read as float32"):
            make_agent().predict(np.full(3, 1e300))
