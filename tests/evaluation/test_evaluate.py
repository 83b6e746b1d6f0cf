"""What `evaluate` records: scores, intervals, the command that repeats it, versions; and what it refuses."""

from __future__ import annotations

import importlib.metadata
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import CountingEnv, make_agent
from masked.cases import SIZES
from stable_baselines3.common.vec_env import DummyVecEnv

from agentzoo.agent import Agent
from agentzoo.envs.making import make_env
from agentzoo.errors import ConfigError, SpaceError, UnknownNameError
from agentzoo.evaluation.environments import env_of
from agentzoo.evaluation.results import Result, evaluate, result_of, with_command
from agentzoo.evaluation.rollout import EpisodeResult, make_vec_env, rollout
from agentzoo.evaluation.scores import mean_interval, normalized_score, over_seeds, reference_of
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.evaluation.versions import versions
from agentzoo.models.dt import DTConfig
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.text import amount, amounts, fixed


@pytest.mark.parametrize(
    ("env_id", "value", "score"),
    [("Hopper-v5", 3234.3, 100.0), ("Hopper-v5", -20.272305, 0.0), ("HalfCheetah-v5", 5927.4105235, 50.0)],
)
def test_normalized_scores(env_id: str, value: float, score: float) -> None:
    reference = reference_of(env_id)
    assert reference is not None
    assert normalized_score(np.array([value]), reference)[0] == pytest.approx(score, abs=1e-6)


def test_unknown_environments_have_no_reference() -> None:
    assert reference_of("Pendulum-v1") is None


def test_interval_of_constant_data_has_no_width_and_is_seeded() -> None:
    assert mean_interval(np.full(10, 3.0)) == (3.0, 3.0)
    assert mean_interval(np.array([4.0])) == (4.0, 4.0)
    values = np.random.default_rng(0).normal(size=400)
    low, high = mean_interval(values)
    assert (low, high) == mean_interval(values)
    half = 1.96 * values.std() / 20  # the normal approximation, an independent way to the same interval
    assert low == pytest.approx(values.mean() - half, abs=0.02)
    assert high == pytest.approx(values.mean() + half, abs=0.02)


def test_a_mean_that_rounds_to_zero_has_no_minus_sign() -> None:
    assert over_seeds([-0.04, 0.02], 1) == "0.0 ± 0.0 [0.0, 0.0]"


def test_the_interval_of_many_values_takes_little_memory_and_is_the_same() -> None:
    hundred = np.random.default_rng(100).normal(100.0, 30.0, size=100)
    assert mean_interval(hundred) == pytest.approx((95.38914813498802, 106.89813404667993), rel=1e-14)  # scipy's
    many = np.random.default_rng(5).normal(100.0, 30.0, size=3_000)  # in 16 batches
    tracemalloc.start()
    found = mean_interval(many)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx((99.63265808968289, 101.77220215648728), rel=1e-14)
    assert most < 100e6


def test_another_environment_of_the_same_id_has_no_score() -> None:
    assert reference_of("Hopper-v5", {"max_episode_steps": 300}) is None
    assert reference_of("Hopper-v5", {"render_mode": "rgb_array"}) == reference_of("Hopper-v5")
    agent = make_agent("Hopper-v5")
    assert evaluate(agent, gym.make("Hopper-v5"), 1).score is not None
    assert evaluate(agent, DummyVecEnv([lambda: gym.make("Hopper-v5", render_mode="rgb_array")]), 1).score is not None
    for options in ({"max_episode_steps": 300}, {"ctrl_cost_weight": 0.1}):
        assert evaluate(agent, gym.make("Hopper-v5", **options), 1).score is None
        assert evaluate(agent, DummyVecEnv([lambda o=options: gym.make("Hopper-v5", **o)]), 1).score is None
        agent.config = agent.config.model_copy(update={"env_options": options})
        assert evaluate(agent, episodes=1).score is None


def test_weights_changed_in_memory_are_no_file_and_no_command_repeats_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))
    agent = Agent.from_pretrained(make_agent().save_pretrained(tmp_path / "dt-test"))
    found = evaluate(agent, episodes=2)
    assert found.weights_sha256 == agent.config.weights_sha256 is not None
    assert str(found.command).startswith("agentzoo evaluate dt-test -n 2 ")
    with torch.no_grad():
        next(agent.model.parameters()).data[0] += 1e-6
    changed = evaluate(agent, episodes=2)
    assert (changed.weights_sha256, changed.command) == (None, None)
    agent.save_pretrained(tmp_path / "dt-test")
    assert evaluate(agent, episodes=2).command is not None


def test_the_recorded_command_repeats_the_numbers_or_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))
    agent = make_agent("tests/CountingDiscrete-v0")
    agent.save_pretrained(tmp_path / "dt-test")
    agent.target_return = 1234.5678
    sampled = evaluate(agent, episodes=3, n_envs=2, seed=4, deterministic=False)
    assert sampled.command == "agentzoo evaluate dt-test -n 3 --seed 4 --target 1234.5678 --sampled --envs 2"
    assert agent.recipe is not None
    sampling = agent.recipe.eval.model_copy(update={"sampled": True})
    agent.recipe = agent.recipe.replace(eval=sampling)
    certain = evaluate(agent, episodes=2, deterministic=True)
    assert (certain.deterministic, certain.command) == (True, None)  # the command would sample
    assert str(evaluate(agent, episodes=2).command).endswith("--sampled --envs 20")
    moved = make_agent()
    moved.config = moved.config.model_copy(update={"env": "tests/Other-v0"})
    moved.save_pretrained(tmp_path / "dt-test")
    there = evaluate(moved, "tests/Counting-v0", 2)
    assert str(there.command).endswith("--target 50 --env tests/Counting-v0")
    outside = with_command(there.model_copy(update={"env": "conftest:tests/Counting-v0"}), moved, "dt-test")
    assert str(outside.command).endswith("--env conftest:tests/Counting-v0 --trust-env-module")
    best = evaluate(agent, episodes=1, checkpoint="best")
    assert best.command is None
    assert evaluate(agent, episodes=1, command="mine").command == "mine"
    assert best.model_copy(update={"score": 50.0, "score_interval": (50.0, 50.0)}).score_in_words() == "50.0"
    assert Result.from_json(best.to_json(), "test") == best


def test_no_command_names_another_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zoo"))
    agent = make_agent()
    assert evaluate(agent, episodes=1).command is None  # its id leads nowhere
    agent.save_pretrained(tmp_path / "zoo" / "dt-test")
    loaded = Agent.from_pretrained(tmp_path / "zoo" / "dt-test")
    assert evaluate(loaded, episodes=2).command == "agentzoo evaluate dt-test -n 2 --seed 0 --target 50"
    loaded.config = loaded.config.model_copy(update={"rtg_scale": 20.0})
    assert evaluate(loaded, episodes=1).command is None  # changed in Python
    other = make_agent(model=DTConfig(embed_dim=8, n_layers=1, n_heads=1))
    other.save_pretrained(tmp_path / "mine")
    assert evaluate(other, episodes=1).command is None  # the id leads to other weights
    (tmp_path / "zoo" / "dt-test" / "config.json").write_text("{}")
    assert evaluate(agent, episodes=1).command is None


def test_no_command_repeats_what_a_conditioned_agent_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path))
    folder = make_agent(model=UniMaskConfig(**SIZES)).save_pretrained(tmp_path / "dt-test")
    agent = Agent.from_pretrained(folder)
    assert evaluate(agent, episodes=1).command is not None
    assert evaluate(agent.condition(goal=np.ones(3)), episodes=1).command is None


def test_an_agent_may_be_named_or_lie_in_a_folder(tmp_path: Path) -> None:
    agent = make_agent()
    folder = agent.save_pretrained(tmp_path / "dt-test")
    for named in (folder, str(folder)):
        result = evaluate(named, episodes=2)
        assert result.returns == evaluate(agent, episodes=2).returns
        assert str(result.command).startswith(f"agentzoo evaluate {folder} -n 2")
    with pytest.raises(UnknownNameError, match="no agent 'zoo/nobody'"):
        evaluate("zoo/nobody", episodes=1)


def test_what_is_missing_is_named_with_what_helps() -> None:
    with pytest.raises(ConfigError, match=r"Hopper-v3 cannot be created: .*\. Use Hopper-v5\.$"):
        make_env("Hopper-v3")
    with pytest.raises(UnknownNameError, match="Did you mean 'LunarLander-v3'"):
        make_env("LunarLander-v2")

    def make(missing: str) -> Any:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    for missing, hint in (("mujoco", True), ("gymnasium_robotics", True), ("Box2D", False)):
        gym.register(f"tests/Needs{missing}-v0", entry_point=lambda missing=missing: make(missing))  # type: ignore[misc]
        with pytest.raises(ConfigError, match="No module named") as raised:
            make_env(f"tests/Needs{missing}-v0")
        assert str(raised.value).endswith("Try pip install 'agentzoo[mujoco]'.") is hint


def test_a_module_that_is_not_found_says_where_to_put_it() -> None:
    with pytest.raises(ConfigError, match=r"no module 'not_there' on Python's path\. .* PYTHONPATH, or run `python -m"):
        make_env("not_there:Env-v0", trust_env_module=True)


def test_amounts_keep_the_digits_that_matter() -> None:
    assert [amount(value) for value in (0.48, -3.0, 99.5, 100.0, 3029.6)] == ["0.48", "-3.00", "99.50", "100", "3030"]
    assert amount(-1234.6) == "-1235"
    assert amount(3029.6, ",") == "3,030"
    assert amounts((0.996, 3029.6), ",") == "1.00 to 3,030"
    assert amounts((0.996, 1.004)) == "1.00"


def test_what_rounds_to_zero_has_no_minus() -> None:
    assert [amount(value) for value in (-0.0, -0.004, -0.006, -1e-300)] == ["0.00", "0.00", "-0.01", "0.00"]
    assert [fixed(value, 1) for value in (-0.04, -0.06, 12.25)] == ["0.0", "-0.1", "12.2"]


def test_evaluate_records_everything_needed_to_repeat_it(tmp_path: Path) -> None:
    agent = make_agent()
    assert agent.recipe is not None
    agent.recipe = agent.recipe.override(["train.seed=3"])
    result = evaluate(agent, episodes=4, seed=1, target_return=30.0)
    assert result.returns == tuple(one.total_reward for one in rollout(agent, "tests/Counting-v0", 4, seed=1))
    assert result.mean_return == np.mean(result.returns)
    assert result.std_return == pytest.approx(np.std(result.returns, ddof=1))
    assert result.training_seed == 3
    assert result.return_interval[0] <= result.mean_return <= result.return_interval[1]
    assert (result.env, result.target_return, result.score, result.rtg_source) == (
        "tests/Counting-v0",
        30.0,
        None,
        "reward",
    )
    assert agent.target_return == 50.0
    assert Result.from_json(result.to_json(), "test") == result


def test_bad_requests_are_explained() -> None:
    agent = make_agent()
    for wrong in (0, "3", 2.5, True):
        with pytest.raises(ConfigError, match=f"episodes is a whole number from 1 on, got {wrong!r}"):
            rollout(agent, "tests/Counting-v0", wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=f"n_envs is a whole number from 1 on, got {wrong!r}"):
            make_vec_env(agent, wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="one seed has 10,000 episodes, got 10,001; play the others with"):
        evaluate(agent, "tests/Counting-v0", 10_001)  # the last would be the first of seed 1
    with pytest.raises(ConfigError, match=r"seed is a whole number from 0 .*; got -3"):
        make_vec_env(agent, seed=-3)
    with pytest.raises(SpaceError, match="dt-test cannot act here"):
        rollout(agent, "Pendulum-v1", 1)
    with pytest.raises(UnknownNameError, match=r"no environment 'Hoper-v5'. Did you mean 'Hopper-v5'"):
        make_env("Hoper-v5")
    with pytest.raises(ConfigError, match="runs its code"):
        make_env("os:Evil-v0")
    with pytest.raises(UnknownNameError):
        make_env("Hopper-v99")


def test_an_agent_conditioned_for_each_environment_is_not_evaluated() -> None:
    agent = make_agent().condition(target_return=[1.0, 2.0])
    with pytest.raises(ConfigError, match="set one target or goal for all"):
        evaluate(agent, episodes=2, n_envs=2)
    assert evaluate(agent.condition(target_return=2.0), episodes=2).target_return == 2.0


@pytest.mark.parametrize("options", [{"env_id": "x"}, {"trust_env_module": True}, {"wings": 2}])
def test_options_an_environment_does_not_take_are_explained(options: dict[str, Any]) -> None:
    agent = make_agent(env_options=options)
    with pytest.raises(ConfigError, match=r"tests/Counting-v0 cannot be created with env_options \{'"):
        rollout(agent, "tests/Counting-v0", 1)
    with pytest.raises(ConfigError, match=r"cannot be created with env_options \{'length': 3\} and wings=2: "):
        make_vec_env(make_agent(env_options={"length": 3}), wings=2)
    assert len(rollout(make_agent(env_options={"length": 3}), "tests/Counting-v0", 1)) == 1


def test_options_are_of_the_agent_s_own_environment_alone() -> None:
    agent = make_agent(env_options={"length": 3})
    gym.register("tests/CountingElsewhere-v0", entry_point=CountingEnv)
    try:
        made = [env_of(agent, name) for name in (None, "tests/Counting-v0", "tests/CountingElsewhere-v0")]
    finally:
        del gym.registry["tests/CountingElsewhere-v0"]
    assert [env.unwrapped.length for env in made] == [3, 3, 7]  # type: ignore[attr-defined]


def test_evaluation_seeds_follow_the_protocol() -> None:
    assert [episode_seed(0, 0), episode_seed(0, 99), episode_seed(2, 5)] == [10_000, 10_099, 30_005]


@pytest.mark.parametrize("seed", [-1, -5, 1.5, "1", True])
def test_a_seed_that_is_no_whole_number_from_0_on_is_refused(seed: Any) -> None:
    with pytest.raises(ConfigError, match=f"whole number from 0 to .*; got {seed!r}"):
        evaluate(make_agent(), episodes=1, seed=seed)


def test_a_seed_of_numpy_is_a_seed() -> None:
    seeds: list[Any] = [np.int64(3), 3]
    one, other = (evaluate(make_agent("Pendulum-v1"), episodes=1, seed=seed) for seed in seeds)
    assert (one.returns, one.seed) == (other.returns, 3)
    assert Result.from_json(one.to_json(), "test") == one


def test_a_record_names_the_commit_it_was_measured_with() -> None:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("not a git checkout")
    head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    version, _, commit = versions()["agentzoo"].partition("+g")
    assert version == importlib.metadata.version("agentzoo")
    assert head.startswith(commit.removesuffix(".dirty"))
    assert len(commit) >= 12


@pytest.mark.parametrize(("value", "reference"), [(500.0, (20.0, 480.0)), (8.0, (21.7, 450.0))])
def test_a_score_lies_inside_its_interval_when_all_returns_are_equal(
    value: float, reference: tuple[float, float]
) -> None:
    agent = make_agent(reference=reference)
    episodes = [EpisodeResult(None, value, 8, True)] * 100
    found = result_of(agent, episodes, agent.config.env, 1.0, True, 0, 1.0, "final", None, recipe=agent.recipe)
    assert found.score_interval == (found.score, found.score)
    assert found.score == pytest.approx(100 * (value - reference[0]) / (reference[1] - reference[0]))
