"""A running mean of the weights during training.

Source: polynomial-decay averaging, Shamir and Zhang 2013, arXiv:1212.1824, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MeanWeights:
    """The mean of a network's trained parameters over about the last `share` of the updates so far.

    After update n (from 0) it moves by 1 / (1 + share * n) of the way to the newest weights, so those of update i count
    in proportion to i ** (1 / share - 1), roughly. A share of 1 is the plain mean over all updates.

    Args:
        module: on the device that it trains on.
        share: in [0, 1]; 0 keeps no mean, and all methods do nothing.
    """

    def __init__(self, module: nn.Module, share: float) -> None:
        self.share = share
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad} if share else {}
        self._newest: list[Tensor] = list(trained.values())  # the network's own parameters
        self._mean = {name: p.detach().clone() for name, p in trained.items()}

    @torch.no_grad()
    def update(self, n: int) -> None:
        """Count the weights that update `n` made."""
        if self._mean:
            torch._foreach_lerp_(list(self._mean.values()), self._newest, 1.0 / (1.0 + self.share * n))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The network has the mean inside, and its own weights again afterwards."""
        own = [p.detach().clone() for p in self._newest] if self._mean else []
        self.apply()
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in zip(self._newest, own, strict=True):
                    parameter.copy_(value)

    @torch.no_grad()
    def apply(self) -> None:
        """Give the network the mean."""
        for parameter, value in zip(self._newest, self._mean.values(), strict=True):
            parameter.copy_(value)

    def state(self) -> dict[str, Tensor]:
        """The mean, under the names of the parameters."""
        return dict(self._mean)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of `state`.

        Raises:
            KeyError: a parameter is missing. RuntimeError: one has another shape.
        """
        for name, value in self._mean.items():
            value.copy_(tensors[name])
