"""What a fine-tune takes from its data: environment, target, references, observation keys."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import SMALL, make_agent
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec
from typer.testing import CliRunner

import agentzoo
from agentzoo.agent import Agent
from agentzoo.cli.command import app
from agentzoo.data.episodes import Episodes
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import write_dataset
from agentzoo.data.targets import CONSTANTS
from agentzoo.errors import CheckpointError, ConfigError, SpaceError, TrainingError
from agentzoo.recipe import Recipe
from agentzoo.training.finetune import plan_finetune, plan_repeat, start_from
from agentzoo.training.planning import plan

ABOUT: dict[str, Any] = {"algorithm_name": "chance", "author": "a test", "description": "By chance."}
QUICK = ("eval.every=0", "train.log_every=1", "train.batch_size=4")


def episode(length: int, reward: float = 1.0, observations: Any = None) -> Rollout:
    """Steps of CartPole's shape that end with a termination."""
    seen = np.zeros((length + 1, 4), np.float32) if observations is None else observations
    ends = np.arange(length) == length - 1
    return Rollout(0, seen, np.arange(length) % 2, np.full(length, reward), ends, np.zeros(length, dtype=bool))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two episodes of return 4 and 6: without an environment, of CartPole, and of a shorter CartPole."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    both, cart = [episode(4), episode(6)], gym.make("CartPole-v1")
    spaces = {"observation_space": cart.observation_space, "action_space": cart.action_space}
    write_dataset("my/plain-v0", both, **spaces, **ABOUT)
    write_dataset("my/cart-v0", both, env=cart, **ABOUT)
    shorter = gym.make("CartPole-v1", max_episode_steps=6)
    write_dataset("my/short-v0", both, env=shorter, extra={"ref_min_score": 1.0, "ref_max_score": 9.0}, **ABOUT)
    return tmp_path


def base_with(*settings: str, env: str = "CartPole-v1", **eval_: Any) -> Agent:
    base = make_agent(env, **{"target_return": 5.0, "target_rule": "max", "reference": (0.0, 500.0), **eval_})
    assert base.recipe is not None
    base.recipe = base.recipe.override(settings)
    return base


def planned(base: Agent, dataset: str, **options: Any) -> Recipe:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recipe, episodes = plan_finetune(base, dataset, **options)
        start_from(base, recipe, episodes)
    return recipe


def test_a_fine_tune_is_evaluated_in_the_environment_of_its_data(root: Path) -> None:
    base = base_with()
    for dataset in ("my/plain-v0", "my/cart-v0"):  # the base's environment
        same = planned(base, dataset).eval
        assert (same.env, same.env_options, same.reference) == ("CartPole-v1", {}, (0.0, 500.0))
        assert (same.target_return, same.target_rule) == (6.0, "max")
    other = planned(base, "my/short-v0").eval
    assert (other.env_options, other.reference) == ({"max_episode_steps": 6}, (1.0, 9.0))
    asked = planned(base, "my/short-v0", env="Acrobot-v1").eval
    assert (asked.env, asked.env_options, asked.reference) == ("Acrobot-v1", {}, None)
    assert planned(base_with(env_options={"sutton_barto_reward": True}), "my/cart-v0").eval.reference is None
    in_module = base_with(env="gymnasium.envs:CartPole-v1")
    assert planned(in_module, "my/cart-v0").eval.env == "gymnasium.envs:CartPole-v1"


def test_the_target_of_a_fine_tune_follows_from_its_data(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the base's rule; a number set by hand stays in the same environment."""
    monkeypatch.setitem(CONSTANTS, "CartPole", 5.5)
    for rule, target in (("max", 6.0), ("d4rl", 5.5)):
        evaluation = planned(base_with(target_rule=rule), "my/cart-v0").eval
        assert (evaluation.target_return, evaluation.target_rule) == (target, rule)
    monkeypatch.delitem(CONSTANTS, "CartPole")
    ninth = planned(base_with(target_rule="p90"), "my/cart-v0").eval
    assert (ninth.target_return, ninth.target_rule) == (pytest.approx(5.8), "p90")
    by_hand = base_with(target_rule="number")
    for dataset, found in (("my/cart-v0", (5.0, "number")), ("my/short-v0", (6.0, "max"))):
        evaluation = planned(by_hand, dataset).eval
        assert (evaluation.target_return, evaluation.target_rule) == found
    for options in ({"target": "3.5"}, {"settings": ["eval.target_return=3.5"]}):
        evaluation = planned(base_with(), "my/cart-v0", **options).eval
        assert (evaluation.target_return, evaluation.target_rule) == (3.5, "number")
    with pytest.raises(ConfigError, match=r"the target return is nan"):
        planned(base_with(), "my/cart-v0", target="nan")


def test_no_update_is_too_few(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.steps"):
        plan_finetune(base_with(), "my/cart-v0", steps=0)


def test_few_episodes_are_all_used_whatever_the_base_held_out(root: Path) -> None:
    base = base_with()
    assert base.recipe is not None
    base.recipe = base.recipe.override(["data.held_out=0.05"])
    recipe, _ = plan_finetune(base, "my/cart-v0")
    assert recipe.data.held_out is None  # a run of so few episodes holds out none
    recipe, _ = plan_finetune(base, "my/cart-v0", settings=["data.held_out=0.3"])
    assert recipe.data.held_out == 0.3


def test_two_datasets_are_one_too_many(root: Path) -> None:
    for setting in ("data.dataset=my/other-v0", 'data={"dataset": "my/other-v0"}'):
        with pytest.raises(ConfigError, match=r"'my/cart-v0', but a setting names data.dataset='my/other-v0'; name"):
            plan_finetune(base_with(), "my/cart-v0", settings=[setting])


def test_a_fine_tune_is_no_template_of_a_new_network(root: Path) -> None:
    """Before the data is read: there is none."""
    tuned = base_with().recipe
    assert tuned is not None
    tuned = tuned.replace(agent_id="dt-tuned", base="dt-test")
    (root / "tuned").mkdir()
    file = root / "tuned" / "train_config.json"
    file.write_text(tuned.to_json())
    for named, folder in ((tuned, "dt-tuned"), (str(file), file.parent), (str(file.parent), file.parent)):
        with pytest.raises(ConfigError, match="'dt-tuned' is a fine-tune of 'dt-test', and `train`") as refused:
            plan(named, dataset="my/none-v0")
        assert f"`agentzoo finetune {folder} --dataset my/none-v0` trains its" in str(refused.value)
        assert "`agentzoo train dt --dataset my/none-v0` trains a new network" in str(refused.value)


def test_a_repeated_fine_tune_takes_a_dataset_by_its_short_name() -> None:
    tuned = base_with().recipe
    assert tuned is not None
    read: list[str] = []

    def nothing(dataset: str, _: Any) -> Any:
        read.append(dataset)

    recipe, _ = plan_repeat(tuned.replace(base="dt-test"), ["data.dataset=hopper/medium"], nothing)
    assert [recipe.data.dataset] == read == ["zoo/hopper/medium-v0"]


def test_an_option_that_a_setting_contradicts_is_refused(root: Path) -> None:
    wrong: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"steps": 7}, "train.steps=9", r"--steps \(steps=\) is '7', but a setting is train\.steps=9; name one"),
        (
            {"normalization": "keep"},
            "data.normalization=dataset",
            r"--normalization .* is 'keep', but .*=dataset;",
        ),
        ({"name": "dt-one"}, "agent_id=dt-two", r"--name \(name=\) is 'dt-one', but .*agent_id=dt-two; name one"),
        ({"reinit": True}, "reinit=false", r"--reinit \(reinit=\) is 'true', but a setting is reinit=false; name one"),
    )
    for given, setting, said in wrong:
        with pytest.raises(ConfigError, match=said):
            plan_finetune(base_with(), "my/cart-v0", settings=[setting], **given)
    both, _ = plan_finetune(base_with(), "my/cart-v0", steps=70, settings=["train.steps=70"])
    alone, _ = plan_finetune(base_with("train.warmup_steps=400"), "my/cart-v0", settings=["train.steps=70"])
    assert both.train.steps == alone.train.steps == 70
    assert alone.train.warmup_steps == 7  # a tenth of them, as with --steps
    with pytest.raises(ConfigError, match=r"train\.steps"):
        plan_finetune(base_with(), "my/cart-v0", settings=["train.steps=many"])


def test_episodes_beyond_the_bases_timesteps_are_warned_of(root: Path) -> None:
    for rows, warned in ((5, True), (6, False), (1, False)):  # one row is for all steps
        base = base_with(model=SMALL["dt"].model_copy(update={"max_ep_len": rows}))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start_from(base, *plan_finetune(base, "my/cart-v0"))
        said = [str(one.message) for one in caught if "timesteps" in str(one.message)]
        assert ["up to 6 steps, and dt-test has 5 timesteps" in one for one in said] == [True] * warned


def test_returns_far_from_the_bases_are_warned_of(root: Path) -> None:
    write_dataset("my/rich-v0", [episode(6, 100.0)], env=gym.make("CartPole-v1"), **ABOUT)
    said = r"sizes of up to 600, those of dt-test of about 10: divided by 10, .* data\.rtg_scale=600 brings"
    base = base_with()
    with pytest.warns(UserWarning, match=said):
        start_from(base, *plan_finetune(base, "my/rich-v0"))
    planned(base_with(), "my/rich-v0", settings=["data.rtg_scale=600.0"])
    planned(base_with(target_return=100.0), "my/rich-v0")
    costs = [episode(length, -100.0) for length in (1, 6)]  # the best return is -100, so the target says little
    write_dataset("my/costs-v0", costs, env=gym.make("CartPole-v1"), **ABOUT)
    planned(base_with("data.rtg_scale=100.0", target_return=-0.5), "my/costs-v0")
    planned(base_with("data.dataset=my/rich-v0"), "my/rich-v0")  # the base's own data


def test_layers_that_do_not_fit_are_refused_before_advice_on_the_data(root: Path) -> None:
    """The advice was to set a scale, for a fine-tune that cannot start."""
    rich = [episode(6, 100.0, np.zeros((7, 6), np.float32))]
    write_dataset("my/other-v0", rich, env=gym.make("Acrobot-v1"), **ABOUT)
    folder = str(base_with(model=SMALL["dt"].model_copy(update={"max_ep_len": 5})).save_pretrained(root / "base"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(CheckpointError, match=r"dt-test does not fit the recipe for 'my/other-v0'"):
            agentzoo.finetune(folder, "my/other-v0", device="cpu")
    assert [str(one.message) for one in caught if "my/other-v0" in str(one.message)] == []


def test_the_bases_keys_of_a_dict_are_read(root: Path) -> None:
    base = make_agent("tests/CountingDict-v0")
    box = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
    for name, keys in (("more", "abc"), ("less", "ac")):
        seen = {key: np.zeros((4, 3), np.float32) for key in keys}
        ends = np.arange(3) == 2
        one = Rollout(0, seen, np.zeros((3, 2), np.float32), np.ones(3), ends, np.zeros(3, dtype=bool))
        spaces = {"observation_space": gym.spaces.Dict(dict.fromkeys(keys, box)), "action_space": action}
        write_dataset(f"my/{name}-v0", [one], **spaces, **ABOUT)
    recipe, episodes = plan_finetune(base, "my/more-v0", target="max")
    assert recipe.data.obs_keys == episodes.observation.keys == ("a", "b")
    start_from(base, recipe, episodes)
    with pytest.raises(SpaceError, match="observation key 'b'"):
        plan_finetune(base, "my/less-v0")


def test_an_agent_of_raw_observations_is_fine_tuned_without_normalization() -> None:
    base = Agent.from_pretrained("zoo/unimask-doorkey", device="cpu")
    io = base.config.io
    seen = torch.nn.functional.one_hot(torch.zeros(4, io.observation.size // 16, dtype=torch.long), 16)
    episodes = Episodes(
        "my/doors-v0",
        io.observation,
        io.action,
        seen.reshape(4, -1).numpy().astype(np.float32),
        *(np.zeros(4, dtype=np.int64), np.ones(4), np.array([4]), np.array([True])),
    )
    recipe, _ = plan_finetune(base, "zoo/doorkey/train-500-v0", target="max", read=lambda *_: episodes)
    assert recipe.data.normalization == "none"
    start = start_from(base, recipe, episodes)
    assert all(torch.equal(value, start.state_dict()[name]) for name, value in base.model.state_dict().items())


def test_both_ways_to_fine_tune_ask_for_the_same(root: Path) -> None:
    folder = base_with().save_pretrained(root / "base")
    options = {"name": "mine", "target": "p90", "env": "CartPole-v1", "steps": 2, "normalization": "dataset"}
    agentzoo.finetune(folder, "my/plain-v0", out="python", settings=QUICK, device="cpu", **options)  # type: ignore[arg-type]
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    changes = [part for one in QUICK for part in ("--set", one)]
    arguments = ["finetune", str(folder), "--dataset", "my/plain-v0", "--out", "command", "--device", "cpu"]
    done = CliRunner().invoke(app, [*arguments, *given, *changes], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    by_python, by_command = (
        json.loads((root / name / "train_config.json").read_text()) for name in ("python", "command")
    )
    by_python.pop("ran"), by_command.pop("ran")
    assert by_python == by_command
    assert (by_python["eval"]["target_return"], by_python["agent_id"]) == (pytest.approx(5.8), "mine")


class WatchedCartPole(CartPoleEnv):
    """Counts the episodes of all environments of its kind."""

    begun: ClassVar[list[int | None]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.begun.append(seed)
        return super().reset(seed=seed, options=options)


def test_a_folder_of_another_fine_tune_is_refused_before_the_agent_is_evaluated(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = EnvSpec("tests/Watched-v0", WatchedCartPole, max_episode_steps=9)
    monkeypatch.setitem(gym.registry, watched.id, watched)
    folder = str(base_with().save_pretrained(root / "base"))
    words = ["finetune", folder, "--dataset", "my/plain-v0", "--env", watched.id, "--out", "tuned", "--device", "cpu"]
    words += ["--steps", "1", "--set", "eval.every=1", "--set", "eval.every_episodes=1"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    episodes = len(WatchedCartPole.begun)
    assert episodes == 3  # before, after the last update, and after
    again = CliRunner().invoke(app, [*words, "--set", "train.lr=0.5"])
    assert isinstance(again.exception, TrainingError)
    assert "tuned holds a run of 'dt-test-finetuned' with another recipe (train.lr: " in str(again.exception)
    assert len(WatchedCartPole.begun) == episodes


def test_trust_env_options_accepts_what_the_error_refuses(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the error advises: `train`, `finetune` and `evaluate` take `trust_env_options`."""
    own = EnvSpec("tests/Own-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=9)
    monkeypatch.setitem(gym.registry, own.id, own)
    changes = (*QUICK[1:], "train.warmup_steps=0", "eval.every=1", "eval.every_episodes=1")
    new = (*changes, "train.steps=1", "model.embed_dim=16", "model.n_layers=1")
    new = (*new, 'eval.env_options={"sutton_barto_reward": true}')

    def tried(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with pytest.raises(ConfigError, match=r"'sutton_barto_reward' is not .*pass trust_env_options=True"):
            function(*arguments, **options)
        return function(*arguments, **options, trust_env_options=True)

    tried(agentzoo.train, "dt", dataset="my/plain-v0", env=own.id, out="run", settings=new, device="cpu")
    tried(agentzoo.finetune, "run", "my/plain-v0", steps=1, out="tuned", settings=changes, device="cpu")
    tried(agentzoo.evaluate, "tuned", episodes=1)
    loaded = Agent.from_pretrained("tuned", device="cpu")
    tried(agentzoo.evaluate, loaded, episodes=2, n_envs=2, jobs=2)
    assert not loaded.trust_env_options
