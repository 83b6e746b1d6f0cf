"""Training a behaviour policy: what it leaves, and going on after a stop."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import ClosingEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from agentzoo.data.making.behaviour import _restore, train_behaviour
from agentzoo.data.making.behaviour_record import BehaviourOptions, Score, read_behaviour
from agentzoo.data.making.buffers import read_npz
from agentzoo.data.making.recorder import Recorder, fill_replay_buffer
from agentzoo.errors import ConfigError, DataError, SpaceError, StorageError, UnknownNameError
from data.cases import StopRun, stop

FEW = BehaviourOptions(threshold=1e9, max_steps=600, evaluate_every=300, episodes=1, learning_starts=550)


def test_a_run_leaves_a_policy_and_every_whole_episode(tmp_path: Path) -> None:
    from stable_baselines3 import SAC

    scores = []
    record = train_behaviour("Pendulum-v1", tmp_path, FEW, on_score=scores.append)
    assert [score.steps for score in record.scores] == [300, 600]
    assert scores == record.scores
    assert not record.reached
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "behaviour.json",
        "pendulum-medium-replay.npz",
        "sac-pendulum-medium.zip",
    ]
    episodes = list(read_npz(tmp_path / "pendulum-medium-replay.npz"))
    # 200 steps an episode; SB3 resets the environment when `learn` is called again, so each 300 hold one
    assert [len(one) for one in episodes] == [200] * record.replay_episodes
    assert record.replay_episodes >= 2
    SAC.load(tmp_path / "sac-pendulum-medium.zip")
    assert train_behaviour("Pendulum-v1", tmp_path, FEW) == record  # over: nothing is trained again


def test_bad_input_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        train_behaviour("Nope-v0", tmp_path / "run", FEW)
    for env_id in ("CartPole-v1", "tests/CountingImage-v0"):  # no Box of actions, no Discrete ones
        with pytest.raises(SpaceError):
            train_behaviour(env_id, tmp_path / "run", FEW)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(StorageError, match="was not written"):
            train_behaviour("Pendulum-v1", folder, FEW)


def test_a_run_stops_at_the_threshold(tmp_path: Path) -> None:
    from stable_baselines3 import SAC

    easy = BehaviourOptions(threshold=-1e9, max_steps=600, evaluate_every=200, episodes=1, learning_starts=600)
    record = train_behaviour("Pendulum-v1", tmp_path, easy)
    assert (record.reached, record.steps) == (True, 200)
    other = train_behaviour("Pendulum-v1", tmp_path / "other", replace(easy, batch_size=128))
    for folder, size in ((tmp_path, 256), (tmp_path / "other", 128)):
        assert other.policy is not None
        assert SAC.load(folder / other.policy).batch_size == size


def test_a_stopped_run_goes_on_with_what_it_saw(tmp_path: Path) -> None:
    with pytest.raises(StopRun):
        train_behaviour("Pendulum-v1", tmp_path, FEW, on_score=stop)
    assert json.loads((tmp_path / "behaviour.json").read_text())["steps"] == 300
    before = list(read_npz(tmp_path / "checkpoint-300" / "transitions.npz"))
    record = train_behaviour("Pendulum-v1", tmp_path, FEW)
    after = list(read_npz(tmp_path / "pendulum-medium-replay.npz"))
    assert record.steps == 600
    assert len(after) > len(before) >= 1
    for one, other in zip(before, after, strict=False):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.rewards, other.rewards)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def _shorten_rewards(path: Path) -> None:
    with np.load(path) as file:
        arrays = dict(file)
    np.savez_compressed(path, **{**arrays, "rewards": arrays["rewards"][1:]})


@pytest.mark.parametrize("breaks", [_cut, _shorten_rewards, Path.unlink], ids=["cut", "shortened", "missing"])
def test_broken_steps_of_a_stopped_run_raise_a_data_error(breaks: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.raises(StopRun):
        train_behaviour("Pendulum-v1", tmp_path, FEW, on_score=stop)
    breaks(tmp_path / "checkpoint-300" / "transitions.npz")
    with pytest.raises(DataError, match=r"transitions\.npz cannot be read as the steps of a stopped run; delete"):
        train_behaviour("Pendulum-v1", tmp_path, FEW)


def test_a_run_closes_its_environments(tmp_path: Path) -> None:
    with pytest.raises(StopRun):
        train_behaviour("tests/Closing-v0", tmp_path, replace(FEW, evaluate_every=20), on_score=stop)
    assert not ClosingEnv.open


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


def stopped(folder: Path) -> Path:
    """A run stopped after 300 steps; its checkpoint."""

    with pytest.raises(StopRun):
        train_behaviour("Pendulum-v1", folder, replace(FEW, learning_starts=250), on_score=stop)
    return folder / "checkpoint-300" / "policy.zip"


def test_a_checkpoint_gives_the_policy_as_sb3_would(tmp_path: Path) -> None:
    from stable_baselines3 import SAC

    path = stopped(tmp_path)
    whole, fresh = SAC.load(path, device="cpu"), SAC("MlpPolicy", gym.make("Pendulum-v1"), device="cpu")
    _restore(fresh, path)
    torch.testing.assert_close(fresh.get_parameters(), whole.get_parameters(), atol=0, rtol=0)
    assert fresh.log_ent_coef is not None
    assert torch.equal(fresh.log_ent_coef, whole.log_ent_coef)
    assert fresh.log_ent_coef.item() != 0.0


def test_a_changed_checkpoint_runs_no_code(tmp_path: Path) -> None:
    """Neither from its settings nor from its tensors."""
    from stable_baselines3 import SAC

    path, ran = stopped(tmp_path), tmp_path / "ran"
    code = base64.b64encode(pickle.dumps(Evil(ran))).decode()
    members = {name: zipfile.ZipFile(path).read(name) for name in zipfile.ZipFile(path).namelist()}
    settings = json.dumps({**json.loads(members["data"]), "evil": {":type:": "x", ":serialized:": code}})
    for changed in ({"data": settings.encode()}, {"policy.pth": pickle.dumps(Evil(ran))}):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {**members, **changed}.items():
                archive.writestr(name, content)
        if "data" in changed:
            shutil.copytree(tmp_path, tmp_path / "copy")
            assert train_behaviour("Pendulum-v1", tmp_path / "copy", replace(FEW, learning_starts=250)).steps == 600
            assert not ran.exists()
            SAC.load(path)  # which would run it
            ran.unlink()
        else:
            with pytest.raises(DataError, match="is not a checkpoint of this run"):
                train_behaviour("Pendulum-v1", tmp_path, replace(FEW, learning_starts=250))
    assert not ran.exists()


def test_a_stopped_run_goes_on_with_another_threshold_and_more_steps(tmp_path: Path) -> None:
    def stop_after_two(score: Score) -> None:
        if score.steps == 600:
            raise StopRun

    with pytest.raises(StopRun):
        train_behaviour("Pendulum-v1", tmp_path / "one", replace(FEW, max_steps=900), on_score=stop_after_two)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    other = train_behaviour("Pendulum-v1", tmp_path / "other", replace(FEW, threshold=-1e9, max_steps=900))
    assert (other.reached, other.steps, other.replay_episodes) == (True, 600, 3)
    more = train_behaviour("Pendulum-v1", tmp_path / "one", replace(FEW, max_steps=1200))
    assert ([score.steps for score in more.scores], more.reached) == ([300, 600, 900, 1200], False)
    assert more.options == replace(FEW, max_steps=1200)
    assert read_behaviour(tmp_path / "one" / "behaviour.json") == more


def test_fewer_steps_than_were_recorded_are_refused_in_folders_of_older_versions_too(tmp_path: Path) -> None:
    with pytest.raises(StopRun):
        train_behaviour("Pendulum-v1", tmp_path, FEW, on_score=stop)
    fewer = replace(FEW, max_steps=100)
    with pytest.raises(ConfigError, match="max_steps 600 instead of 100"):
        train_behaviour("Pendulum-v1", tmp_path, fewer)
    path = tmp_path / "behaviour.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "options"}))
    with pytest.raises(ConfigError, match=r"transitions.npz holds 200 steps, but --max-steps allows 100"):
        train_behaviour("Pendulum-v1", tmp_path, fewer)
    assert train_behaviour("Pendulum-v1", tmp_path, FEW).steps == 600


class FallsAtTheLimit(gym.Wrapper[Any, Any, Any, Any]):
    """Ends in both ways at once."""

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, truncated, truncated, info


class InPlace(gym.Wrapper[Any, Any, Any, Any]):
    """Counts steps in one array, which it returns every time."""

    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1", max_episode_steps=3))
        self.now = np.zeros(3, np.float32)

    def reset(self, **kwargs: Any) -> Any:
        self.now[:] = 0.0
        return self.now, self.env.reset(**kwargs)[1]

    def step(self, action: Any) -> Any:
        _, *rest = self.env.step(action)
        self.now += 1.0
        return self.now, *rest


def test_an_environment_that_returns_the_same_array_is_recorded_as_it_was_seen() -> None:
    recorder = Recorder(InPlace(), 6)
    for _ in range(2):
        recorder.reset()
        for _ in range(3):
            recorder.step(np.zeros(1, np.float32))
    assert recorder.arrays["observations"][:, 0].tolist() == [0.0, 1.0, 2.0] * 2
    assert [one[0] for one in recorder.final_observations] == [3.0, 3.0]


@pytest.mark.parametrize("falls", [False, True])
@pytest.mark.parametrize("size", [400, 100])
def test_the_replay_buffer_is_filled_as_sb3_fills_it(size: int, falls: bool, tmp_path: Path) -> None:
    """A smaller one holds the newest steps."""
    from stable_baselines3 import SAC
    from stable_baselines3.common.monitor import Monitor

    def env() -> gym.Env[Any, Any]:
        made = gym.make("Pendulum-v1")
        return FallsAtTheLimit(made) if falls else made

    recorder = Recorder(env(), 400)
    model = SAC("MlpPolicy", Monitor(recorder), learning_starts=400, buffer_size=size, seed=0)
    model.learn(400)
    recorder.save(tmp_path / "seen.npz")
    restored = Recorder(env(), 400)
    restored.restore(tmp_path / "seen.npz")
    twin = SAC("MlpPolicy", Monitor(restored), buffer_size=size)
    fill_replay_buffer(twin, restored)
    ours, theirs = twin.replay_buffer, model.replay_buffer
    assert ours is not None
    assert theirs is not None
    assert (ours.pos, ours.full) == (theirs.pos, theirs.full)
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-6, err_msg=name)


class Unbounded(PendulumEnv):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (1,))


def test_a_folder_of_another_run_and_spaces_sac_cannot_use_are_refused(tmp_path: Path) -> None:
    train_behaviour("Pendulum-v1", tmp_path, BehaviourOptions(-1e9, 200, 0, 200, 1, 200))
    with pytest.raises(ConfigError, match="seed 0 instead of 1"):
        train_behaviour("Pendulum-v1", tmp_path, BehaviourOptions(-1e9, 200, 1, 200, 1, 200))
    with pytest.raises(ConfigError, match=r"threshold -1000000000.0 instead of 0.0"):
        train_behaviour("Pendulum-v1", tmp_path, BehaviourOptions(0.0, 200, 0, 200, 1, 200))
    with pytest.raises(SpaceError, match="actions"):
        train_behaviour("CartPole-v1", tmp_path / "other", FEW)
    gym.register("tests/Unbounded-v0", entry_point=Unbounded)
    try:
        with pytest.raises(SpaceError, match="SAC needs actions with bounds; those of tests/Unbounded-v0 are Box"):
            train_behaviour("tests/Unbounded-v0", tmp_path / "other", FEW)
    finally:
        del gym.registry["tests/Unbounded-v0"]
    with pytest.raises(ConfigError, match="episodes"):
        BehaviourOptions(0.0, episodes=0)
