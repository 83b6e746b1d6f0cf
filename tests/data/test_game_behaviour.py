"""PPO on images: what a run leaves, going on after a stop, and what is refused."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agentzoo.data.making.behaviour import train_behaviour
from agentzoo.data.making.behaviour_record import BehaviourOptions, replay_origin
from agentzoo.data.making.buffers import Imported
from agentzoo.data.making.dqn_replay import read_dqn_replay
from agentzoo.data.making.game_behaviour import EpisodeKeeper
from agentzoo.errors import ConfigError, DataError, SpaceError
from data.cases import StopRun, stop

FEW = BehaviourOptions(threshold=1e9, max_steps=2048, evaluate_every=1024, episodes=4)
LENGTH = 30


class DrawnEnv(gym.Env[Any, Any]):
    """Two planes, the older and the newer: a newest plane holds the step everywhere; action 1 is worth 2, 0 is -3."""

    observation_space = gym.spaces.Box(0, 255, (2, 36, 37), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def _observe(self) -> Any:
        return np.stack([np.full((36, 37), max(self.now - 1, 0), np.uint8), np.full((36, 37), self.now, np.uint8)])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.now = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.now += 1
        return self._observe(), 2.0 if action == 1 else -3.0, self.now == LENGTH, False, {}


gym.register("tests/Drawn-v0", entry_point=DrawnEnv)


def array(path: Path) -> np.ndarray[Any, Any]:
    with gzip.open(path) as file:
        return np.load(file)  # type: ignore[no-any-return]


def test_episodes_are_kept_as_they_were_and_rewards_come_clipped() -> None:
    kept: list[Any] = []
    env = EpisodeKeeper(DrawnEnv(), lambda *parts: kept.append(parts))
    env.reset()
    env.step(0)
    env.reset()  # a cut episode is dropped
    given = [env.step(step % 2)[1] for step in range(LENGTH)]
    assert given == [-1.0, 1.0] * 15
    ((frames, actions, rewards),) = kept
    assert frames[:, 0, 0].tolist() == list(range(LENGTH))
    assert actions.tolist() == [0, 1] * 15
    assert rewards.tolist() == [-3.0, 2.0] * 15


@pytest.mark.slow
def test_a_run_leaves_a_policy_and_every_whole_episode(tmp_path: Path) -> None:
    from stable_baselines3 import PPO

    scores: list[Any] = []
    record = train_behaviour("tests/Drawn-v0", tmp_path, FEW, on_score=scores.append)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["behaviour.json", "ppo-drawn.zip", "replay"]
    assert (record.steps, record.reached, scores) == (2048, False, record.scores)
    # 8 environments, 256 steps each: 8 whole episodes of 30 in each
    assert record.replay_episodes == 64
    PPO.load(tmp_path / "ppo-drawn.zip")
    said = "Every whole episode of the training of PPO from scratch on tests/Drawn-v0, 2,048 steps, seed 0."
    assert replay_origin(tmp_path / "replay") == said
    assert replay_origin(tmp_path / "another") is replay_origin(tmp_path / "replay" / "none") is None
    found = {
        part: array(tmp_path / "replay" / f"{part}.gz") for part in ("observation", "action", "reward", "terminal")
    }
    assert found["observation"].shape == (64 * LENGTH, 36, 37)
    assert found["observation"].dtype == np.uint8
    assert found["observation"][:, 5, 5].tolist() == list(range(LENGTH)) * 64
    assert np.flatnonzero(found["terminal"]).tolist() == list(range(LENGTH - 1, 64 * LENGTH, LENGTH))
    np.testing.assert_array_equal(found["reward"], np.where(found["action"] == 1, 2.0, -3.0))
    episodes = list(read_dqn_replay(tmp_path / "replay", Imported("tests/drawn-v0")))
    assert [len(one) for one in episodes] == [LENGTH] * 64
    newest = [one.rewards.sum() for one in episodes[-4:]]
    assert record.scores[-1].mean == pytest.approx(np.mean(newest))
    assert train_behaviour("tests/Drawn-v0", tmp_path, FEW) == record  # over: nothing is trained again


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_what_it_saw(tmp_path: Path) -> None:
    with pytest.raises(StopRun):
        train_behaviour("tests/Drawn-v0", tmp_path, FEW, on_score=stop)
    assert json.loads((tmp_path / "behaviour.json").read_text())["steps"] == 1024
    kept = sorted((tmp_path / "episodes").iterdir())
    assert len(kept) == 32
    first = np.load(kept[0])["action"]
    (tmp_path / "episodes" / "000032.npz").write_bytes(b"half an epi")  # came after the checkpoint
    (tmp_path / "episodes" / "notes.txt").write_text("mine")
    record = train_behaviour("tests/Drawn-v0", tmp_path, FEW)
    assert (record.steps, record.replay_episodes) == (2048, 64)
    np.testing.assert_array_equal(array(tmp_path / "replay" / "action.gz")[:LENGTH], first)
    assert [path.name for path in (tmp_path / "episodes").iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_a_run_stops_at_the_threshold_and_broken_files_are_named(tmp_path: Path) -> None:
    easy = BehaviourOptions(threshold=-1e9, max_steps=4096, evaluate_every=1024, episodes=4)
    record = train_behaviour("tests/Drawn-v0", tmp_path / "easy", easy)
    assert (record.reached, record.steps) == (True, 1024)

    for broken in ("episodes/000003.npz", "checkpoint-1024/policy.zip"):
        folder = tmp_path / broken.replace("/", "-")
        with pytest.raises(StopRun):
            train_behaviour("tests/Drawn-v0", folder, FEW, on_score=stop)
        (folder / broken).write_bytes(b"nothing")
        with pytest.raises(DataError, match=Path(broken).name):
            train_behaviour("tests/Drawn-v0", folder, FEW)


@pytest.mark.slow
def test_a_run_in_which_no_episode_ends_raises_a_config_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "LENGTH", 10_000)
    with pytest.raises(ConfigError, match=r"no episode of tests/Drawn-v0 ended within 1,024 steps.*--max-steps"):
        train_behaviour("tests/Drawn-v0", tmp_path, replace(FEW, max_steps=1024))


@pytest.mark.parametrize("field", ["learning_starts", "batch_size"])
def test_settings_of_sac_are_not_ignored(field: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{field} is a setting of SAC, and images are learned by PPO"):
        train_behaviour("tests/Drawn-v0", tmp_path, replace(FEW, **{field: 7}))


def test_spaces_that_ppo_on_images_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SpaceError, match=r"observations \(C, H, W\) of uint8 and Discrete actions; those of tests/Count"
    ):
        train_behaviour("tests/CountingImage-v0", tmp_path, FEW)  # Box actions
