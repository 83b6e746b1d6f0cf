"""Record every transition of a training run unchanged, and restore SAC's replay buffer from the record.

stable-baselines3's buffer stores float32 rewards and scaled actions, and pickles its whole memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from agentzoo.data.hdf5 import readable
from agentzoo.errors import ConfigError

FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Records up to `capacity` steps of the wrapped environment in arrays of its dtypes.

    `save` writes only complete episodes, in the layout of `agentzoo.data.making.buffers.read_npz`.
    """

    def __init__(self, env: gym.Env[Any, Any], capacity: int) -> None:
        super().__init__(env)
        observation, action = env.observation_space, env.action_space
        assert observation.shape is not None
        assert action.shape is not None
        self.arrays: dict[str, Any] = {  # np.empty uses memory only as it is filled
            "observations": np.empty((capacity, *observation.shape), observation.dtype),
            "actions": np.empty((capacity, *action.shape), action.dtype),
            "rewards": np.empty(capacity, np.float64),
            "terminations": np.empty(capacity, bool),
            "truncations": np.empty(capacity, bool),
        }
        self.final_observations: list[Any] = []  # one per complete episode
        self.whole = 0  # steps in complete episodes
        self.size = 0  # recorded steps, including the running episode
        self._obs: Any = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode and drop the steps of an unfinished one."""
        obs, info = self.env.reset(**kwargs)
        self._obs, self.size = np.array(obs), self.whole
        return obs, info

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
        self._obs = np.array(obs)  # some environments return the same array every time
        return obs, reward, terminated, truncated, info

    def save(self, path: Path) -> int:
        """Write all complete episodes and return their number."""
        final = np.stack(self.final_observations) if self.final_observations else self.arrays["observations"][:0]
        kept = {name: values[: self.whole] for name, values in self.arrays.items()}
        with path.open("wb") as file:
            np.savez_compressed(file, **kept, final_observations=final)
        return len(self.final_observations)

    def restore(self, path: Path) -> None:
        """Load a file that `save` wrote.

        Raises:
            ConfigError: it holds more steps than the capacity. DataError: it is missing or broken.
        """
        with readable(path, "the steps of a stopped run; delete its folder to start again"):
            with np.load(path, allow_pickle=False) as file:
                stored = {name: file[name] for name in (*FIELDS, "final_observations")}
            steps, capacity = len(stored["rewards"]), len(self.arrays["rewards"])
            if steps > capacity:
                raise ConfigError(
                    f"{path} holds {steps:,} steps, but --max-steps allows {capacity:,}. Raise --max-steps."
                )
            for name, values in self.arrays.items():
                values[:steps] = stored[name]
            self.whole = self.size = steps
            self.final_observations = list(stored["final_observations"])

    def next_observations(self) -> Any:
        """(whole, S): the observation after each recorded step of the complete episodes."""
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
