"""A family and a dataset of one's own are enough to train: the rest comes from the data."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import CountingEnv, make_agent
from data.cases import episodes_of

import agentzoo
from agentzoo.cli.running import settings_with
from agentzoo.data.episodes import Episodes
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import write_dataset
from agentzoo.data.spaces import observation_spec
from agentzoo.errors import ConfigError, SpaceError, UnknownNameError
from agentzoo.recipe import load_recipe
from agentzoo.registry import recipe_table
from agentzoo.training.finetune import plan_finetune
from agentzoo.training.hooks import Hooks
from agentzoo.training.loop import build_model
from agentzoo.training.planning import name_for, plan, scale_of
from agentzoo.types import ObservationSpec
from training.cases import Stopped, stop_at

QUICK = ("train.steps=4", "train.warmup_steps=1", "eval.every=4", "eval.every_episodes=2", "train.checkpoint_every=4")
SMALL = ("model.embed_dim=16", "model.n_layers=1", "data.context=4")


def cartpole_episode(seed: int) -> Rollout:
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    rng, seen, actions, done = np.random.default_rng(seed), [observation], [], False
    while not done:
        actions.append(int(rng.integers(2)))
        observation, _, terminated, truncated, _ = env.step(actions[-1])
        seen.append(observation)
        done = terminated or truncated
    length = len(actions)
    ends = np.arange(length) == length - 1
    return Rollout(seed, np.stack(seen), np.array(actions), np.ones(length), ends, np.zeros(length, dtype=bool))


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CartPole by chance as a stock collector leaves it, with reference scores, and data of no known environment."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    episodes = [cartpole_episode(seed) for seed in range(6)]
    about: dict[str, Any] = {"algorithm_name": "chance", "author": "a test", "description": "By chance."}
    extra = {"ref_min_score": 9.0, "ref_max_score": 500.0}
    write_dataset("my/cart-pole-v0", episodes, env=gym.make("CartPole-v1"), extra=extra, **about)
    env = CountingEnv()
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    one = Rollout(
        0, np.zeros((4, 3), np.float32), np.zeros((3, 2), np.float32), np.ones(3), np.arange(3) == 2, np.zeros(3, bool)
    )
    write_dataset("my/robot-v0", [one], **spaces, **about)
    return tmp_path


def test_a_family_and_a_dataset_make_a_recipe(datasets: Path) -> None:
    recipe, episodes = plan("dt", dataset="my/cart-pole-v0")
    assert recipe.agent_id == "dt-my-cart-pole"
    assert (recipe.eval.env, recipe.eval.env_options) == ("CartPole-v1", {})
    assert (recipe.eval.target_return, recipe.eval.target_rule) == (episodes.returns.max(), "max")
    assert recipe.data.rtg_scale == 10.0  # returns of 10 to 99 steps
    assert recipe.eval.reference == (9.0, 500.0)
    template = load_recipe("dt-hopper-medium")
    assert recipe.train == template.train
    assert (recipe.eval.every, recipe.eval.every_episodes) == (template.eval.every, template.eval.every_episodes)
    assert plan("chibit", dataset="my/cart-pole-v0")[0].eval.history == load_recipe("chibit-hopper-medium").eval.history
    changed, _ = plan("dt", dataset="my/cart-pole-v0", target="12", settings=["train.steps=7", "data.rtg_scale=5.0"])
    assert (changed.eval.target_return, changed.eval.target_rule) == (12.0, "number")
    assert (changed.train.steps, changed.data.rtg_scale) == (7, 5.0)
    for family in ("bc", "dm", "unimask"):
        assert plan(family, dataset="my/cart-pole-v0")[0].agent_id == f"{family}-my-cart-pole"
    with pytest.raises(UnknownNameError, match="no family or agent 'dtt'"):
        plan("dtt", dataset="my/cart-pole-v0")


def test_settings_of_the_data_are_read(datasets: Path) -> None:
    """Also beside a dataset; a second dataset among them is refused."""
    box, env = gym.spaces.Box(-1.0, 1.0, (3,), np.float32), CountingEnv()
    seen = {key: np.zeros((4, 3), np.float32) for key in "ab"}
    ends = np.arange(3) == 2
    rollouts = [
        Rollout(0, seen, np.zeros((3, 2), np.float32), np.full(3, worth), ends, np.zeros(3, bool))
        for worth in (1.0, 5.0)
    ]
    spaces = {"observation_space": gym.spaces.Dict(dict.fromkeys("ab", box)), "action_space": env.action_space}
    about: dict[str, Any] = {"algorithm_name": "chance", "author": "a test", "description": "By chance."}
    write_dataset("my/keys-v0", rollouts, extra={"obs_keys": ["b", "a"]}, **spaces, **about)
    given: dict[str, Any] = {"dataset": "my/keys-v0", "env": "tests/CountingDict-v0"}
    assert plan("dt", **given)[1].observation.keys == ("b", "a")
    recipe, episodes = plan("dt", settings=['data.obs_keys=["a"]', "data.best_fraction=0.5"], target="p90", **given)
    assert recipe.data.obs_keys == episodes.observation.keys == ("a",)
    assert recipe.eval.target_return == 15.0  # of the best half
    spaces["observation_space"] = gym.spaces.Dict({**dict.fromkeys("ab", box), "c": gym.spaces.Discrete(3)})
    with_choice = [replace(one, observations={**seen, "c": np.zeros(4, np.int64)}) for one in rollouts]
    write_dataset("my/choice-v0", with_choice, extra={"obs_keys": ["b", "a"]}, **spaces, **about)
    unread, episodes = plan("dt", dataset="my/choice-v0", env="tests/CountingDict-v0")  # no network reads "c"
    assert unread.data.obs_keys == episodes.observation.keys == ("b", "a")
    with pytest.raises(SpaceError, match=r"'c' must be a Box, .* Choose others with data\.obs_keys=\[\"a\", \"b\"\]\."):
        observation_spec(spaces["observation_space"])
    whole = 'data={"dataset": "my/%s-v0", "obs_keys": ["a"], "best_fraction": 0.5}'
    recipe, episodes = plan("dt", settings=[whole % "keys"], **given)
    assert recipe.data.obs_keys == episodes.observation.keys == ("a",)
    assert recipe.eval.target_return == 15.0
    for setting in ("data.dataset=my/robot-v0", whole % "robot"):
        with pytest.raises(ConfigError, match=r"names 'my/keys-v0', but a setting names data\.dataset='my/robot-v0'"):
            plan("dt", settings=[setting], **given)


def test_data_of_no_environment_asks_for_one(datasets: Path) -> None:
    with pytest.raises(ConfigError, match="pass its Gymnasium id with --env"):
        plan("dt", dataset="my/robot-v0")
    assert plan("dt", dataset="my/robot-v0", env="tests/Counting-v0")[0].eval.env == "tests/Counting-v0"


@pytest.mark.parametrize(
    ("returns", "scale"),
    [([3600.0, 20.0], 1000.0), ([500.0], 100.0), ([-150.0], 100.0), ([1.0, 0.0], 1.0), ([0.0], 1.0), ([3e12], 1e9)],
)
def test_the_scale_of_returns(returns: list[float], scale: float) -> None:
    assert scale_of(np.array(returns)) == scale


def test_names_follow_the_dataset() -> None:
    assert name_for("dt", "zoo/hopper/medium-v0", "zoo/walker2d/medium-v0") == "dt-hopper-medium"
    for named, dataset, found in (
        ("dm-hopper-medium", "D4RL/antmaze/umaze-v1", "dm-d4rl-antmaze-umaze"),
        ("dm-hopper-medium-no-ilo", "my/x-v0", "dm-my-x-no-ilo"),
        ("my-hopper", "my/x-v0", "my-hopper-my-x"),
    ):
        assert name_for(named, dataset, "zoo/hopper/medium-v0") == found
    long = name_for("chibit-hopper-medium-scratch", "my/" + "x" * 200, "zoo/hopper/medium-v0")
    assert len(long) == 96
    assert long.endswith("x-scratch")


def test_twins_of_one_dataset_have_different_names() -> None:
    table = recipe_table()
    of_hopper = [name for name, one in table.items() if one.data.dataset == "zoo/hopper/medium-v0"]
    names = [name_for(name, "my/x-v0", "zoo/hopper/medium-v0") for name in of_hopper]
    assert len(set(names)) == len(of_hopper) > 20


def test_a_target_above_the_data_is_warned_of(datasets: Path) -> None:
    settings = ["data.dataset=my/cart-pole-v0", "eval.env=CartPole-v1"]
    with pytest.warns(
        UserWarning, match=r"target return 3332\.26 is above the best return in my/cart-pole-v0, \d+; `--target"
    ):
        plan("dt-hopper-medium", settings=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan("dt-hopper-medium", target="max", settings=settings)
        plan("bc-hopper-medium", settings=settings)  # it reads no target


def test_a_target_that_is_asked_for_needs_no_rule(datasets: Path) -> None:
    """The best return of these data is larger than any target may be."""
    episode = cartpole_episode(0)
    rich = replace(episode, rewards=np.full(len(episode), 1e9))
    about: dict[str, Any] = {"algorithm_name": "chance", "author": "a test", "description": "By chance."}
    write_dataset("my/rich-v0", [rich], env=gym.make("CartPole-v1"), **about)
    base = make_agent("CartPole-v1")
    wanted: tuple[dict[str, Any], ...] = ({"target": "5"}, {"settings": ["eval.target_return=5"]})
    for asked in wanted:
        for recipe, _ in (plan("dt", dataset="my/rich-v0", **asked), plan_finetune(base, "my/rich-v0", **asked)):
            assert (recipe.eval.target_return, recipe.eval.target_rule) == (5.0, "number")
    with pytest.raises(ConfigError, match=r"the target return is \d\.\d+e\+10 \(d4rl\)"):
        plan("dt", dataset="my/rich-v0")


def test_an_option_and_a_setting_that_differ_are_refused(datasets: Path) -> None:
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        (
            {"env": "CartPole-v0", "settings": ["eval.env=CartPole-v1"]},
            r"--env \(env=\) is 'CartPole-v0', but .*-v1; name",
        ),
        (
            {"target": "5", "settings": ["eval.target_return=6"]},
            r"--target \(target=\) is '5', but .*eval.target_return=6;",
        ),
    )
    for given, said in wrong:
        for dataset in ("my/cart-pole-v0", None):
            with pytest.raises(ConfigError, match=said):
                plan("dt-cartpole-mixed" if dataset is None else "dt", dataset=dataset, **given)
    same, _ = plan("dt", dataset="my/cart-pole-v0", env="CartPole-v1", settings=["eval.env=CartPole-v1"])
    assert same.eval.env == "CartPole-v1"
    with pytest.raises(ConfigError, match=r"--seed is 3, but a setting is train\.seed=4; name one"):
        settings_with(["train.lr=0.1", "train.seed=4"], 3)
    assert settings_with(["train.seed=3"], 3) == ["train.seed=3", "train.seed=3"]


def test_a_run_or_a_file_as_template_gives_its_agent_a_name(datasets: Path) -> None:
    """A folder that happens to be called like a family changes nothing."""
    filled_in = [f"data.dataset_sha256={'0' * 64}", "data.held_out=0.05"]  # by a run on other data
    made = load_recipe("dt-hopper-medium").override(["model.embed_dim=32", *filled_in]).replace(agent_id="dt-mine")
    (datasets / "runs" / "x").mkdir(parents=True)
    (datasets / "dt").mkdir()
    for path in (datasets / "runs" / "x" / "train_config.json", datasets / "mine.json"):
        path.write_text(made.to_json())
    for named in ("runs/x", str(datasets / "runs" / "x"), "mine.json"):
        recipe, _ = plan(named, dataset="my/cart-pole-v0")
        assert (recipe.agent_id, recipe.model.embed_dim) == ("dt-mine-my-cart-pole", 32)  # type: ignore[attr-defined]
        assert recipe.data.dataset_sha256 is recipe.data.held_out is None
    for named, agent_id in (("dt", "dt-my-cart-pole"), ("zoo/dt-hopper-medium", "dt-my-cart-pole")):
        assert plan(named, dataset="my/cart-pole-v0")[0].agent_id == agent_id


def test_data_beyond_the_bounds_of_a_recipe(datasets: Path) -> None:
    """Longer episodes share the last timestep; a window that is too large and a wrong environment are explained."""

    def read(*_: Any) -> Episodes:
        return episodes_of([1.0] * 100_001)

    recipe, _ = plan("dt", dataset="my/cart-pole-v0", read=read)
    assert recipe.model.max_ep_len == 100_000
    recipe, _ = plan("dt-hopper-medium-replay", dataset="my/cart-pole-v0", read=read)
    assert recipe.model.max_ep_len == 1  # it acts without timesteps, whatever the data
    with pytest.raises(ConfigError, match=r"agent of my/robot-v0 cannot be used: env: .*\(got '-Wrong-v0'\)"):
        plan("dt", dataset="my/robot-v0", env="-Wrong-v0")
    size = 60_000
    one = episodes_of([1.0])
    spec = ObservationSpec(size=size, shapes=((size,),))
    wide = replace(one, observation=spec, observations=np.zeros((1, size), np.float32))
    with pytest.raises(ConfigError, match=r"a network for hand cannot be used: a window of 8192 steps holds .*lower"):
        build_model(recipe.override(["data.context=8192"]), wide)


def test_images_for_a_family_of_vectors_are_refused_before_they_are_read(datasets: Path) -> None:
    """And vectors for a family of images."""
    ends, box = np.arange(3) == 2, gym.spaces.Box(0, 255, (9, 9, 3), np.uint8)
    one = Rollout(0, np.zeros((4, 9, 9, 3), np.uint8), np.zeros(3, int), np.ones(3), ends, np.zeros(3, bool))
    about: dict[str, Any] = {"algorithm_name": "chance", "author": "a test", "description": "By chance."}
    spaces = {"observation_space": box, "action_space": gym.spaces.Discrete(2)}
    write_dataset("my/frames-v0", [one], **spaces, **about)

    def read(*_: Any) -> Episodes:
        pytest.fail("the episodes were read")

    for family, dataset, said in (("dt", "my/frames-v0", "reads vectors"), ("dt-pixel", "my/robot-v0", "reads images")):
        with pytest.raises(SpaceError, match=f"the family '{family}' {said}"):
            plan(family, dataset=dataset, env="tests/Counting-v0", read=read)
    with pytest.raises(SpaceError, match="the family 'dt' reads vectors"):
        plan("dt-hopper-medium", settings=["data.dataset=my/frames-v0"], read=read)
    with pytest.raises(SpaceError, match="the family 'dt' reads vectors"):
        plan_finetune(make_agent("CartPole-v1"), "my/frames-v0", read=read)


def test_datasets_go_by_the_names_of_data_list(datasets: Path) -> None:
    with pytest.raises(UnknownNameError, match="'zoo/hopper/expert-v0'"):
        plan("dt", dataset="hopper/expert")


def test_train_finetune_and_evaluate_from_python(datasets: Path) -> None:
    agent = agentzoo.train("dt", dataset="my/cart-pole-v0", settings=[*QUICK, *SMALL], device="cpu")
    assert (datasets / "runs" / "dt-my-cart-pole-s0" / "config.json").is_file()
    result = agentzoo.evaluate(agent, episodes=3, n_envs=3)
    mean = result.mean_return
    assert result.score == pytest.approx(100 * (mean - 9.0) / 491.0)  # with the dataset's references
    assert agent.recipe is not None
    earlier = agent.recipe.eval.model_copy(update={"reference": None})  # as agents were stored before
    agent.recipe = agent.recipe.replace(eval=earlier)
    assert agentzoo.evaluate(agent, episodes=3, n_envs=3).score == result.score
    before = agent.weights_sha256
    tuned = agentzoo.finetune(agent, "my/cart-pole-v0", steps=3, settings=QUICK[2:4], out="tuned", device="cpu")
    assert tuned.config.agent_id == "dt-my-cart-pole-finetuned"
    assert agent.weights_sha256 == before != tuned.weights_sha256
    envs = agentzoo.make_vec_env(agent, 2, seed=3)
    from stable_baselines3.common.evaluation import evaluate_policy

    assert evaluate_policy(agent, envs, n_eval_episodes=2)[0] >= 8.0
    assert agent.rtg_source == "env"
    assert len(agentzoo.rollout(agent, envs, 2)) == 2
    again = agentzoo.make_vec_env(agent, 2, seed=3)
    np.testing.assert_array_equal(agentzoo.make_vec_env(agent, 2, seed=3).reset(), again.reset())
    named = agentzoo.make_vec_env(Path("tuned"), 2, seed=3)
    np.testing.assert_array_equal(named.reset(), agentzoo.make_vec_env(agent, 2, seed=3).reset())


def test_a_run_that_python_names_continues_where_it_is(datasets: Path) -> None:
    """As `agentzoo train FOLDER` does, and bf16 is insisted on by hand alone."""
    settings = [*QUICK, *SMALL, "train.checkpoint_every=1", "train.precision=bf16"]
    with pytest.raises(Stopped):
        agentzoo.train("dt", dataset="my/cart-pole-v0", settings=settings, out="mine", hooks=stop_at(2), device="cpu")
    resumed: list[int] = []
    agentzoo.train("mine", settings=["train.precision=bf16"], hooks=Hooks(on_resume=resumed.append), device="cpu")
    assert resumed == [2]
    assert (datasets / "mine" / "config.json").is_file()
    done = agentzoo.train(datasets / "mine", settings=["train.precision=bf16"], device="cpu")  # a path, too
    assert done.config.agent_id == "dt-my-cart-pole"
    assert not (datasets / "runs").exists()
    assert plan("mine")[0].train.precision == "auto"
    assert plan("mine", settings=["train.precision=bf16"])[0].train.precision == "bf16"


def test_python_shows_progress_where_it_is_asked_to(datasets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done: list[int] = []
    hooks, settings = Hooks(on_step=done.append), [*QUICK, *SMALL, "train.steps=4", "eval.every=2"]
    agent = agentzoo.train(
        "dt", dataset="my/cart-pole-v0", settings=settings, progress_bar=True, hooks=hooks, out="a", device="cpu"
    )
    shown = capsys.readouterr()
    assert (shown.out, done) == ("", [1, 2, 3, 4])
    assert re.search(
        r"update 2: score [\d.]+\nupdate 4: score [\d.]+\n.*4/4.*loss \d\.\d{4} score", shown.err, re.DOTALL
    )
    quiet = agentzoo.train("dt", dataset="my/cart-pole-v0", settings=settings, out="b", device="cpu")
    assert capsys.readouterr().err == ""
    assert quiet.weights_sha256 == agent.weights_sha256
    agentzoo.finetune(agent, "my/cart-pole-v0", steps=3, settings=QUICK[2:4], progress_bar=True, out="c", device="cpu")
    assert "3/3" in capsys.readouterr().err


def test_finetune_says_what_it_changed(datasets: Path) -> None:
    from typer.testing import CliRunner

    from agentzoo.cli.command import app

    agentzoo.train("dt", dataset="my/cart-pole-v0", settings=[*QUICK, *SMALL], out="run", device="cpu")
    arguments = ["finetune", "run", "--dataset", "my/cart-pole-v0", "--steps", "3", "--out", "tuned"]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert re.search(
        r"before: score [\d.]+, return [\d.]+, after: score [\d.]+, return [\d.]+ \(the same 2\s+episodes\)",
        found.output,
    ), found.output


def test_a_recipe_in_memory_is_trained_as_its_file(datasets: Path) -> None:
    changed = plan("dt", dataset="my/cart-pole-v0", settings=[*QUICK, *SMALL])[0].override("train.steps=2")
    agent = agentzoo.train(changed, settings="train.lr=1e-3", out="one", device="cpu")
    assert agent.recipe is not None
    assert (agent.recipe.train.steps, agent.recipe.train.lr) == (2, 1e-3)
    (datasets / "changed.json").write_text(changed.to_json())
    other = agentzoo.train("changed.json", settings=["train.lr=1e-3"], out="two", device="cpu")
    assert agent.weights_sha256 == other.weights_sha256
    renamed, _ = plan(changed, dataset="my/cart-pole-v0")
    assert (renamed.agent_id, renamed.train.steps) == ("dt-my-cart-pole", 2)
