"""Games from recorded actions: they are played again, and give the frames and rewards that were seen."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.seeding import np_random
from numpy.typing import NDArray

from agentzoo.data.making import recorded
from agentzoo.data.making.build import build
from agentzoo.data.making.dataset_recipe import BuildOptions
from agentzoo.data.making.recorded import Recording, Starts, played, read_recording, record
from agentzoo.data.minari import load_episodes
from agentzoo.data.names import RECORDED
from agentzoo.envs import make_env
from agentzoo.errors import ConfigError, DataError

pytest.importorskip("ale_py")
BREAKOUT = "agentzoo/Breakout-v5"
ENOUGH = 177  # seeds, of which each number of idle frames has one


def play_at_random(seed: int) -> dict[str, NDArray[Any]]:
    """A whole game from a reset seed that no recording has: frames that actions see, actions, rewards, ends."""
    env, rng = make_env(BREAKOUT), np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    frames, actions, rewards, ended = [], [], [], False
    while not ended:
        frames.append(obs[-1])
        actions.append(int(rng.integers(4)))
        obs, reward, ended, _, _ = env.step(actions[-1])
        rewards.append(float(reward))
    terminal = np.arange(len(actions)) == len(actions) - 1
    return {
        "observation": np.stack(frames),
        "action": np.array(actions, np.int32),
        "reward": np.array(rewards, np.float32),
        "terminal": terminal.astype(np.uint8),
    }


@pytest.fixture(scope="module")
def games() -> list[dict[str, NDArray[Any]]]:
    return [play_at_random(seed) for seed in (7_001, 7_002)]


@pytest.fixture
def recording(games: list[dict[str, NDArray[Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The two games as a folder of DQN's layout, recorded as that of breakout/replay."""
    monkeypatch.setattr(recorded, "SEEDS", ENOUGH)
    replay = tmp_path / "replay"
    replay.mkdir()
    for part in games[0]:
        with gzip.open(replay / f"{part}.gz", "wb") as file:
            np.save(file, np.concatenate([game[part] for game in games]), allow_pickle=False)
    assert record(replay, BREAKOUT, tmp_path / "games" / "breakout-replay.npz") == 0
    monkeypatch.setattr(recorded, "FOLDER", tmp_path / "games")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    read_recording.cache_clear()
    yield replay
    read_recording.cache_clear()


def test_every_number_of_idle_frames_has_a_seed() -> None:
    numbers = {int(np_random(seed)[0].integers(1, 31)) for seed in range(ENOUGH)}
    assert sorted(numbers) == list(range(1, 31))
    assert ENOUGH <= recorded.SEEDS


@pytest.mark.slow
def test_a_start_is_found_by_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "SEEDS", 10)
    env = make_env(BREAKOUT)
    frames = [env.reset(seed=seed)[0][-1] for seed in range(8)]
    starts = Starts(env)
    for frame in frames:
        expected = [seed for seed, other in enumerate(frames) if np.array_equal(frame, other)]
        assert list(islice(starts.like(frame), len(expected))) == expected
    assert next(starts.like(np.full_like(frames[0], 255)), None) is None
    assert len(starts.frames) == 10


@pytest.mark.slow
def test_a_recorded_game_is_the_one_that_was_played(recording: Path, games: list[dict[str, NDArray[Any]]]) -> None:
    found = read_recording("breakout/replay")
    assert found.lengths.tolist() == [len(game["action"]) for game in games]
    assert max(found.seeds) < recorded.SEEDS
    build("breakout/replay", BuildOptions())
    episodes = load_episodes("zoo/breakout/replay-v0")
    assert episodes.returns.tolist() == [game["reward"].sum() for game in games]
    assert episodes.observation.image == (4, 84, 84)
    np.testing.assert_array_equal(episodes.actions, np.concatenate([game["action"] for game in games]))
    env = make_env(BREAKOUT)
    for number, game in enumerate(games):
        again = played(env, *found.episode(number))
        np.testing.assert_array_equal(again.observations[:-1], game["observation"])
        np.testing.assert_array_equal(again.rewards, game["reward"])
    with pytest.raises(ConfigError, match="Build it without --seed"):
        build("breakout/replay", BuildOptions(seed=1), overwrite=True)


@pytest.mark.slow
def test_a_game_that_ends_elsewhere_and_a_damaged_file_are_refused(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, env = read_recording("breakout/replay"), make_env(BREAKOUT)
    seed, actions = found.episode(0)
    with pytest.raises(DataError, match="does not end there"):
        played(env, seed, actions[:-1])
    with pytest.raises(DataError, match=f"ends after {len(actions)} steps"):
        played(env, seed, np.append(actions, 0))
    with gzip.open(recording / "reward.gz", "wb") as file:
        np.save(file, np.ones(len(found.actions), np.float32), allow_pickle=False)
    monkeypatch.setattr(recorded, "SEEDS", int(found.seeds.max()) + 1)  # the right seeds are tried, too
    with pytest.raises(DataError, match="no start of agentzoo/Breakout-v5 leads to the frames and rewards of 2"):
        record(recording, BREAKOUT, recording / "x.npz")
    path = recorded.FOLDER / "breakout-replay.npz"
    np.savez(path, seed=found.seeds, length=found.lengths + 1, action=found.actions)
    read_recording.cache_clear()
    with pytest.raises(DataError, match="is damaged"):
        read_recording("breakout/replay")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="cannot be read as recorded actions"):
        read_recording("breakout/replay")


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_first_and_last_game_of_a_packaged_recording_end_where_they_did(name: str) -> None:
    read_recording.cache_clear()
    found = read_recording(name)
    assert len(found.actions) > 200_000
    env = make_env(f"agentzoo/{name.split('/')[0].capitalize()}-v5")
    for number in (0, len(found.seeds) - 1):
        assert len(played(env, *found.episode(number))) == found.lengths[number]


def test_an_episode_has_its_own_actions() -> None:
    three = Recording(np.array([5, 6, 7]), np.array([2, 1, 3]), np.array([0, 1, 2, 3, 0, 1]))
    assert [(seed, actions.tolist()) for seed, actions in map(three.episode, range(3))] == [
        (5, [0, 1]),
        (6, [2]),
        (7, [3, 0, 1]),
    ]
