"""The error of the network's actions on fixed windows, measured during training."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from agentzoo.data.episodes import Episodes
from agentzoo.data.windows import WindowSampler
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.tokens import last_valid
from agentzoo.types import Batch

WINDOWS = 256  # of each error
AT_ONCE = 64  # windows in a batch
FIRST, TRAINED, HELD_OUT = COLUMNS = ("error_first", "error_trained", "error_held_out")


class ActionErrors:
    """Three errors of `act` against the action in the data.

    error_trained: at the newest step of windows of at most `context` steps; `eval.history` does not shorten them.
    error_first: at the same steps in windows of one step, without a history to copy from. error_held_out: as
    error_trained, on held-out episodes.

    Mean squared error in [-1, 1] units for a Box, cross-entropy for Discrete. The windows are the same in every run.
    """

    def __init__(
        self, trained: Episodes, held_out: Episodes | None, context: int, rtg_scale: float, device: torch.device
    ) -> None:
        self._drawn: dict[str, tuple[WindowSampler, Tensor, Tensor]] = {}
        for name, episodes in ((TRAINED, trained), (HELD_OUT, held_out)):
            if episodes is None:
                continue
            sampler = WindowSampler(episodes, context, rtg_scale, device, "last")
            starts, lengths = sampler.draw(WINDOWS, torch.Generator().manual_seed(0))
            self._drawn[name] = sampler, starts, lengths
            if name == TRAINED:
                newest = starts + lengths - 1
                self._drawn[FIRST] = sampler, newest, torch.ones_like(newest)

    @property
    def columns(self) -> list[str]:
        """The columns of the log."""
        return [name for name in COLUMNS if name in self._drawn]

    def batches(self, name: str) -> Iterator[Batch]:
        """The windows of a column, in parts: all at once would take several times the memory of an update.

        They are drawn again each time, since a window of images takes megabytes.
        """
        sampler, starts, lengths = self._drawn[name]
        for first in range(0, len(starts), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            batch = sampler.windows(starts[part], lengths[part])
            yield batch.map(lambda values: values[:, :1]) if name == FIRST else batch

    @torch.no_grad()
    def measure(self, model: SequenceModel) -> dict[str, float]:
        """Column -> error, for a network in eval mode."""
        return {name: _mean_error(model, self.batches(name)) for name in self.columns}


def _mean_error(model: SequenceModel, parts: Iterator[Batch]) -> float:
    found = [(float(_error(model, part)), len(part.valid)) for part in parts]
    return sum(error * count for error, count in found) / sum(count for _, count in found)


def _error(model: SequenceModel, batch: Batch) -> Tensor:
    predicted = model.act_deterministic(batch).float()  # (B, A)
    target = last_valid(batch.actions, batch.valid)
    if model.io.action.kind == "discrete":
        return cross_entropy(predicted, target)
    return (model.encode_actions(predicted) - model.encode_actions(target)).square().mean()
