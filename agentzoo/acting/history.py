"""`AgentState`: the history that `predict` passes from call to call, one row per environment."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from agentzoo.acting.observing import as_numbers
from agentzoo.config import AgentConfig
from agentzoo.errors import ShapeError
from agentzoo.text import counted
from agentzoo.types import Batch, FloatArray, IOSpec

S = TypeVar("S", bound=tuple[Any, ...])


class AgentState(NamedTuple):
    """The last K steps of N environments, padded on the right; `length` of the K are real.

    observations: (N, K, S) float32, raw, or (N, K, C, H, W) uint8. actions: (N, K, A) float32, or (N, K) int64 counted
    from 0; the newest step holds the action taken. returns_to_go: (N, K) float64, raw units. timesteps: (N,) int64, of
    the newest step. length: (N,) int64. targets: (N,) float64, raw units, the target return at the newest step.
    `targets` minus the newest return-to-go is the sum of the episode's rewards so far. recorded: (N, 2) float64, steps
    and return of the running episode as the bound environment recorded them when the newest step began.
    """

    observations: NDArray[Any]
    actions: NDArray[Any]
    returns_to_go: NDArray[np.float64]
    timesteps: NDArray[np.int64]
    length: NDArray[np.int64]
    targets: NDArray[np.float64]
    recorded: NDArray[np.float64]

    def newest_return_to_go(self) -> NDArray[np.float64]:
        """(N,) the return-to-go of the newest step, in raw units; 0 before the first step."""
        return self.returns_to_go[np.arange(len(self.length)), np.maximum(self.length - 1, 0)]


def _shapes(io: IOSpec, n: int) -> tuple[tuple[int, ...], ...]:
    """The shape of each field of an AgentState."""
    k, discrete = io.context, io.action.kind == "discrete"
    actions = (n, k) if discrete else (n, k, io.action.size)
    return (n, k, *io.observation.row), actions, (n, k), (n,), (n,), (n,), (n, 2)


def empty_state(io: IOSpec, n: int) -> AgentState:
    """Empty histories of `n` environments."""
    observations, actions, returns_to_go, timesteps, length, targets, recorded = _shapes(io, n)
    return AgentState(
        observations=np.zeros(observations, dtype=io.observation.dtype),
        actions=np.zeros(actions, dtype=np.int64 if io.action.kind == "discrete" else np.float32),
        returns_to_go=np.zeros(returns_to_go),
        timesteps=np.full(timesteps, -1, dtype=np.int64),
        length=np.zeros(length, dtype=np.int64),
        targets=np.zeros(targets),
        recorded=np.zeros(recorded),
    )


def rows(state: S, chosen: NDArray[Any]) -> S:
    """The states of the `chosen` environments, a mask or indices over the leading axis."""
    return type(state)(*(rows(field, chosen) if isinstance(field, tuple) else field[chosen] for field in state))


def check_state(state: Any, io: IOSpec, n: int) -> AgentState:
    """`state` as an AgentState for `n` rows of this agent.

    Raises:
        ShapeError: not a state, or one with a different number of rows or of an agent with different sizes.
    """
    if not isinstance(state, tuple) or len(state) != len(AgentState._fields):
        raise ShapeError(f"state must be what the last predict returned, or None; got {type(state).__name__}.")
    found = AgentState(*state)
    require_rows(found.length, n)
    for name, values, want in zip(AgentState._fields, found, _shapes(io, n), strict=True):
        got = np.asarray(values).shape
        if got != want:
            raise ShapeError(f"state.{name} has shape {got}, this agent needs {want}.")
    return found


def require_rows(values: Any, n: int) -> None:
    """Raise ShapeError unless a field of a state that has one number for each environment has `n` of them."""
    shape = np.shape(values)
    if len(shape) != 1:
        raise ShapeError(
            "state holds no rows of environments. `agentzoo.acting.history.rows(state, [i])` is the state of "
            "environment i of a larger one."
        )
    if shape != (n,):
        raise ShapeError(
            f"state holds {counted(shape[0], 'environment')}, the observation has {n}. Pass state=None to start new "
            "episodes."
        )


def retargeted(state: S, targets: NDArray[np.float64]) -> S:
    """The history with new target returns (N,), as if they had been set from the start: every return-to-go shifts.

    This shifts all real steps of an `AgentState`, and the newest step of a `MemoryState`.
    """
    found: Any = state
    change = targets - found.targets
    if not change.any():
        return state
    if found.returns_to_go.ndim == 2:
        real = np.arange(found.returns_to_go.shape[1]) < found.length[:, None]
        change = np.where(real, change[:, None], 0.0)
    moved: S = found._replace(returns_to_go=found.returns_to_go + change, targets=targets)
    return moved


def append(
    state: AgentState, observations: NDArray[Any], returns_to_go: FloatArray, starts: NDArray[np.bool_]
) -> AgentState:
    """A new state with one more step and the same targets. Rows where `starts` is True drop all earlier steps.

    Args:
        state: is not changed.
        observations: (N, S) or (N, C, H, W). returns_to_go: (N,) raw, of this step. starts: (N,).
    """
    context = state.observations.shape[1]
    full = (state.length == context) & ~starts
    if full.all():  # the common case
        return AgentState(
            observations=np.concatenate((state.observations[:, 1:], observations[:, None]), axis=1),
            actions=np.concatenate(
                (state.actions[:, 1:], np.zeros_like(state.actions[:, :1])), axis=1
            ),  # a placeholder
            returns_to_go=np.concatenate((state.returns_to_go[:, 1:], returns_to_go[:, None]), axis=1),
            timesteps=state.timesteps + 1,
            length=state.length,
            targets=state.targets,
            recorded=state.recorded,
        )
    observations_, actions, rtg = (np.array(field) for field in state[:3])
    for values in (observations_, actions, rtg):
        if full.any():
            values[full, :-1] = values[full, 1:]
        if starts.any():
            values[starts] = 0
    length = np.where(starts, 1, np.minimum(state.length + 1, context))
    every, newest = np.arange(len(length)), length - 1
    observations_[every, newest] = observations
    rtg[every, newest] = returns_to_go
    actions[every, newest] = 0  # placeholder: no network may read it
    timesteps = np.where(starts, 0, state.timesteps + 1)
    return AgentState(observations_, actions, rtg, timesteps, length, state.targets, state.recorded)


def newest(state: AgentState, steps: int) -> AgentState:
    """The histories, cut to their last `steps` steps."""
    surplus = np.maximum(state.length - steps, 0)
    if not surplus.any():
        return state
    source = np.arange(state.observations.shape[1]) + surplus[:, None]  # (N, K)
    kept = source < state.length[:, None]
    every, source = np.arange(len(surplus))[:, None], np.where(kept, source, 0)

    def move(values: NDArray[Any]) -> NDArray[Any]:
        mask = kept.reshape(kept.shape + (1,) * (values.ndim - 2))
        return np.where(mask, values[every, source], values.dtype.type(0))

    return state._replace(
        observations=move(state.observations),
        actions=move(state.actions),
        returns_to_go=move(state.returns_to_go),
        length=state.length - surplus,
    )


def with_actions(state: AgentState, actions: NDArray[Any]) -> AgentState:
    """Write the actions of the newest step into `state`, and return it."""
    state.actions[np.arange(len(state.length)), state.length - 1] = actions
    return state


def to_batch(state: AgentState, rtg_scale: float, device: torch.device) -> Batch:
    """The states as a batch of windows for the network."""
    context = state.observations.shape[1]
    offsets = np.arange(context)
    valid = offsets < state.length[:, None]
    timesteps = ((state.timesteps - state.length + 1)[:, None] + offsets) * valid
    batch = Batch(
        observations=torch.from_numpy(state.observations),
        actions=torch.from_numpy(state.actions),
        returns_to_go=torch.from_numpy((state.returns_to_go / rtg_scale).astype(np.float32)),
        timesteps=torch.from_numpy(timesteps),
        valid=torch.from_numpy(valid),
    )
    return batch if device.type == "cpu" else batch.to(device)


def reads_past(config: AgentConfig) -> bool:
    """Whether actions depend on more than the newest observation."""
    return config.io.context > 1 or config.model.inputs() != ("observation",)


def read_starts(episode_start: Any, n: int) -> NDArray[np.bool_]:
    """(N,) whether each row begins an episode; None means no row does. A copy, since SB3 reuses its array.

    Raises:
        ShapeError: a different number of entries, or neither booleans nor numbers.
    """
    if episode_start is None:
        return np.zeros(n, dtype=bool)
    given = as_numbers(episode_start, "episode_start").astype(bool).reshape(-1)  # a copy
    if len(given) != n:
        raise ShapeError(f"episode_start has {len(given)} values, the observation has {counted(n, 'row')}.")
    return given
