"""How far the network's actions are from the data's, on fixed windows, while it trains."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from agentzoo.data.episodes import Episodes
from agentzoo.data.windows import WindowSampler
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.tokens import last_valid
from agentzoo.types import Batch

WINDOWS = 256  # of each kind
AT_ONCE = 64
FIRST, TRAINED, HELD_OUT = COLUMNS = ("error_first", "error_trained", "error_held_out")


class ActionErrors:
    """The error of `act` against the action in the data, of three kinds.

    error_first: at a window's first step, where there is no history to copy from. error_trained: at the newest step,
    with the history that acting has. error_held_out: the same on episodes that training never draws.

    Mean squared error in [-1, 1] units for a Box, cross-entropy for Discrete. The windows are the same in every run.
    """

    def __init__(
        self, trained: Episodes, held_out: Episodes | None, context: int, rtg_scale: float, device: torch.device
    ) -> None:
        self.batches: dict[str, Batch] = {}
        for name, episodes in ((TRAINED, trained), (HELD_OUT, held_out)):
            if episodes is None:
                continue
            sampler = WindowSampler(episodes, context, rtg_scale, device, "last")
            starts, lengths = sampler.draw(WINDOWS, torch.Generator().manual_seed(0))
            newest = starts + lengths - 1
            self.batches[name] = sampler.windows(starts, lengths)
            if name == TRAINED:
                first = sampler.windows(newest, torch.ones_like(newest))
                self.batches[FIRST] = first.map(lambda part: part[:, :1])

    @property
    def columns(self) -> list[str]:
        """Of the log."""
        return [name for name in COLUMNS if name in self.batches]

    @torch.no_grad()
    def measure(self, model: SequenceModel) -> dict[str, float]:
        """Column -> error of a network in eval mode."""
        return {name: _mean_error(model, self.batches[name]) for name in self.columns}


def _mean_error(model: SequenceModel, batch: Batch) -> float:
    """In parts: all windows at once would take several times the memory of an update."""
    starts = range(0, len(batch.valid), AT_ONCE)
    parts = [batch.map(lambda part, at=at: part[at : at + AT_ONCE]) for at in starts]  # type: ignore[misc]
    return sum(float(_error(model, part)) * len(part.valid) for part in parts) / len(batch.valid)


def _error(model: SequenceModel, batch: Batch) -> Tensor:
    said = model.act_surely(batch).float()  # (B, A)
    done = last_valid(batch.actions, batch.valid)
    if model.io.action.kind == "discrete":
        return cross_entropy(said, done)
    return (model.encode_actions(said) - model.encode_actions(done)).square().mean()
