"""The loss and the gradients of one update: operation by operation, or as a CUDA graph.

A small network on a GPU waits for the processor that starts its hundreds of operations one by one. A CUDA graph records
them once and starts them all at once. Operations and results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentzoo.errors import ConfigError
from agentzoo.nn.base import SequenceModel
from agentzoo.training import action_errors, log
from agentzoo.training.processes import Weights, weighted
from agentzoo.types import Batch, Losses

MAX_GRAPHS = 8  # each keeps the memory of one pass
WARM_UP = 3  # passes before a capture, in which libraries allocate what a graph cannot

TAKEN = {*log.COLUMNS, *log.EVALUATION, *action_errors.COLUMNS}  # columns of the log that no family fills

_INSTEAD = "train without --cuda-graph"

Gradients = Callable[[Batch, Weights | None], Losses]


class LossModule(torch.nn.Module):
    """`model.loss` as a forward pass, since several processes synchronize gradients around `forward` only."""

    def __init__(self, model: SequenceModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Losses:
        """The loss terms of a batch."""
        return self.model.loss(batch)


class EagerGradients:
    """Runs the operations one by one.

    Args:
        model: the network.
        losses: its `LossModule`, prepared by the accelerator.
        optimizer: its parameters' gradients are set.
        accelerator: casts and runs backward.
    """

    def __init__(self, model: SequenceModel, losses: Any, optimizer: Any, accelerator: Any) -> None:
        self.model, self.losses, self.optimizer, self.accelerator = model, losses, optimizer, accelerator

    def __call__(self, batch: Batch, weights: Weights | None) -> Losses:
        """Set the gradients; returns "loss", its terms and the family's figures, all detached.

        Args:
            weights: the factors of the terms, which also count in "loss"; None in a single process.

        Raises:
            ConfigError: a term or figure has the name of another column of the log.
        """
        self.optimizer.zero_grad()
        with self.accelerator.autocast():
            terms = self.losses(batch)
        loss = torch.stack(list(weighted(terms, weights, self.model.averages).values())).sum()
        self.accelerator.backward(loss)
        own = {**terms, **self.model.figures()}
        _require_free_names(own, self.model)
        return {name: value.detach() for name, value in {"loss": loss, **own}.items()}


class _Captured(NamedTuple):
    """A graph and the tensors it reads and writes."""

    graph: Any
    batch: Batch
    shown: Losses
    gradients: list[tuple[Tensor, Tensor | None]]  # of each parameter


class GraphGradients:
    """Replays the operations of `EagerGradients` as a CUDA graph; each batch is copied into its input.

    There is a graph for each value of `SequenceModel.loss_settings`; of more than `MAX_GRAPHS` the oldest is dropped.
    Source: https://pytorch.org/docs/stable/notes/cuda.html#whole-network-capture

    Raises:
        ConfigError: the family has a `begin_step` and does not say in `loss_settings` what that changes.
    """

    def __init__(self, eager: EagerGradients) -> None:
        family = type(eager.model)
        if family.begin_step is not SequenceModel.begin_step and family.loss_settings is SequenceModel.loss_settings:
            raise ConfigError(
                f"the loss of {_family(eager.model)} may depend on the update, since the family has a begin_step; "
                f"define loss_settings in the family, or {_INSTEAD}."
            )
        self.eager = eager
        self._captured: dict[Hashable, _Captured] = {}
        self._in_a_row = 0  # captures without a replay of an older graph

    def __call__(self, batch: Batch, weights: Weights | None) -> Losses:
        """As `EagerGradients`, in a single process; the next call overwrites the returned tensors.

        Raises:
            ConfigError: the family's loss cannot be captured, or changes with every update.
        """
        key = (self.eager.model.loss_settings(), batch.shape)
        self._in_a_row = 0 if key in self._captured else self._in_a_row + 1
        if self._in_a_row > MAX_GRAPHS:
            raise ConfigError(f"the loss of {_family(self.eager.model)} changes with every update; {_INSTEAD}.")
        if key not in self._captured:
            while len(self._captured) >= MAX_GRAPHS:
                del self._captured[next(iter(self._captured))]
            self._captured[key] = self._capture(batch)
        one = self._captured[key]
        for name, value in vars(batch).items():
            if value is not None:
                getattr(one.batch, name).copy_(value)
        for parameter, gradient in one.gradients:
            parameter.grad = gradient
        one.graph.replay()
        return one.shown

    def _capture(self, batch: Batch) -> _Captured:
        batch = batch.map(torch.clone)
        before = torch.cuda.get_rng_state()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.eager(batch, None)
        torch.cuda.current_stream().wait_stream(stream)
        self.eager.optimizer.zero_grad()  # gradients that the capture makes belong to the graph
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                shown = self.eager(batch, None)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]  # advice on debugging follows
            raise ConfigError(
                f"the loss of {_family(self.eager.model)} cannot be captured as a CUDA graph ({reason}); {_INSTEAD}."
            ) from error
        torch.cuda.set_rng_state(before)
        return _Captured(graph, batch, shown, [(one, one.grad) for one in self.eager.model.parameters()])


def _require_free_names(own: Losses, model: SequenceModel) -> None:
    taken = sorted(TAKEN.intersection(own))
    if taken:
        raise ConfigError(
            f"the family {_family(model)!r} names a term or figure {taken[0]!r}, which is a column of every log. Give "
            "it another name."
        )


def _family(model: SequenceModel) -> str:
    return str(model.config.family)
