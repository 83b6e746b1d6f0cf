"""Windows of K steps drawn by index arithmetic, a whole batch at a time, on the training device."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentzoo.data.episodes import Episodes
from agentzoo.data.frames import Frames, draw_images
from agentzoo.types import Batch


class WindowSampler:
    """Draws steps uniformly with replacement, and one window for each.

    Windows at the end or start of an episode may have fewer than K steps; they are padded on the right with zeros.

    Args:
        context: K.
        rtg_scale: divisor of returns-to-go.
        drawn: the place of the drawn step. "first": the window starts there, so episodes are drawn in proportion to
            their length. "last": the window ends there, after the same history as in acting; for networks that learn
            only the newest action. "full": the step only chooses the episode, in which a window of K steps starts at
            random; shorter episodes are left out.

    Raises:
        DataError: with "full", no episode has K steps.
    """

    def __init__(
        self,
        episodes: Episodes,
        context: int,
        rtg_scale: float,
        device: torch.device | str = "cpu",
        drawn: Literal["first", "last", "full"] = "first",
    ) -> None:
        if drawn == "full":
            episodes = episodes.at_least(context)
        self.context, self.drawn = context, drawn

        def tensor(values: NDArray[Any]) -> Tensor:  # on the CPU it shares the array's memory
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        seen = episodes.observations
        self.observations = seen.on(device) if isinstance(seen, Frames) else tensor(seen)
        self.actions = tensor(episodes.actions)
        self.returns_to_go = tensor(episodes.scaled_returns_to_go(rtg_scale))
        self.rewards = tensor(episodes.rewards.astype(np.float32))
        self.timesteps = tensor(episodes.timesteps())
        self.left = tensor(episodes.steps_left())
        self._offsets = torch.arange(context, device=device)

    def __len__(self) -> int:
        return len(self.left)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` windows at steps drawn uniformly with replacement."""
        return self.windows(*self.draw(batch_size, generator))

    def draw(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """First steps (B,) and lengths (B,) of the windows that `sample` returns; processes split these."""
        steps = torch.randint(len(self), (batch_size,), generator=generator, device=generator.device)
        steps = self._moved(steps)
        if self.drawn == "full":
            steps = self._start_in_episode_of(
                steps, self._moved(torch.rand(batch_size, generator=generator, device=generator.device))
            )
        return self._ending(steps) if self.drawn == "last" else self._beginning(steps)

    def _moved(self, drawn: Tensor) -> Tensor:
        """On the training device. From pinned memory, so that the processor does not wait for a GPU."""
        device = self.left.device
        pinned = device.type == "cuda" and drawn.device.type == "cpu"
        return drawn.pin_memory().to(device, non_blocking=True) if pinned else drawn.to(device)

    def _start_in_episode_of(self, steps: Tensor, share: Tensor) -> Tensor:
        """The start of a full window in each step's episode; `share` (B,) in [0, 1) goes from the first to the last."""
        starts = self.timesteps[steps] + self.left[steps] - self.context + 1  # number of starts in the episode
        return steps - self.timesteps[steps] + (share * starts).long().clamp(max=starts - 1)

    def at(self, starts: Tensor) -> Batch:
        """The windows that start at the steps `starts` (B,)."""
        return self.windows(*self._beginning(starts))

    def until(self, ends: Tensor) -> Batch:
        """The windows whose last step is `ends` (B,)."""
        return self.windows(*self._ending(ends))

    def _beginning(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        return starts, self.left[starts].clamp(max=self.context)

    def _ending(self, ends: Tensor) -> tuple[Tensor, Tensor]:
        before = self.timesteps[ends].clamp(max=self.context - 1)
        return ends - before, before + 1

    def windows(self, starts: Tensor, lengths: Tensor) -> Batch:
        """The windows of `lengths` (B,) valid steps that start at the steps `starts` (B,)."""
        valid = self._offsets < lengths.unsqueeze(1)  # (B, K)
        steps = torch.where(valid, starts.unsqueeze(1) + self._offsets, starts.unsqueeze(1))

        def gather(values: Tensor) -> Tensor:
            picked = values[steps]
            return picked * valid.view(*valid.shape, *(1,) * (picked.ndim - 2)).to(picked.dtype)

        seen = self.observations
        return Batch(
            observations=gather(seen) if isinstance(seen, Tensor) else draw_images(seen, steps, valid),
            actions=gather(self.actions),
            returns_to_go=gather(self.returns_to_go),
            timesteps=gather(self.timesteps),
            valid=valid,
            rewards=gather(self.rewards),
        )
