"""Two ways to act: run the last K steps at every step, or carry a memory of constant size.

Both keep their history in the state that `predict` returns, one row per environment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentzoo.acting import history
from agentzoo.acting.conditions import Conditions
from agentzoo.acting.history import AgentState
from agentzoo.errors import ConfigError, ShapeError
from agentzoo.nn.base import ActingMode, SequenceModel
from agentzoo.nn.masked_model import Known
from agentzoo.nn.recurrent import RecurrentModel, RecurrentState, reset_rows
from agentzoo.types import ActionDistribution, Batch

MAX_WINDOWS = 1_024  # in one forward pass


class MemoryState(NamedTuple):
    """The history of N environments in recurrent acting.

    actions: (N, A) float32, or (N,) int64 counted from 0, of the last step. returns_to_go: (N,) float64, raw
    units, and timesteps: (N,) int64, of the newest step. memory: the network's own tensors, on its device. targets:
    (N,) and recorded: (N, 2) float64, as in `AgentState`.
    """

    actions: NDArray[Any]
    returns_to_go: NDArray[np.float64]
    timesteps: NDArray[np.int64]
    memory: RecurrentState
    targets: NDArray[np.float64]
    recorded: NDArray[np.float64]

    def newest_return_to_go(self) -> NDArray[np.float64]:
        """(N,) the return-to-go of the last step, in raw units; 0 before the first step."""
        return self.returns_to_go


class Acting(Protocol):
    """One way to act. It does not change the states passed to it."""

    def empty(self, n: int) -> Any:
        """The state of `n` environments before their first step."""

    def check(self, state: Any, n: int) -> Any:
        """`state`, checked: ShapeError unless it is a state of this agent for `n` rows."""

    def act(
        self,
        state: Any,
        observations: NDArray[np.float32],
        rtg: NDArray[np.float64],
        starts: NDArray[np.bool_],
        conditions: Conditions,
    ) -> tuple[Tensor | ActionDistribution, Any]:
        """The network's output (N, A) for one more step, and the new state.

        observations: (N, S) raw. rtg: (N,) raw units, of this step. starts: (N,), True in rows that drop their past.
        conditions: known observations of later steps.
        """

    def remember(self, state: Any, actions: NDArray[Any], targets: NDArray[np.float64]) -> Any:
        """The state that `act` returned, with the chosen actions and the (N,) target returns."""


def check_mode(mode: ActingMode, model: SequenceModel) -> None:
    """Raise ConfigError unless a network of this family can act in this mode."""
    if mode not in get_args(ActingMode):
        raise ConfigError(f"acting is 'window' or 'recurrent', not {mode!r}.")
    if mode == "recurrent" and not isinstance(model, RecurrentModel):
        raise ConfigError(f"a {model.config.family!r} network has no recurrent form; it acts from a window.")


def check_history(steps: int | None, context: int) -> None:
    """Raise ConfigError unless an agent with windows of `context` steps can read this many of them."""
    if steps is None:
        return
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 1 <= steps <= context:
        raise ConfigError(
            f"history is the number of newest steps that acting reads, 1 to {context} or None for all; got {steps!r}."
        )


def make_acting(mode: ActingMode, network: Any, rtg_scale: float, steps: int | None = None) -> Acting:
    """The `Acting` of this mode, for a network or a frozen network (`acting.frozen`); it reads the newest `steps`."""
    return _WindowActing(network, rtg_scale, steps) if mode == "window" else _RecurrentActing(network, rtg_scale)


def act_in_chunks(act: Callable[..., Any], batch: Batch, *known: Known) -> Any:
    """`act(batch, *known)`, at most `MAX_WINDOWS` windows at a time, since thousands need gigabytes of memory."""
    count = batch.shape[0]
    if count <= MAX_WINDOWS:
        return act(batch, *known)
    parts = []
    for first in range(0, count, MAX_WINDOWS):
        rows = slice(first, first + MAX_WINDOWS)
        own = (Known(*(part[rows] for part in one)) for one in known)
        parts.append(act(batch.map(lambda part, rows=rows: part[rows]), *own))  # type: ignore[misc]
    return torch.cat(parts) if isinstance(parts[0], Tensor) else _Chunks(parts)


class _Chunks:
    """Distributions over the actions of consecutive windows, as one `ActionDistribution`."""

    def __init__(self, parts: Sequence[ActionDistribution]) -> None:
        self._parts = parts

    def mode(self) -> Tensor:
        """(B, A)."""
        return torch.cat([part.mode() for part in self._parts])

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, A)."""
        return torch.cat([part.sample(generator) for part in self._parts])


class _WindowActing:
    """Runs the last K steps, or the newest few of them, through the network at every step."""

    def __init__(self, model: Any, rtg_scale: float, steps: int | None) -> None:
        self._model, self._scale, self._steps = model, rtg_scale, steps

    def empty(self, n: int) -> AgentState:
        return history.empty_state(self._model.io, n)

    def check(self, state: Any, n: int) -> AgentState:
        return history.check_state(state, self._model.io, n)

    def act(
        self,
        state: AgentState,
        observations: NDArray[np.float32],
        rtg: NDArray[np.float64],
        starts: NDArray[np.bool_],
        conditions: Conditions,
    ) -> tuple[Tensor | ActionDistribution, AgentState]:
        current = history.append(state, observations, rtg, starts)
        device = self._model.device
        read = current if self._steps is None else history.newest(current, self._steps)
        if conditions:
            return act_in_chunks(self._model.act_knowing, *conditions.place(read, self._scale, device)), current
        batch = history.to_batch(read, self._scale, device)
        longest = int(read.length.max())
        if longest < batch.shape[1]:  # steps that are padding in every window are left out
            batch = batch.map(lambda part: part[:, :longest])
        return act_in_chunks(self._model.act, batch), current

    def remember(self, state: AgentState, actions: NDArray[Any], targets: NDArray[np.float64]) -> AgentState:
        return history.with_actions(state, actions)._replace(targets=targets)


class _RecurrentActing:
    """Runs one step of the network per environment step, for episodes of any length."""

    def __init__(self, model: Any, rtg_scale: float) -> None:
        self._model, self._scale = model, rtg_scale
        self._one = self.empty(1)

    def empty(self, n: int) -> MemoryState:
        io = self._model.io
        discrete = io.action.kind == "discrete"
        return MemoryState(
            actions=np.zeros(n, dtype=np.int64) if discrete else np.zeros((n, io.action.size), dtype=np.float32),
            returns_to_go=np.zeros(n),
            timesteps=np.full(n, -1, dtype=np.int64),
            memory=self._model.initial_state(n),
            targets=np.zeros(n),
            recorded=np.zeros((n, 2)),
        )

    def check(self, state: Any, n: int) -> MemoryState:
        if not isinstance(state, MemoryState):
            raise ShapeError(
                f"state must be what the last predict of this recurrent agent returned, or None; got "
                f"{type(state).__name__}. After changing agent.acting, start with None."
            )
        history.require_rows(state.timesteps, n)
        for name, values, one in zip(state._fields, state, self._one, strict=True):
            found, needed = _shapes(values), [(n, *shape[1:]) for shape in _shapes(one)]
            if found != needed or (name == "memory" and type(values) is not type(one)):
                has, needs = (", ".join(map(str, shapes)) for shapes in (found, needed))
                raise ShapeError(f"state.{name} has shape {has}, this agent needs {needs}.")
        return state

    def act(
        self,
        state: MemoryState,
        observations: NDArray[np.float32],
        rtg: NDArray[np.float64],
        starts: NDArray[np.bool_],
        conditions: Conditions,
    ) -> tuple[Tensor, MemoryState]:
        device = self._model.device
        memory = reset_rows(state.memory, torch.from_numpy(starts).to(device)) if starts.any() else state.memory
        timesteps = np.where(starts, 0, state.timesteps + 1)
        scaled = (rtg / self._scale).astype(np.float32)
        now = (torch.from_numpy(values).to(device) for values in (scaled, observations, state.actions, timesteps))
        output, memory = self._model.step(memory, *now)
        return output, MemoryState(state.actions, rtg, timesteps, memory, state.targets, state.recorded)

    def remember(self, state: MemoryState, actions: NDArray[Any], targets: NDArray[np.float64]) -> MemoryState:
        return state._replace(actions=actions.astype(state.actions.dtype, copy=False), targets=targets)


def _shapes(field: Any) -> list[tuple[int, ...]]:
    """The shape of an array, or of each tensor of a network's memory."""
    return [tuple(np.shape(part)) for part in (field if isinstance(field, tuple) else (field,))]
