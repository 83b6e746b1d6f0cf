"""What acting makes of a network's weights, kept until they change."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")
_version = attrgetter("_version")


class Prepared(Generic[T]):
    """Something made from a module's weights and buffers, kept for as long as they stay as they are.

    Loading and moving change a weight's version or address. A fused optimizer leaves no mark on what it changes, so
    nothing is kept while the module trains, and a forward pass with gradients must call `drop`. Whoever writes to a
    weight's `.data`, which leaves no mark either, puts another parameter or layer in the place of one or hooks a layer
    must call `forget_prepared(model)`: looking for that at every call takes longer than the rest.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._weights: list[Tensor] = []
        self._made: tuple[list[int], T, list[Tensor]] | None = None

    def get(self, module: nn.Module) -> T:
        """As `make` gives it for the weights of now."""
        kept = self._made  # another thread may drop it
        if kept is not None and not module.training and kept[0] == self._marks():
            return kept[1]
        self._weights = [*module.parameters(), *module.buffers()]
        if module.training or any(weight.is_inference() for weight in self._weights):  # the latter have no version
            self._made = None
            return self._make()
        with torch.inference_mode(False):  # it may be made in inference and used outside
            made = self._make()
        # the weights' memory is held, too: given back, other weights could come to lie there and look the same
        self._made = (self._marks(), made, [weight.detach() for weight in self._weights])
        return made

    def _marks(self) -> list[int]:
        return [*map(Tensor.data_ptr, self._weights), *map(_version, self._weights)]

    def __getstate__(self) -> dict[str, Any]:
        """Without what was made: a copy makes its own, of its own weights."""
        return {**vars(self), "_weights": [], "_made": None}

    def drop(self) -> None:
        """An update may follow."""
        self._made = None


def forget_prepared(model: nn.Module, _: object = None) -> None:
    """For weights that changed unseen. A hook for `load_state_dict` too: with `assign=True` they are other objects."""
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Prepared):
                value.drop()
