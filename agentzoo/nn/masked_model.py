"""Masked networks predict any part of a window from any other part."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import torch
from pydantic import AfterValidator
from torch import Tensor
from torch.nn.functional import one_hot

from agentzoo.errors import ConfigError
from agentzoo.nn.base import SequenceModel, mean_over_valid
from agentzoo.nn.masking import Masking
from agentzoo.types import Batch, Losses


def _ordered(classes: tuple[int, int]) -> tuple[int, int]:
    if not 0 < classes[1] - classes[0] < 10_000:
        raise ValueError("return classes are (lowest, highest), at most 10,000 of them")
    return classes


ReturnClasses = Annotated[tuple[int, int], AfterValidator(_ordered)]  # lowest and highest whole return-to-go, one-hot


def return_size(classes: tuple[int, int] | None) -> int:
    """R, how many numbers hold a return-to-go."""
    return 2 if classes is None else classes[1] - classes[0] + 1


def encode_returns(batch: Batch, classes: tuple[int, int] | None, max_ep_len: int) -> Tensor:
    """(B, K, R): one-hot over `classes` (nearest whole number, clipped), or (return-to-go, timestep / max_ep_len).

    The timestep is always 0 if `max_ep_len` is 1.
    """
    if classes is None:
        times = batch.timesteps / max_ep_len if max_ep_len > 1 else torch.zeros_like(batch.returns_to_go)
        return torch.stack([batch.returns_to_go, times.to(batch.returns_to_go.dtype)], dim=-1)
    size = return_size(classes)
    found = (batch.returns_to_go.round().long() - classes[0]).clamp(0, size - 1)
    return one_hot(found, size).to(batch.returns_to_go.dtype)


def factor_error(predicted: Tensor, target: Tensor, asked: Tensor, onehot: bool) -> Tensor:
    """Cross-entropy or mean squared error of a factor, over the steps where `asked` (B, K) is True.

    predicted, target: (B, K, S_f). The error is 0 if `asked` is False everywhere.
    """
    each = -(predicted.log_softmax(-1) * target).sum(-1) if onehot else (predicted - target).square().mean(-1)
    return mean_over_valid(each, asked)


@runtime_checkable
class Askable(Protocol):
    """A network that reports its error on any masks."""

    def factor_losses(self, batch: Batch, masking: Masking) -> Losses:
        """The unweighted error of each factor over what `masking` asks for."""


class Known(NamedTuple):
    """Observations of later steps: a goal, waypoints. observations: (B, K, S) raw. shown: (B, K) bool."""

    observations: Tensor
    shown: Tensor


class MaskedModel(SequenceModel):
    """A sequence model that predicts the parts a `Masking` asks for. Its agents take goals, waypoints and questions."""

    takes_goals = True

    @abstractmethod
    def act_knowing(self, batch: Batch, known: Known) -> Tensor:
        """As `act`, with observations of later steps of the window shown."""

    @abstractmethod
    def answer(self, batch: Batch, masking: Masking) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Every action (B, K, A) and every factor of the observation (B, K, S_f): probabilities, or env units."""

    @abstractmethod
    def factor_losses(self, batch: Batch, masking: Masking) -> Losses:
        """The unweighted error of each factor over what `masking` asks for; "action" is the first."""


def require_masked(model: SequenceModel, what: str) -> MaskedModel:
    """The network, if it is masked.

    Raises:
        ConfigError: it is not; the message says that it cannot be `what`.
    """
    if isinstance(model, MaskedModel):
        return model
    raise ConfigError(f"a {model.config.family!r} network cannot be {what}; a unimask agent can.")
