"""Options of environments that a stranger's config names: listed ones within bounds, the rest only if trusted."""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import CountingEnv, make_agent
from gymnasium.envs.registration import EnvSpec
from masked.cases import SIZES
from typer.testing import CliRunner

from agentzoo import envs
from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.data.metadata import changed_options
from agentzoo.data.references import reference_of, source_of
from agentzoo.envs import make_env
from agentzoo.envs.comparing import other_options
from agentzoo.envs.env_options import (
    KNOWN,
    MUJOCO,
    allowed_options,
    check_env_options,
    trust_flags,
    trusting_env_options,
)
from agentzoo.envs.making import make_configured, requirements_of
from agentzoo.errors import ConfigError, SpaceError
from agentzoo.evaluation.environments import env_of
from agentzoo.evaluation.film import film
from agentzoo.evaluation.played_window import run_window
from agentzoo.evaluation.results import evaluate
from agentzoo.evaluation.rollout import make_vec_env, rollout
from agentzoo.hub.card import card_text
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.registry import recipe_table

HOSTILE: list[tuple[str, Any]] = [
    ("render_mode", "human"),
    ("frame_skip", 2_147_483_647),
    ("frame_skip", 0),
    ("frame_skip", True),
    ("max_episode_steps", 1_000_000_000),
    ("max_episode_steps", 0),
    ("xml_file", "/etc/passwd"),
    ("width", 1_000_000),
    ("camera_name", "track"),
    ("reset_noise_scale", -1.0),
    ("reset_noise_scale", 1e300),
    ("terminate_when_unhealthy", 1),
    ("vector_entry_point", "evil:Evil"),
    ("apply_api_compatibility", True),
    ("entry_point", "evil:Evil"),
]


@pytest.mark.parametrize(("name", "value"), HOSTILE)
def test_an_option_that_harms_is_refused_before_the_environment_is_made(name: str, value: Any, tmp_path: Path) -> None:
    folder = make_agent("Hopper-v5").save_pretrained(tmp_path / "dt-test")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "env_options": {name: value}}))
    agent = Agent.from_pretrained(folder)  # acting needs no environment
    for make in (
        lambda: env_of(agent, None),
        lambda: agent.set_env("Hopper-v5"),
        lambda: rollout(agent, "Hopper-v5", 1),
    ):
        with pytest.raises(ConfigError, match=rf"environment option '{name}' .*--trust-env-options"):
            make()
    result = CliRunner().invoke(app, ["evaluate", str(folder), "-n", "1"])
    assert isinstance(result.exception, ConfigError)
    assert "--trust-env-options" in str(result.exception)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("Hopper-v5", {"terminate_when_unhealthy": False, "reset_noise_scale": 0.1, "frame_skip": 5}),
        ("HalfCheetah-v4", {"ctrl_cost_weight": 0, "max_episode_steps": 300}),
        ("PointMaze_Medium-v3", {"continuing_task": False, "reward_type": "dense"}),
        ("agentzoo/Maze2DDense-Medium-v0", {"maze": "UMaze"}),
        ("Pendulum-v1", {"g": 9.81}),
        ("anything/Else-v0", {"max_episode_steps": 100, "render_mode": "rgb_array"}),
    ],
)
def test_listed_options_within_their_bounds_pass(env_id: str, options: dict[str, Any]) -> None:
    check_env_options(env_id, options)
    with pytest.raises(ConfigError, match="is not in the allowed options"):
        check_env_options(env_id, {"xml_file": "ant.xml"})


def test_every_option_of_our_recipes_is_listed() -> None:
    with_options = [recipe.eval for recipe in recipe_table().values() if recipe.eval.env_options]
    assert with_options
    for one in with_options:
        check_env_options(one.env, one.env_options)


def test_no_listed_option_names_a_file_or_code() -> None:
    names = {name for options in (*KNOWN.values(), MUJOCO, allowed_options("x")) for name in options}
    assert not [name for name in names if any(word in name for word in ("file", "path", "xml", "entry", "class"))]


def test_a_camera_that_the_model_may_lack_is_not_listed() -> None:
    """MuJoCo ends the process when it draws, without an exception."""
    with pytest.raises(ConfigError, match="'camera_id' is not in the allowed options of InvertedPendulum-v5"):
        make_configured("InvertedPendulum-v5", {"camera_id": 0}, render_mode="rgb_array")


def test_a_listed_option_that_the_environment_refuses_is_an_error_in_words() -> None:
    with pytest.raises(ConfigError, match=r"cannot be created with env_options {'mode': 999}: Invalid game mode"):
        make_configured("ALE/Pong-v5", {"mode": 999})


def test_trusted_options_are_passed_on(tmp_path: Path) -> None:
    folder = make_agent(env_options={"length": 3}).save_pretrained(tmp_path / "dt-test")
    with pytest.raises(ConfigError, match="'length' is not in the allowed options of tests/Counting-v0"):
        rollout(Agent.from_pretrained(folder), "tests/Counting-v0", 1)
    trusted = Agent.from_pretrained(folder, trust_env_options=True)
    assert len(rollout(trusted, "tests/Counting-v0", 1)) == 1
    with trusting_env_options():
        assert len(rollout(Agent.from_pretrained(folder), "tests/Counting-v0", 1)) == 1
    command = ["evaluate", str(folder), "-n", "2", "--json"]
    assert CliRunner().invoke(app, [*command, "--trust-env-options"]).exit_code == 0
    assert isinstance(CliRunner().invoke(app, command).exception, ConfigError)  # the switch was of that command


def test_an_id_with_its_module_is_the_same_environment(tmp_path: Path) -> None:
    """The agent's options apply there too, also in what an evaluation records and a film shows."""
    check_env_options("gymnasium_robotics:PointMaze_Medium-v3", {"continuing_task": False})
    agent, named = make_agent(env_options={"length": 3}, reference=(0.0, 9.0)), "conftest:tests/Counting-v0"
    with trusting_env_options():
        own = evaluate(agent, episodes=2)
        same = evaluate(agent, named, episodes=2, trust_env_module=True)
        assert (same.lengths, same.returns, same.score) == (own.lengths, own.returns, own.score)
        assert film(agent, named, every=1, trust_env_module=True).episodes[0].length == own.lengths[0]
        agent.set_env(named, trust_env_module=True)
        assert agent.get_env().get_attr("length") == [3]


def test_what_is_known_of_an_id_is_known_with_its_module() -> None:
    for module, env_id in (("agentzoo.envs", "agentzoo/Breakout-v5"), ("gymnasium.envs.mujoco", "Hopper-v5")):
        named = f"{module}:{env_id}"
        assert reference_of(named) == reference_of(env_id) is not None
        assert source_of(named) == source_of(env_id)
        assert envs.extras_of(named) == envs.extras_of(env_id) != ()
        assert requirements_of(named) == requirements_of(env_id)
    assert envs.is_game("agentzoo.envs:agentzoo/Breakout-v5")
    assert envs.needs_robotics("gymnasium_robotics:PointMaze_Medium-v3")


@pytest.mark.parametrize("env_id", ["HandoverGame-v0", "FetchQuest-v0", "AdroitX-v1"])
def test_ids_that_begin_like_those_of_gymnasium_robotics_need_no_package(
    env_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (envs.needs_robotics(env_id), envs.extras_of(env_id)) == (False, ())
    assert envs.package_of(env_id) == f"the package that registers {env_id}"
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)  # missing
    for registered in (env_id, "FetchReachOfMine-v0"):
        monkeypatch.setitem(gym.registry, registered, EnvSpec(registered, entry_point=CountingEnv))
        make_env(registered).close()


@pytest.mark.parametrize(
    ("env_id", "default", "other"),
    [
        ("Pendulum-v1", {"g": 10.0}, {"g": 9.8}),
        ("Hopper-v5", {"healthy_state_range": (-100.0, 100.0)}, {"terminate_when_unhealthy": False}),
        ("PointMaze_UMaze-v3", {"reset_target": False}, {"continuing_task": False}),
        ("agentzoo/Pong-v5", {"repeat_action_probability": 0.0}, {"repeat_action_probability": 0.25}),
    ],
)
def test_an_option_that_is_set_to_its_default_changes_nothing(
    env_id: str, default: dict[str, Any], other: dict[str, Any]
) -> None:
    for options, changed in ((default, {}), (other, other)):
        with closing(make_env(env_id, **options)) as env, closing(make_env(env_id)) as plain:
            assert env.spec is not None
            assert plain.spec is not None
            assert other_options(env.spec) == other_options(plain.spec, options) == list(changed)
            assert changed_options(json.loads(env.spec.to_json())) == changed


class Weather:
    """Has no text of its own but its address."""


class Outdoors(CountingEnv):
    def __init__(self, weather: Any = None, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (Weather(), 3),
        ({(1, 2): 3.0}, {(1, 2): 4.0}),
        (np.arange(5_000), np.where(np.arange(5_000) == 2_500, 7, np.arange(5_000))),
        ((1, np.float32(2)), [1, 3]),
    ],
)
def test_options_of_any_kind_are_compared(value: Any, other: Any) -> None:
    """`gymnasium.make` copies an object, and NumPy shortens the text of a long array."""
    gym.register("tests/Outdoors-v0", entry_point=Outdoors, max_episode_steps=10, kwargs={"weather": value})
    try:
        for options, changed in (({}, []), ({"weather": other}, ["weather"])):
            spec = gym.make("tests/Outdoors-v0", **options).spec
            assert spec is not None
            assert other_options(spec) == changed
    finally:
        del gym.registry["tests/Outdoors-v0"]


def test_other_options_are_warned_of_on_both_sides() -> None:
    limited, usual = make_agent("CartPole-v1", env_options={"max_episode_steps": 200}), make_agent("CartPole-v1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for env in (gym.make("CartPole-v1", max_episode_steps=200), make_vec_env(limited, 2), "CartPole-v1"):
            limited.set_env(env)
        for env in (
            gym.make("CartPole-v1", render_mode="rgb_array"),
            gym.make_vec("CartPole-v1", 2, vectorization_mode="sync"),
            gym.make("CartPole-v1", max_episode_steps=500),
            "CartPole-v1",
        ):
            usual.set_env(env)
        make_agent().set_env("tests/Counting-v0")  # without a limit of its own, it has the largest
    with pytest.warns(UserWarning, match=r"\(max_episode_steps\).*gym\.make\('CartPole-v1', max_episode_steps=200\)"):
        limited.set_env(gym.make("CartPole-v1"))
    with pytest.warns(UserWarning, match=r"\(max_episode_steps, sutton_barto_reward\).*gym\.make\('CartPole-v1'\)"):
        usual.set_env(gym.make("CartPole-v1", sutton_barto_reward=True, max_episode_steps=20))


def test_an_agents_options_are_not_those_of_another_environment() -> None:
    """Which the other one may lack; what it is created without is said."""
    agent = make_agent("CartPole-v1", env_options={"max_episode_steps": 7})
    said = r"^CartPole-v0 is created without the options of CartPole-v1 \(max_episode_steps=7\); pass gym\.make\('CartP"
    with pytest.warns(UserWarning, match=said) as warned:
        found = evaluate(agent, "CartPole-v0", episodes=1)
    assert found.env_options == {}
    assert len([one for one in warned if "CartPole-v1" in str(one.message)]) == 1
    with pytest.warns(UserWarning, match=said):
        agent.set_env("CartPole-v0")
    twin = r"was trained for CartPole-v1; this is tests/Twin-v0, .* tests/Twin-v0 is created without the options of"
    gym.register("tests/Twin-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=9)
    with pytest.warns(UserWarning, match=twin):
        evaluate(agent, "tests/Twin-v0", episodes=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        agent.set_env(gym.make("CartPole-v0", max_episode_steps=7))  # its maker chose
        evaluate(agent, episodes=1)


def test_a_limit_of_steps_inside_the_entry_point_is_the_registered_one() -> None:
    gym.register("tests/WrappedCart-v0", lambda **options: gym.Wrapper(gym.make("CartPole-v1", **options)))
    agent = make_agent("tests/WrappedCart-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for env in (gym.make("tests/WrappedCart-v0", render_mode="rgb_array"), make_vec_env(agent, 2)):
            agent.set_env(env)
    for other in ({"max_episode_steps": 7}, {"sutton_barto_reward": True}):
        with pytest.warns(UserWarning, match=rf"other options .*\({next(iter(other))}\)"):
            agent.set_env(gym.make("tests/WrappedCart-v0", **other))


def test_a_command_trusts_the_options_that_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))
    for options, needs in (({"max_episode_steps": 5}, False), ({"length": 3}, True)):
        folder = make_agent(env_options=options).save_pretrained(tmp_path / "dt-test")
        found = evaluate(folder, episodes=1, trust_env_options=True)
        assert str(found.command).endswith(" --trust-env-options") == needs
        card = card_text(folder)
        assert ("train_config.json --trust-env-options" in card) == needs


def test_flags_of_a_command_that_creates_an_environment() -> None:
    assert trust_flags("CartPole-v1", {"max_episode_steps": 5}) == trust_flags(None, {}) == ""
    assert trust_flags("own:Grid-v0", {}) == " --trust-env-module"
    assert trust_flags("own:Grid-v0", {"bonus": 1.5}) == " --trust-env-module --trust-env-options"


@pytest.fixture
def open_now(monkeypatch: pytest.MonkeyPatch) -> list[CountingEnv]:
    """The environments that are made and not closed."""
    found: list[CountingEnv] = []
    made = CountingEnv.__init__

    def make(self: CountingEnv, *arguments: Any, **options: Any) -> None:
        if options.get("length") == len(found):
            raise ConfigError("no more than these")
        made(self, *arguments, **options)
        found.append(self)

    monkeypatch.setattr(CountingEnv, "__init__", make)
    monkeypatch.setattr(CountingEnv, "close", lambda self: found.remove(self))
    return found


def test_an_environment_that_does_not_fit_is_closed(open_now: list[CountingEnv]) -> None:
    agent = make_agent()
    for make in (lambda: env_of(agent, "tests/CountingDict-v0"), lambda: agent.set_env("tests/CountingDict-v0")):
        with pytest.raises(SpaceError):
            make()
        assert not open_now


def test_environments_are_closed_where_a_later_one_fails(open_now: list[CountingEnv]) -> None:
    agent = make_agent(env_options={"length": 2})
    for make in (lambda: make_vec_env(agent, 3), lambda: rollout(agent, "tests/Counting-v0", 3, n_envs=3)):
        with trusting_env_options(), pytest.raises(ConfigError, match="no more than these"):
            make()
        assert not open_now


def test_a_window_that_fails_closes_its_environment(open_now: list[CountingEnv]) -> None:
    agent = make_agent(model=UniMaskConfig(**SIZES))
    agent.predict = lambda *_, **__: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        run_window(agent)
    assert not open_now


def test_the_references_of_a_recipe_are_those_of_its_options() -> None:
    """With other options the same environment is another task, and its returns are points of nothing."""
    agent = make_agent(env_options={"length": 3}, reference=(0.0, 9.0))
    with trusting_env_options():
        own = evaluate(agent, episodes=2)
    same = evaluate(agent, gym.make("tests/Counting-v0", length=3), episodes=2)
    assert (same.score, same.expert_reference) == (own.score, 9.0)
    other = evaluate(agent, gym.make("tests/Counting-v0", length=5), episodes=2)
    assert other.score is other.expert_reference is None
