"""Datasets of games from recorded actions: the game makes the frames again.

Without sticky actions a game repeats exactly from its reset seed, so an episode is its seed and one byte a step. A file
of a hundred kilobytes then stands for hundreds of megabytes of frames, and is the same data on every machine.

`python -m agentzoo.data.making.recorded REPLAY ENV FILE` writes FILE (.npz) from the folder `replay/` of
`agentzoo data behaviour ENV`. It finds the seed of each episode by playing it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.data.hdf5 import readable
from agentzoo.data.making.buffers import Imported
from agentzoo.data.making.collect import Rollout
from agentzoo.data.making.dqn_replay import read_dqn_replay
from agentzoo.data.making.runners import environment_of, rollout_of
from agentzoo.errors import DataError
from agentzoo.store.files import write_atomic

FOLDER = Path(__file__).with_name("games")
SEEDS = 1_000  # that may have started an episode
ONE_LOST_IN = 20  # one in so many episodes may have a different start


class Recording(NamedTuple):
    """The episodes of a game: (E,) reset seeds, (E,) lengths in steps, (T,) actions of all episodes in turn."""

    seeds: NDArray[np.integer[Any]]
    lengths: NDArray[np.integer[Any]]
    actions: NDArray[np.integer[Any]]

    def episode(self, number: int) -> tuple[int, NDArray[np.integer[Any]]]:
        """Reset seed and (L,) actions of one episode."""
        end = int(self.lengths[: number + 1].sum())
        return int(self.seeds[number]), self.actions[end - int(self.lengths[number]) : end]


@cache
def read_recording(name: str) -> Recording:
    """The recording of the dataset `breakout/replay`, which is part of agentzoo.

    Raises:
        DataError: the file is missing or broken.
    """
    path = FOLDER / f"{name.replace('/', '-')}.npz"
    with readable(path, "recorded actions"), np.load(path, allow_pickle=False) as file:
        recording = Recording(file["seed"], file["length"], file["action"])
    if len(recording.seeds) != len(recording.lengths) or recording.lengths.sum() != len(recording.actions):
        raise DataError(f"{path} is damaged: the lengths of its episodes do not fit. Install agentzoo again.")
    return recording


@dataclass(frozen=True)
class RecordingRunner:
    """Plays blocks of recorded episodes; `seed` has no effect.

    Args:
        env_id: a game with observations (C, H, W), of which the last plane is the newest frame.
        name: of the recording.
    """

    env_id: str
    name: str

    def __call__(self, seed: int, first: int, count: int) -> list[Rollout]:
        """Episodes `first` to `first + count - 1`, as far as they are recorded; observations are single frames."""
        recording, env = read_recording(self.name), environment_of(self.env_id)
        last = min(first + count, len(recording.seeds))
        return [played(env, *recording.episode(number)) for number in range(first, last)]


def played(env: gym.Env[Any, Any], seed: int, actions: NDArray[np.integer[Any]]) -> Rollout:
    """One episode from its reset seed and its (L,) actions, with (L+1, H, W) frames.

    Raises:
        DataError: the game ends earlier or later than the actions do.
    """
    obs, _ = env.reset(seed=seed)
    frames, rewards, terminated, truncated = [obs[-1]], [], False, False
    for action in actions:
        if terminated or truncated:
            break
        obs, reward, terminated, truncated, _ = env.step(int(action))
        frames.append(obs[-1])
        rewards.append(float(reward))
    if len(rewards) < len(actions) or not (terminated or truncated):
        end = f"ends after {len(rewards)} steps" if terminated or truncated else "does not end there"
        raise DataError(
            f"a game was recorded with {len(actions)} steps, but played again it {end}. The installed ale-py plays "
            "a different game; constraints.txt of agentzoo names the tested version."
        )
    return rollout_of(seed, frames, list(actions.astype(np.int64)), rewards, bool(terminated), bool(truncated))


class Starts:
    """The first frames of a game after the reset seeds 0 to 999, each found once.

    The seed decides how many idle frames `AtariPreprocessing` plays, at most 30. In some games, such as Seaquest, it
    also decides what the console's memory holds at the start.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        self.frames: list[NDArray[Any]] = []

    def like(self, frame: NDArray[Any]) -> Iterator[int]:
        """The seeds whose game starts with this (H, W) frame, smallest first."""
        for seed in range(SEEDS):
            if seed == len(self.frames):
                self.frames.append(self.env.reset(seed=seed)[0][-1])
            if np.array_equal(self.frames[seed], frame):
                yield seed


def record(replay: Path, env_id: str, path: Path) -> int:
    """Write the recording of a folder in the layout of DQN's replay data, which has no seeds.

    Returns:
        How many episodes are left out, because no reset seed below 1,000 starts them.

    Raises:
        DataError: more than one in twenty is left out, as with sticky actions.
    """
    env = environment_of(env_id)
    starts = Starts(env)
    seeds, lengths, actions, missing = [], [], [], []
    for number, episode in enumerate(read_dqn_replay(replay, Imported(env_id))):
        likely = starts.like(episode.observations[0])
        found = next((seed for seed in likely if repeats(env, seed, episode)), None)
        if found is None:
            missing.append(number)
            _require_few(missing, max(number + 1, ONE_LOST_IN), replay, env_id)
            continue
        seeds.append(found)
        lengths.append(len(episode))
        actions.append(episode.actions)
    _require_few(missing, len(seeds) + len(missing), replay, env_id)
    content = io.BytesIO()
    np.savez_compressed(
        content,
        seed=np.array(seeds, np.uint16),
        length=np.array(lengths, np.uint32),
        action=np.concatenate(actions).astype(np.uint8),
    )
    write_atomic(path, content.getvalue())
    return len(missing)


def _require_few(missing: list[int], episodes: int, replay: Path, env_id: str) -> None:
    if ONE_LOST_IN * len(missing) > episodes:
        raise DataError(
            f"{replay}: no start of {env_id} leads to the frames and rewards of {len(missing)} episodes (the last is "
            f"number {missing[-1]}); at most one in {ONE_LOST_IN} may be left out. Was it played with sticky actions?"
        )


def repeats(env: gym.Env[Any, Any], seed: int, episode: Rollout) -> bool:
    """Whether the game gives this episode's frames, rewards and end from a reset seed."""
    obs, _ = env.reset(seed=seed)
    for step, action in enumerate(episode.actions):
        if not np.array_equal(obs[-1], episode.observations[step]):
            return False
        obs, reward, terminated, truncated, _ = env.step(int(action))
        if reward != episode.rewards[step] or (terminated or truncated) != (step == len(episode) - 1):
            return False
    return True


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python -m agentzoo.data.making.recorded REPLAY ENV FILE")
    print(f"{record(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))} episodes left out")
