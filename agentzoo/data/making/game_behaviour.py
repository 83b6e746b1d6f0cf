"""Train a behaviour policy on images: PPO from scratch up to a threshold, with every step that it saw.

The finished folder holds `ppo-<env>.zip` (stable-baselines3's format) and `replay/`, the steps in the public layout of
DQN's replay data (`dqn_replay`), which `agentzoo data import` reads. Episodes come in the order of their ends, so
returns rise through the file. Before that it holds the newest `checkpoint-<steps>` with the policy, and `episodes/`,
one file each; a stopped run continues from them, without the unfinished episodes.

Source: Schulman et al. 2017, arXiv:1707.06347; PPO's settings for Atari in Raffin's rl-zoo3 (DLR-RM), without their
decay, so that a run has no planned end. Training sees the sign of a reward, the file has the reward.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.data.hdf5 import readable
from agentzoo.data.images import is_image
from agentzoo.data.making.behaviour_checkpoint import (
    POLICY,
    make_folder,
    new_checkpoint,
    restore_policy,
    steps_callback,
)
from agentzoo.data.making.behaviour_record import Behaviour, Score, require_unset, short_name, write_record
from agentzoo.data.making.dqn_replay import PARTS
from agentzoo.envs import make_env
from agentzoo.errors import ConfigError, DataError, SpaceError

ENVS = 8
SETTINGS: dict[str, Any] = {
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "learning_rate": 2.5e-4,
    "clip_range": 0.1,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
}
EPISODES, REPLAY = "episodes", "replay"
STEP = {"observation": np.uint8, "action": np.int32, "reward": np.float32, "terminal": np.uint8}


class EpisodeKeeper(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps each episode's newest frames, actions and rewards, and passes them on at its end.

    `step` returns the sign of the reward.

    Args:
        env: with observations (C, H, W), of which the last plane is the newest.
        keep: called with the (L, H, W) frames that actions saw, the (L,) actions and the (L,) rewards.
    """

    def __init__(self, env: gym.Env[Any, Any], keep: Callable[[Any, Any, Any], None]) -> None:
        super().__init__(env)
        self._keep = keep
        self._frames: list[NDArray[np.uint8]] = []
        self._actions: list[int] = []
        self._rewards: list[float] = []

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the steps of an unfinished one are dropped."""
        obs, info = self.env.reset(**kwargs)
        self._frames, self._actions, self._rewards = [np.array(obs[-1])], [], []
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, record, and return the reward's sign."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._actions.append(int(action))
        self._rewards.append(float(reward))
        if terminated or truncated:
            self._keep(np.stack(self._frames), np.array(self._actions), np.array(self._rewards))
        self._frames.append(np.array(obs[-1]))
        return obs, float(np.sign(float(reward))), terminated, truncated, info


class _Kept:
    """The episodes of a run, one file each, numbered in the order of their ends."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        folder.mkdir(exist_ok=True)
        for path in folder.glob("[0-9]*.npz"):
            if path.stem.isdecimal() and int(path.stem) >= count:  # came after the checkpoint, or is half written
                path.unlink()
        rewards = [one["reward"] for one in self]
        self.returns = [float(one.sum()) for one in rewards]
        self.lengths = [len(one) for one in rewards]

    def add(self, frames: Any, actions: Any, rewards: Any) -> None:
        """Store the next episode."""
        with (self.folder / f"{self.count:06d}.npz").open("wb") as file:
            np.savez_compressed(file, observation=frames, action=actions, reward=rewards)
        self.count += 1
        self.returns.append(float(rewards.sum()))
        self.lengths.append(len(rewards))

    def read(self, number: int) -> dict[str, NDArray[Any]]:
        path = self.folder / f"{number:06d}.npz"
        with readable(path, "an episode"), np.load(path, allow_pickle=False) as file:
            found = {part: file[part] for part in PARTS[:3]}
        length = len(found["action"])
        if found["observation"].shape[:1] != (length,) or len(found["reward"]) != length or not length:
            raise DataError(f"{path} is not an episode of this run. Delete its folder to start again.")
        return {**found, "terminal": np.arange(length) == length - 1}

    def remove(self) -> None:
        """Delete the episodes, and their folder if it holds nothing else."""
        for number in range(self.count):
            (self.folder / f"{number:06d}.npz").unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        return (self.read(number) for number in range(self.count))


def train_on_images(
    env: gym.Env[Any, Any],
    folder: Path,
    record: Behaviour,
    on_steps: Callable[[int], None],
    on_score: Callable[[Score], None],
) -> None:
    """`behaviour.train_behaviour` for an environment with images (C, H, W) and Discrete actions, `agentzoo/Pong-v5`.

    The score is of the newest `episodes` episodes of training, whose actions are sampled.

    Raises:
        SpaceError: its spaces are not supported. DataError: the files of a stopped run are broken.
            ConfigError: no episode ended, or a setting of SAC is given.
    """
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    env_id, options = record.env_id, record.options
    assert options is not None
    _require_images(env, env_id)
    require_unset(options)
    make_folder(folder)
    kept = _Kept(folder / EPISODES, record.replay_episodes)
    with closing(DummyVecEnv([lambda: EpisodeKeeper(make_env(env_id), kept.add) for _ in range(ENVS)])) as envs:
        model = PPO("CnnPolicy", envs, seed=options.seed, device="cpu", **SETTINGS)
        if record.steps:
            restore_policy(model, folder / f"checkpoint-{record.steps}" / POLICY)
            model.num_timesteps = record.steps
            model.set_random_seed(options.seed + record.steps)  # the state of the run's generators is not stored
        while record.steps < options.max_steps and not record.reached:
            chunk = min(options.evaluate_every, options.max_steps - record.steps)
            model.learn(chunk, reset_num_timesteps=False, callback=steps_callback(on_steps))
            record.steps, record.replay_episodes = int(model.num_timesteps), kept.count
            if kept.count:
                newest = np.array(kept.returns[-options.episodes :])
                record.scores.append(Score(record.steps, float(newest.mean()), float(newest.std())))
                record.reached = len(newest) == options.episodes and float(newest.mean()) >= options.threshold
            with new_checkpoint(folder, record) as made:
                model.save(made / POLICY)
            if kept.count:
                on_score(record.scores[-1])
    if not kept.count:
        raise ConfigError(
            f"no episode of {env_id} ended within {record.steps:,} steps, shared by {ENVS} environments. Raise "
            f"--max-steps (max_steps), and delete {folder} or choose another --out."
        )
    _finish(folder, model, kept, record)


def _finish(folder: Path, model: Any, kept: _Kept, record: Behaviour) -> None:
    record.policy, record.replay = f"ppo-{short_name(record.env_id)}.zip", REPLAY
    model.save(folder / record.policy)
    _write_replay(folder / REPLAY, kept)
    write_record(folder, record)
    shutil.rmtree(folder / f"checkpoint-{record.steps}", ignore_errors=True)
    kept.remove()


def _require_images(env: gym.Env[Any, Any], env_id: str) -> None:
    seen, acted = env.observation_space, env.action_space
    stacked = is_image(seen) and len(seen.shape or ()) == 3 and min(seen.shape or ()) == (seen.shape or (0,))[0]
    if not stacked or not isinstance(acted, gym.spaces.Discrete):
        raise SpaceError(
            f"PPO on images needs observations (C, H, W) of uint8 and Discrete actions; those of {env_id} are {seen} "
            f"and {acted}."
        )
    env.close()


def _write_replay(folder: Path, kept: _Kept) -> None:
    """All episodes as four gzipped arrays, in one pass; one episode at a time is in memory."""
    folder.mkdir(exist_ok=True)
    sides = kept.read(0)["observation"].shape[1:]
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for part, kind in STEP.items():
            files[part] = stack.enter_context(gzip.open(folder / f"{part}.gz.part", "wb", compresslevel=4))
            header = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False}
            shape = (sum(kept.lengths), *(sides if part == "observation" else ()))
            np.lib.format.write_array_header_1_0(files[part], {**header, "shape": shape})
        for one in kept:
            for part, kind in STEP.items():
                files[part].write(np.ascontiguousarray(one[part].astype(kind)).data)
    for part in STEP:
        (folder / f"{part}.gz.part").replace(folder / f"{part}.gz")
