"""The environment of a recipe is the one of its data, or a warning says what differs."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest
from conftest import CountingEnv, make_agent
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.monitor import Monitor

from agentzoo.data.making.collect import Rollout
from agentzoo.data.making.import_files import import_file
from agentzoo.data.minari import write_dataset
from agentzoo.envs import make_env, making
from agentzoo.errors import ConfigError, UnknownNameError
from agentzoo.evaluation.during import check_environment
from agentzoo.evaluation.rollout import rollout
from agentzoo.evaluation.scores import with_reference
from agentzoo.recipe import load_recipe
from agentzoo.training.environment import Environment, environment_for_data
from agentzoo.training.finetune import plan_finetune
from agentzoo.training.planning import plan

ABOUT: dict[str, Any] = {"algorithm_name": "chance", "author": "a test", "description": "By chance."}


def spec_of(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Metadata as Minari stores it."""
    assert env.spec is not None
    env.close()
    return {"env_spec": env.spec.to_json()}


def of_hopper(dataset: str, env: gym.Env[Any, Any], bonus: float = 1.0) -> str:
    """One episode of Hopper's shape whose metadata names `env` and references of its own."""
    ends = np.arange(5) == 4
    one = Rollout(0, np.zeros((6, 11)), np.zeros((5, 3), np.float32), np.full(5, bonus), ends, np.zeros(5, dtype=bool))
    write_dataset(dataset, [one], env=env, extra={"ref_min_score": 1.0, "ref_max_score": 9.0}, **ABOUT)
    env.close()
    return dataset


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("env_id", "kwargs", "options"),
    [
        ("CartPole-v1", {}, {}),
        ("CartPole-v1", {"sutton_barto_reward": True}, {"sutton_barto_reward": True}),
        ("CartPole-v1", {"render_mode": "rgb_array"}, {}),
        ("CartPole-v1", {"max_episode_steps": 30}, {"max_episode_steps": 30}),
        ("CartPole-v1", {"max_episode_steps": 3_000_000}, {"max_episode_steps": 100_000}),
        ("CartPole-v1", {"max_episode_steps": -1}, {"max_episode_steps": 100_000}),  # it has no limit
    ],
)
def test_options_and_limit_of_the_data_are_kept(env_id: str, kwargs: dict[str, Any], options: dict[str, Any]) -> None:
    assert environment_for_data(spec_of(gym.make(env_id, **kwargs))) == Environment(env_id, options)


def test_the_limit_of_an_environment_that_has_none_of_its_own() -> None:
    for steps, options in (
        (4, {"max_episode_steps": 4}),
        (None, {}),
    ):  # without one, `make_configured` sets the largest
        spec = json.dumps({"id": "tests/Counting-v0", "max_episode_steps": steps})
        assert environment_for_data({"env_spec": spec}) == Environment("tests/Counting-v0", options)


def test_an_environment_that_a_recipe_cannot_hold_is_refused(root: None) -> None:
    """Unless the user asks for it, and then a warning names what is lost."""
    ranged = spec_of(gym.make("Hopper-v5", healthy_z_range=(0.2, 2.0)))
    wrapped = spec_of(gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), -1.0, 1.0))
    for watched in (gym.wrappers.RecordEpisodeStatistics, minari.DataCollector, Monitor):
        assert environment_for_data(spec_of(watched(gym.make("Pendulum-v1")))) == Environment("Pendulum-v1", {})
    for metadata, env_id, lost in (
        (ranged, "Hopper-v5", r"healthy_z_range=\[0\.2, 2\.0\]"),
        (wrapped, "Pendulum-v1", "the wrapper RescaleAction"),
    ):
        with pytest.raises(
            ConfigError, match=rf"made in {env_id} with {lost}, which a recipe cannot hold.*If {env_id} has"
        ):
            environment_for_data(metadata)
        with pytest.warns(UserWarning, match=rf"evaluated in {env_id} without {lost}"):
            assert environment_for_data(metadata, env_id) == Environment(env_id, {})
        assert environment_for_data(metadata, "my.module:Own-v0") == Environment("my.module:Own-v0", {})


def stacked(length: int = 7) -> gym.Env[Any, Any]:
    """An entry point that wraps its environment."""
    return gym.wrappers.FrameStackObservation(CountingEnv(length), 2)


def test_wrappers_that_the_environment_has_by_itself_are_not_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry point adds them, or its registration, also beside wrappers that only watch."""
    by_entry_point = EnvSpec("tests/Stacked-v0", stacked)
    watched = gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1")).spec
    assert watched is not None
    by_registration = EnvSpec("tests/Watched-v0", CountingEnv, additional_wrappers=watched.additional_wrappers)
    for spec in (by_entry_point, by_registration):
        monkeypatch.setitem(gym.registry, spec.id, spec)
        own = {"env_spec": json.dumps({"id": spec.id, "additional_wrappers": names_around(gym.make(spec.id))})}
        assert environment_for_data(own) == Environment(spec.id, {})
        more = names_around(gym.wrappers.ClipAction(gym.make(spec.id)))
        with pytest.raises(ConfigError, match=rf"made in {spec.id} with the wrapper ClipAction, which"):
            environment_for_data({"env_spec": json.dumps({"id": spec.id, "additional_wrappers": more})})


def names_around(env: gym.Env[Any, Any]) -> list[dict[str, str]]:
    assert env.spec is not None
    env.close()
    return [{"name": one.name} for one in env.spec.additional_wrappers]


def test_data_of_our_own_games_are_of_these_games() -> None:
    pytest.importorskip("ale_py")
    assert environment_for_data(spec_of(make_env("agentzoo/Pong-v5"))) == Environment("agentzoo/Pong-v5", {})


OWN_MODULE = """
import gymnasium as gym
for name in ("tests/Own-v0", "tests/Second-v0"):
    gym.register(name, "gymnasium.envs.classic_control:PendulumEnv", kwargs={"g": 9.0, "dims": (1, 2)})
"""


@pytest.fixture
def own_module(root: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id, with its module, of an environment that the user's module registers, and data of it."""
    (tmp_path / "own_registered.py").write_text(OWN_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    spec = EnvSpec("tests/Own-v0", "own:Env", kwargs={"g": 9.0, "dims": (1, 2)}).to_json()
    one = of_hopper("my/own-v0", gym.make("Hopper-v5"))
    metadata = tmp_path / one / "data" / "metadata.json"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "env_spec": spec}))
    yield "own_registered:tests/Own-v0"
    for name in ("tests/Own-v0", "tests/Second-v0"):
        gym.registry.pop(name, None)
    sys.modules.pop("own_registered", None)


@pytest.mark.parametrize("asked", [{"env": "own_registered:tests/Own-v0"}, {"settings": ["eval.env={}"]}])
def test_options_that_the_users_module_registers_are_usual(own_module: str, asked: dict[str, Any]) -> None:
    """Once it may be imported; before that nobody knows, and nothing is said."""
    asked = {"settings": [f"eval.env={own_module}"]} if "settings" in asked else asked
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unknown, _ = plan("dt", dataset="my/own-v0", target="max", **asked)
        assert "own_registered" not in sys.modules
        known, _ = plan("dt", dataset="my/own-v0", target="max", trust_env_module=True, **asked)
    assert (unknown.eval.env, unknown.eval.env_options) == (own_module, {"g": 9.0})
    assert (known.eval.env, known.eval.env_options) == (own_module, {})


def test_a_fine_tune_keeps_the_target_of_an_environment_of_the_users_module(own_module: str) -> None:
    agent = make_agent("Hopper-v5", target_return=4.0)
    assert agent.recipe is not None
    agent.recipe = agent.recipe.override([f"eval.env={own_module}"])
    found = plan_finetune(agent, "my/own-v0", trust_env_module=True)[0].eval
    assert (found.env, found.env_options, found.target_return) == (own_module, {}, 4.0)


def test_a_fine_tune_in_another_environment_of_the_users_module_names_the_module(own_module: str) -> None:
    """Else the new agent's environment is unknown once the module is no longer imported."""
    agent = make_agent("Hopper-v5", target_return=4.0)
    assert agent.recipe is not None
    agent.recipe = agent.recipe.override(["eval.env=own_registered:tests/Second-v0"])
    found = plan_finetune(agent, "my/own-v0", trust_env_module=True)[0].eval
    assert (found.env, found.env_options) == (own_module, {})
    agent.recipe = agent.recipe.override(["eval.env=own_registered:tests/Second-v0"])
    plain = of_hopper("my/plain-v0", gym.make("Hopper-v5"))
    assert plan_finetune(agent, plain, trust_env_module=True)[0].eval.env == "Hopper-v5"  # gymnasium's


def test_an_unregistered_environment_is_unknown_also_with_options(own_module: str) -> None:
    """Its data name options, of which nobody knows whether they are harmless: trusting them would not help."""
    recipe, episodes = plan("dt", dataset="my/own-v0", target="max", settings=["eval.every=1"])
    assert (recipe.eval.env, recipe.eval.env_options) == ("tests/Own-v0", {"g": 9.0})
    said = r"no environment 'tests/Own-v0'.*write 'MODULE:tests/Own-v0' and pass.*\(--trust-env-module\)"
    with pytest.raises(UnknownNameError, match=said):
        check_environment(recipe, episodes, False)
    with pytest.raises(UnknownNameError, match=r"write 'MODULE:tests/Own-v0'\.$"):  # the command has no such flag
        import_file(Path("any.npz"), "my/any-v0", env_id="tests/Own-v0")


def test_data_whose_package_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    for name in [name for name in gym.registry if name.startswith("PointMaze")]:
        monkeypatch.delitem(gym.registry, name)
    metadata = {"env_spec": json.dumps({"id": "PointMaze_UMaze-v3", "kwargs": {"maze_map": [[1]]}})}
    with pytest.raises(ConfigError, match=r"PointMaze_UMaze-v3, whose package is not installed.*agentzoo\[mujoco\]"):
        environment_for_data(metadata)


def test_scores_and_constants_of_another_task_are_not_used(root: None) -> None:
    """Options make another task, without D4RL's references and target; so does an environment that is asked for."""
    data = of_hopper("my/plain-v0", gym.make("Hopper-v5"), bonus=1e3)
    plain, _ = plan("dt", dataset=data)
    assert (plain.eval.target_return, plain.eval.target_rule) == (3600.0, "d4rl")
    assert plain.eval.reference is None  # D4RL's
    own = of_hopper("my/own-v0", gym.make("Hopper-v5", healthy_reward=0.0, max_episode_steps=50), bonus=1e3)
    changed, _ = plan("dt", dataset=own)
    assert changed.eval.env_options == {"healthy_reward": 0.0, "max_episode_steps": 50}
    assert (changed.eval.target_return, changed.eval.target_rule) == (5000.0, "max")
    assert changed.eval.reference == (1.0, 9.0)
    elsewhere, _ = plan("dt", dataset=own, env="tests/Counting-v0")
    assert (elsewhere.eval.env_options, elsewhere.eval.reference) == ({}, None)
    assert with_reference(elsewhere).eval.reference is None
    module, _ = plan("dt", dataset=own, env="gymnasium.envs:Hopper-v5")
    assert module.eval.env_options == changed.eval.env_options
    assert module.eval.reference == (1.0, 9.0)


def test_another_env_drops_what_belongs_to_the_old_one() -> None:
    recipe = load_recipe("dt-hopper-medium").override(
        ['eval.env_options={"frame_skip": 3}', "eval.reference=[1.0, 2.0]"]
    )
    again = recipe.override(["eval.env=my.module:Hopper-v5"]).eval
    assert (again.env_options, again.reference) == ({"frame_skip": 3}, (1.0, 2.0))
    other = recipe.override(["eval.env=Walker2d-v5"]).eval
    assert (other.env, other.env_options, other.reference) == ("Walker2d-v5", {}, None)
    kept = recipe.override(['eval.env_options={"frame_skip": 2}', "eval.env=Walker2d-v5"]).eval
    assert kept.env_options == {"frame_skip": 2}


def test_an_episode_without_a_limit_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "MAX_STEPS", 20)
    endless = EnvSpec("tests/Endless-v0", entry_point=CountingEnv, kwargs={"length": 10**9})
    monkeypatch.setitem(gym.registry, endless.id, endless)
    agent = make_agent("tests/Counting-v0")
    assert [one.length for one in rollout(agent, endless.id, 1)] == [20]


def test_an_environment_that_minari_could_not_store_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: 2.0 * float(reward))
    ends = np.arange(3) == 2
    one = Rollout(0, np.zeros((4, 4), np.float32), np.arange(3) % 2, np.ones(3), ends, np.zeros(3, dtype=bool))
    with pytest.warns(UserWarning, match="env_spec is not serializable"):
        write_dataset("my/doubled-v0", [one], env=env, **ABOUT)
    with pytest.raises(ConfigError, match=r"does not name its environment; .* a lambda: register .* MODULE:ID-v0"):
        plan("dt", dataset="my/doubled-v0")
