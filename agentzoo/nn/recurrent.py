"""The interface of networks that act step by step, at a cost that does not grow with the episode.

Such a network carries its own memory of each env's past, a `RecurrentState`, instead of reading the last K steps again.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

RecurrentState = tuple[Tensor, ...]  # in fact a NamedTuple of the family; every tensor has the leading axis N
State = TypeVar("State", bound=RecurrentState)


@runtime_checkable
class RecurrentModel(Protocol):
    """A family that can act one step at a time.

    A state holds one row per env, rows never mix, and a row of zeros is an env that has seen nothing yet. So rows
    are reset by `reset_rows` and may be gathered, concatenated or stored like any other arrays.
    """

    def initial_state(self, n: int, device: torch.device | None = None, dtype: torch.dtype | None = None) -> Any:
        """The state of `n` envs before their first step; on the network's device and of its dtype by default."""

    def step(
        self, state: Any, rtg: Tensor, obs: Tensor, previous_action: Tensor, timestep: Tensor
    ) -> tuple[Tensor, Any]:
        """Act once in every env. The state passed in is not changed.

        Args:
            state: from `initial_state` or the previous step.
            rtg: (N,) return-to-go now, divided by `rtg_scale`.
            obs: (N, S) raw observation.
            previous_action: (N, A) in env units, or (N,) int64 counted from 0 if discrete: the action of the previous
                step. Rows that have seen nothing ignore it.
            timestep: (N,) int64, 0-based env step of `obs`.

        Returns:
            (N, A) actions in env units or logits, as `act` gives, and the state to pass to the next step.
        """


def reset_rows(state: State, fresh: Tensor) -> State:
    """`state` with zeros in the rows where `fresh` (N,) is True."""
    kept = [tensor.masked_fill(fresh.view(-1, *(1,) * (tensor.ndim - 1)), 0) for tensor in state]
    make: Any = type(state)
    reset: State = make(*kept)
    return reset
