"""Every transition of a training run, exactly as the environment gave it, and back into SAC's replay buffer.

stable-baselines3's own buffer keeps float32 rewards and scaled actions, and saves by pickling all of its memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from agentzoo.errors import ConfigError

FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps up to `capacity` steps of the environment it wraps in arrays of the environment's own dtypes.

    `save` writes whole episodes only, in the layout of `agentzoo.data.making.buffers.read_npz`.
    """

    def __init__(self, env: gym.Env[Any, Any], capacity: int) -> None:
        super().__init__(env)
        observation, action = env.observation_space, env.action_space
        assert observation.shape is not None
        assert action.shape is not None
        self.arrays: dict[str, Any] = {  # np.empty: memory is taken up only as it is filled
            "observations": np.empty((capacity, *observation.shape), observation.dtype),
            "actions": np.empty((capacity, *action.shape), action.dtype),
            "rewards": np.empty(capacity, np.float64),
            "terminations": np.empty(capacity, bool),
            "truncations": np.empty(capacity, bool),
        }
        self.final_observations: list[Any] = []  # one for each whole episode
        self.whole = 0  # steps in whole episodes
        self.size = 0  # steps recorded, the episode under way included
        self._obs: Any = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the steps of one that was under way are forgotten."""
        self._obs, info = self.env.reset(**kwargs)
        self.size = self.whole
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and record."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        row = (self._obs, action, reward, terminated, truncated)
        for name, value in zip(FIELDS, row, strict=True):
            self.arrays[name][self.size] = value
        self.size += 1
        if terminated or truncated:
            self.final_observations.append(np.array(obs))
            self.whole = self.size
        self._obs = obs
        return obs, reward, terminated, truncated, info

    def save(self, path: Path) -> int:
        """Write all whole episodes and return how many there are."""
        final = np.stack(self.final_observations) if self.final_observations else self.arrays["observations"][:0]
        kept = {name: values[: self.whole] for name, values in self.arrays.items()}
        with path.open("wb") as file:
            np.savez_compressed(file, **kept, final_observations=final)
        return len(self.final_observations)

    def restore(self, path: Path) -> None:
        """Take up what `save` wrote.

        Raises:
            ConfigError: it is more than this recorder has room for.
        """
        with np.load(path, allow_pickle=False) as file:
            capacity = len(self.arrays["rewards"])
            if len(file["rewards"]) > capacity:
                raise ConfigError(
                    f"{path} holds {len(file['rewards']):,} steps, room is for {capacity:,}. Ask for at least as many "
                    "with --max-steps."
                )
            self.whole = self.size = len(file["rewards"])
            for name, values in self.arrays.items():
                values[: self.size] = file[name]
            self.final_observations = list(file["final_observations"])

    def next_observations(self) -> Any:
        """(whole, S): the observation after each recorded step of a whole episode."""
        following = np.empty_like(self.arrays["observations"][: self.whole])
        following[:-1] = self.arrays["observations"][1 : self.whole]
        ends = self.arrays["terminations"][: self.whole] | self.arrays["truncations"][: self.whole]
        if self.final_observations:
            following[np.flatnonzero(ends)] = np.stack(self.final_observations)
        return following


def fill_replay_buffer(model: Any, recorder: Recorder) -> None:
    """Put the newest recorded transitions into the replay buffer of an SB3 off-policy model with one environment."""
    buffer = model.replay_buffer
    steps = min(recorder.whole, buffer.buffer_size)
    newest = slice(recorder.whole - steps, recorder.whole)
    arrays = {name: values[newest] for name, values in recorder.arrays.items()}
    terminations, truncations = arrays["terminations"], arrays["truncations"]
    buffer.observations[:steps, 0] = arrays["observations"]
    buffer.next_observations[:steps, 0] = recorder.next_observations()[newest]
    buffer.actions[:steps, 0] = model.policy.scale_action(arrays["actions"])
    buffer.rewards[:steps, 0] = arrays["rewards"]
    buffer.dones[:steps, 0] = terminations | truncations
    buffer.timeouts[:steps, 0] = truncations & ~terminations
    buffer.pos, buffer.full = steps % buffer.buffer_size, steps == buffer.buffer_size
