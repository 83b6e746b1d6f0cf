"""Atari games: what an observation is, SB3's wrappers, scores, and an agent from DQN's layout to an evaluation."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import PIXELS, make_agent

import agentzoo
from agentzoo.agent import Agent
from agentzoo.data.making.import_files import import_file
from agentzoo.data.references import normalized_score, reference_of, source_of
from agentzoo.envs import GAMES, extras_of, make_env
from agentzoo.envs.making import make_configured, requirements_of
from agentzoo.envs.making import make_env as make_explained
from agentzoo.errors import ConfigError, ShapeError
from agentzoo.evaluation.results import evaluate
from agentzoo.models.dt_pixel import DTPixelConfig
from agentzoo.nn.base import ModelConfig

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

# strides so large that 84x84 is small
TINY: dict[str, Any] = {**PIXELS, "convolutions": ((4, 8, 8), (4, 4, 3))}
AGENT = DTPixelConfig(**TINY, n_layers=1, n_heads=1)


def of_pong(config: ModelConfig = AGENT, **eval_: Any) -> Agent:
    return make_agent("agentzoo/Pong-v5", config, **eval_)


@pytest.mark.parametrize("game", GAMES)
def test_every_game_gives_stacks_of_four_grey_frames(game: str) -> None:
    env = make_env(f"agentzoo/{game}-v5")
    first, _ = env.reset(seed=0)
    assert (first.shape, first.dtype) == ((4, 84, 84), np.uint8)
    assert first[:3].max() == 0  # before the first frame
    assert first[3].max() > 0
    second, *_ = env.step(0)
    np.testing.assert_array_equal(second[2], first[3])
    assert env.spec is not None
    assert env.spec.max_episode_steps == 27_000
    assert env.metadata["render_fps"] == 15  # 60 frames a second, 4 for each step
    reference = reference_of(f"agentzoo/{game}-v5")
    assert reference is not None
    assert "gamer" in source_of(f"agentzoo/{game}-v5")


def test_four_frames_of_the_game_pass_at_a_step_and_nothing_sticks() -> None:
    env = make_env("agentzoo/Pong-v5")
    env.reset(seed=0)
    ale = env.unwrapped.ale  # type: ignore[attr-defined]
    before = ale.getEpisodeFrameNumber()
    env.step(2)
    assert ale.getEpisodeFrameNumber() - before == 4
    assert ale.getFloat("repeat_action_probability") == 0.0
    sticky = make_configured("agentzoo/Pong-v5", {"repeat_action_probability": 0.25})
    assert sticky.unwrapped.ale.getFloat("repeat_action_probability") == 0.25  # type: ignore[attr-defined]


def test_options_are_bounded_and_requirements_named() -> None:
    with pytest.raises(ConfigError, match="'repeat_action_probability' is 2; a number from 0 to 1 is allowed"):
        make_configured("agentzoo/Pong-v5", {"repeat_action_probability": 2})
    with pytest.raises(ConfigError, match="'mode' is not in the allowed options of agentzoo/Pong-v5"):
        make_configured("agentzoo/Pong-v5", {"mode": 1})
    assert extras_of("agentzoo/Pong-v5") == ("atari",)
    assert [need.split("==")[0] for need in requirements_of("ALE/Pong-v5")] == [
        "gymnasium", "ale-py", "opencv-python-headless",
    ]  # fmt: skip
    assert requirements_of("agentzoo/Pong-v5")[-1].startswith("agentzoo")
    assert [need.split("==")[0] for need in requirements_of("CartPole-v1")] == ["gymnasium"]
    assert "mujoco" in [need.split("==")[0] for need in requirements_of("Hopper-v5")]


def test_without_ale_py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.delitem(gym.registry, "ALE/Pong-v5", raising=False)  # registered if another test imported the package
    for name in ("agentzoo/Pong-v5", "ALE/Pong-v5"):
        with pytest.raises(ConfigError, match=rf"{name} cannot be created: .*pip install 'agentzoo\[atari\]'"):
            make_explained(name)


def test_a_gamer_scores_100_and_a_random_player_0() -> None:
    """Pong: -20.7 and 14.6; a game won by 21 to 0 scores 118.1. Other rules of the game have no references."""
    reference = reference_of("agentzoo/Pong-v5")
    assert reference is not None
    assert normalized_score([-20.7, 14.6, 21.0], reference) == pytest.approx([0.0, 100.0, 118.13], abs=0.01)
    assert reference_of("agentzoo/Pong-v5", ["render_mode"]) == reference
    assert reference_of("agentzoo/Pong-v5", ["repeat_action_probability"]) is None
    assert source_of("Hopper-v5").startswith("D4RL's")
    assert source_of("CartPole-v1") == "the dataset's references"


def test_predict_reads_what_sb3s_atari_wrappers_give() -> None:
    """(N, 84, 84, 4): channels last."""
    import ale_py
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecTransposeImage

    gym.register_envs(ale_py)
    agent = of_pong()
    stacked = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=2, seed=0), n_stack=4)
    seen = stacked.reset()
    assert seen.shape == (2, 84, 84, 4)
    actions, state = agent.predict(seen, deterministic=True)
    seen, rewards, *_ = stacked.step(actions)
    agent.predict(seen, state, np.zeros(2, bool), deterministic=True, reward=rewards)
    first = VecTransposeImage(stacked)
    as_first = first.reset()
    assert as_first.shape == (2, 4, 84, 84)
    np.testing.assert_array_equal(
        agent.predict(as_first, deterministic=True)[0],
        agent.predict(np.moveaxis(as_first, 1, -1), deterministic=True)[0],
    )
    with pytest.raises(ShapeError, match="stack its frames"):
        agent.predict(make_atari_env("PongNoFrameskip-v4", n_envs=1).reset())


def test_stock_evaluation_of_sb3_plays_a_game() -> None:
    from stable_baselines3.common.evaluation import evaluate_policy

    env = make_env("agentzoo/Freeway-v5", max_episode_steps=30)
    agent = make_agent("agentzoo/Freeway-v5", AGENT)
    agent.set_env(env)
    returns, lengths = evaluate_policy(agent, env, n_eval_episodes=2, warn=False, return_episode_rewards=True)
    assert (returns, lengths) == ([0.0, 0.0], [30, 30])  # nobody crosses the road in 120 frames


@pytest.fixture
def game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three episodes of Pong with random actions, in DQN's layout; the first 40 steps of each."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    parts: dict[str, list[Any]] = {"observation": [], "action": [], "reward": [], "terminal": []}
    env = make_env("agentzoo/Pong-v5")
    rng = np.random.default_rng(0)
    for episode in range(3):
        obs, _ = env.reset(seed=episode)
        for step in range(40):
            action = int(rng.integers(6))
            parts["observation"].append(obs[-1])
            obs, reward, *_ = env.step(action)
            for name, value in (("action", action), ("reward", reward), ("terminal", step == 39)):
                parts[name].append(value)
    folder = tmp_path / "replay"
    folder.mkdir()
    for name, values in parts.items():
        with gzip.open(folder / f"{name}.gz", "wb") as file:
            np.save(file, np.asarray(values, dtype=np.uint8 if name in ("observation", "terminal") else np.int32))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("family", ["dt-pixel", "bc-pixel"])
def test_from_a_replay_to_an_evaluated_agent(game: Path, tmp_path: Path, family: str) -> None:
    import_file(game, "zoo/pong/small-v0", env_id="agentzoo/Pong-v5")
    tiny = [f"model.{name}={value}" for name, value in TINY.items() if name != "convolutions"]
    settings = [*tiny, "model.convolutions=[[4,8,8],[4,4,3]]", "train.steps=3", "train.batch_size=4", "eval.every=0"]
    settings += ["data.context=1"] if family == "bc-pixel" else ["data.context=6", "model.n_layers=1"]
    settings += ["model.n_heads=1"] if family == "dt-pixel" else []
    made = agentzoo.train(
        family, dataset="zoo/pong/small-v0", settings=settings, out=str(tmp_path / "run"), device="cpu"
    )
    assert made.recipe is not None
    assert (made.recipe.eval.env, made.config.io.observation.image) == ("agentzoo/Pong-v5", (4, 84, 84))
    loaded = Agent.from_pretrained(tmp_path / "run")
    result = evaluate(loaded, make_env("agentzoo/Pong-v5", max_episode_steps=20), episodes=2)
    assert result.lengths == (20, 20)
    assert not result.deterministic  # as the recipe of the family says
    assert evaluate(loaded, make_env("agentzoo/Pong-v5", max_episode_steps=5), 1, deterministic=True).deterministic
    assert type(loaded.model) is type(made.model)
