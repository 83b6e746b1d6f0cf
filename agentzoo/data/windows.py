"""Windows of K steps drawn by index arithmetic, a whole batch at a time, on the training device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from agentzoo.data.episodes import Episodes, returns_to_go
from agentzoo.types import Batch


class WindowSampler:
    """Draws windows uniformly over steps, which is episodes in proportion to length and a uniform start in each.

    A window that reaches past its episode's end is shorter than K and padded on the right with zeros.
    """

    def __init__(self, episodes: Episodes, context: int, rtg_scale: float, device: torch.device | str = "cpu") -> None:
        self.context = context
        rtg = np.concatenate([returns_to_go(rewards) for rewards in episodes.split(episodes.rewards)])
        timesteps = np.concatenate([np.arange(n) for n in episodes.lengths])
        left = np.repeat(episodes.lengths, episodes.lengths) - timesteps  # steps from here to the end, own included
        self.observations = torch.from_numpy(np.ascontiguousarray(episodes.observations)).to(device)
        self.actions = torch.from_numpy(np.ascontiguousarray(episodes.actions)).to(device)
        self.returns_to_go = torch.from_numpy((rtg / rtg_scale).astype(np.float32)).to(device)
        self.timesteps = torch.from_numpy(timesteps.astype(np.int64)).to(device)
        self.left = torch.from_numpy(left.astype(np.int64)).to(device)
        self._offsets = torch.arange(context, device=device)

    def __len__(self) -> int:
        return len(self.left)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` windows starting at steps drawn uniformly with replacement."""
        device = self.left.device
        starts = torch.randint(len(self), (batch_size,), generator=generator, device=generator.device)
        return self.at(starts.to(device))

    def at(self, starts: Tensor) -> Batch:
        """The windows that start at the steps `starts` (B,)."""
        valid = self._offsets < self.left[starts].unsqueeze(1)  # (B, K)
        steps = torch.where(valid, starts.unsqueeze(1) + self._offsets, starts.unsqueeze(1))

        def gather(values: Tensor) -> Tensor:
            picked = values[steps]
            return picked * valid.view(*valid.shape, *(1,) * (picked.ndim - 2)).to(picked.dtype)

        return Batch(
            observations=gather(self.observations),
            actions=gather(self.actions),
            returns_to_go=gather(self.returns_to_go),
            timesteps=gather(self.timesteps),
            valid=valid,
        )
