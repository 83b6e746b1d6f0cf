"""Questions about windows: the known values, and a mask of the shown parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.acting.observing import as_numbers, is_count
from agentzoo.config import AgentConfig
from agentzoo.data.spaces import flatten_observations
from agentzoo.errors import ObservationError, ShapeError
from agentzoo.text import counted
from agentzoo.types import MAX_TARGET

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]


class Mask(NamedTuple):
    """True where a part is shown: observations and actions (N, K), and the first step's return-to-go (N,)."""

    observations: Bools
    actions: Bools
    returns: Bools


@dataclass(frozen=True)
class Window:
    """N windows of K steps for the network. Hidden parts may hold any number.

    observations: (N, K, S). actions: (N, K, A), or (N, K) counted from 0. returns: (N,) raw units, of the first step.
    timestep: environment step of the first step.
    """

    observations: Floats
    actions: NDArray[Any]
    returns: NDArray[np.float64]
    mask: Mask
    timestep: int = 0

    def take(self, rows: NDArray[Any]) -> Window:
        """The windows at `rows`, a mask or indices, as copies; an index may repeat."""
        return Window(
            observations=self.observations[rows],
            actions=self.actions[rows],
            returns=self.returns[rows],
            mask=Mask(*(values[rows] for values in self.mask)),
            timestep=self.timestep,
        )


def read_window(
    config: AgentConfig, observations: Any = None, actions: Any = None, returns: Any = None, timestep: int = 0
) -> tuple[Window, bool]:
    """The arguments of `infer` as a `Window` that shows all known parts, and whether there was no leading N.

    Raises:
        ShapeError: see `infer`.
    """
    io = config.io
    _require_timestep(timestep)
    obs = _read_observations(config, observations)
    act = _read_actions(config, actions)
    found = next((part for part in (obs, act) if part is not None), None)
    if found is None:
        raise ShapeError("a question needs observations or actions, which set the number of steps of the window.")
    (count, steps), single = found[0].shape[:2], found[2]
    if steps > io.context:
        raise ShapeError(f"the window has {steps} steps; {config.agent_id} reads at most {io.context}.")
    if obs is not None and act is not None and obs[0].shape[:2] != act[0].shape[:2]:
        raise ShapeError(f"observations are {obs[0].shape[:2]} (N, K), actions {act[0].shape[:2]}.")
    nothing = np.zeros((count, steps), dtype=bool)
    discrete = io.action.kind == "discrete"
    inner = () if discrete else (io.action.size,)
    empty = np.zeros((count, steps, *inner), np.int64 if discrete else np.float32)
    rtg = _read_returns(returns, count)
    known = np.isfinite(rtg)
    window = Window(
        observations=np.zeros((count, steps, io.observation.size), np.float32) if obs is None else obs[0],
        actions=empty if act is None else act[0],
        returns=np.where(known, rtg, 0.0),
        mask=Mask(nothing if obs is None else obs[1], nothing if act is None else act[1], known),
        timestep=timestep,
    )
    return window, single


def fitting(window: Window, config: AgentConfig) -> Window:
    """The window as a network of this config reads it: hidden choices, which may hold any number, are 0.

    Raises:
        ShapeError: parts that are no numbers or of other sizes, no step or too many, no window, no step of an
            environment, or a shown choice that does not exist. ObservationError: NaN or infinity in a shown part.
    """
    io, discrete = config.io, config.io.action.kind == "discrete"
    _require_timestep(window.timestep)
    if not (isinstance(window.mask, tuple) and len(window.mask) == len(Mask._fields)):
        raise ShapeError(f"window.mask is a Mask of {', '.join(Mask._fields)}, got {type(window.mask).__name__}.")
    masks = dict(zip(("mask.observations", "mask.actions", "mask.returns"), window.mask, strict=True))
    given = {"observations": window.observations, "actions": window.actions, "returns": window.returns, **masks}
    parts = {name: np.ascontiguousarray(as_numbers(part, f"window.{name}")) for name, part in given.items()}
    lead = parts["observations"].shape[:2]
    shapes = {
        "observations": (*lead, io.observation.size),
        "actions": lead if discrete else (*lead, io.action.size),
        "returns": lead[:1],
        "mask.observations": lead,
        "mask.actions": lead,
        "mask.returns": lead[:1],
    }
    for name, shape in shapes.items():
        if parts[name].shape != shape:
            raise ShapeError(f"window.{name} has shape {parts[name].shape}; {config.agent_id} expects {shape}.")
    count, steps = lead
    if not (count and 0 < steps <= io.context):
        raise ShapeError(
            f"window= holds {counted(count, 'window')} of {counted(steps, 'step')}; {config.agent_id} reads one or "
            f"more of 1 to {counted(io.context, 'step')}."
        )
    mask = Mask(*(parts[name].astype(bool) for name in masks))
    for name, shown in zip(("observations", "actions", "returns"), mask, strict=True):
        if not np.isfinite(parts[name][shown]).all():
            raise ObservationError(f"window.{name} hold NaN or infinity where the mask shows them.")
    actions = parts["actions"]
    if discrete:
        actions = np.where(mask.actions, actions, 0)
        wrong = (actions < 0) | (actions >= io.action.size) | (actions != np.round(actions))
        if wrong.any():
            last, bad = io.action.size - 1, actions[wrong][0]
            raise ShapeError(f"window.actions are counted from 0, here to {last}; got {bad}.")
    return Window(
        observations=_float32(parts["observations"]),
        actions=actions.astype(np.int64) if discrete else _float32(actions),
        returns=parts["returns"].astype(np.float64),
        mask=mask,
        timestep=int(window.timestep),
    )


def _require_timestep(timestep: Any) -> None:
    if not is_count(timestep):
        raise ShapeError(f"timestep is the environment step of the window's first step, 0, 1, ...; got {timestep!r}.")


def _read_returns(values: Any, count: int) -> NDArray[np.float64]:
    """(N,), NaN where unknown."""
    if values is None:
        return np.full(count, np.nan)
    array = as_numbers(values, "returns").astype(np.float64)
    if array.shape not in ((), (count,)):
        raise ShapeError(f"returns have shape {array.shape}; expected one number or ({count},), one per window.")
    if (np.abs(array) > MAX_TARGET).any():  # NaN is unknown
        raise ShapeError(f"a return lies within {MAX_TARGET:g} of 0, got {array.flat[np.nanargmax(np.abs(array))]:g}.")
    return np.broadcast_to(array, (count,))


def _read_observations(config: AgentConfig, values: Any) -> tuple[Floats, Bools, bool] | None:
    """(N, K, S) with zeros where unknown, (N, K) where known, and whether there was no leading N."""
    spec, name = config.io.observation, config.agent_id
    if values is None:
        return None
    if (spec.keys is not None) != isinstance(values, Mapping):
        want = f"a dict with {', '.join(spec.keys)}" if spec.keys is not None else "an array"
        raise ShapeError(f"{name} expects {want} of observations, got {type(values).__name__}.")
    given = values if spec.keys is not None else {"": values}
    missing = [key for key in spec.keys or () if key not in given]
    if missing:
        raise ShapeError(f"{name} needs {missing} in the observations; they hold {sorted(given)}.")
    parts = {
        key: _float32(as_numbers(given[key], f"observations[{key!r}]" if key else "observations"))
        for key in spec.keys or ("",)
    }
    leads: dict[str, tuple[int, ...]] = {}
    for key, shape in zip(spec.keys or ("",), spec.shapes, strict=True):
        leading = parts[key].ndim - len(shape)
        if leading not in (1, 2) or parts[key].shape[leading:] != shape:
            inner, named = ", ".join(map(str, shape)), f" {key!r}" if key else ""
            raise ShapeError(
                f"observations{named} have shape {parts[key].shape}; {name} expects (K, {inner}) or (N, K, {inner})."
            )
        leads[key] = parts[key].shape[:leading]
    if len(set(leads.values())) > 1:
        held = ", ".join(f"{key!r} has shape {part.shape}" for key, part in parts.items())
        raise ShapeError(f"the parts of the observations disagree on the number of windows or steps: {held}.")
    count, steps = (1, *leads[key]) if leading == 1 else leads[key]
    if steps == 0:
        raise ShapeError("a window has at least one step.")
    if count == 0:
        raise ShapeError("there are 0 windows; a question needs one or more.")
    rows = {key: part.reshape(count * steps, *part.shape[leading:]) for key, part in parts.items()}
    flat = flatten_observations(rows if spec.keys is not None else rows[""], spec).reshape(count, steps, spec.size)
    _require_bounded(flat, "observations")
    known = np.asarray(np.isfinite(flat).all(axis=-1))
    return np.where(known[..., None], flat, np.float32(0.0)), known, leading == 1


def _read_actions(config: AgentConfig, values: Any) -> tuple[NDArray[Any], Bools, bool] | None:
    spec, name = config.io.action, config.agent_id
    if values is None:
        return None
    array = as_numbers(values, "actions")
    discrete = spec.kind == "discrete"
    inner = () if discrete else (spec.size,)
    leading = array.ndim - len(inner)
    if leading not in (1, 2) or array.shape[leading:] != inner or 0 in array.shape[:leading]:
        want = "(K,) or (N, K)" if discrete else f"(K, {spec.size}) or (N, K, {spec.size})"
        raise ShapeError(f"actions have shape {array.shape}; {name} expects {want}.")
    array = array[None] if leading == 1 else array
    if discrete:
        counted = array.astype(np.float64) - spec.start
        unknown = np.isnan(counted) | (counted == -1)
        known = (counted >= 0) & (counted < spec.size) & (counted == np.round(counted))
        if not (known | unknown).all():
            last, bad = spec.start + spec.size - 1, array[~(known | unknown)][0]
            raise ShapeError(
                f"actions are whole numbers from {spec.start} to {last}, or {spec.start - 1} where unknown; got {bad}."
            )
        return np.where(known, counted, 0).astype(np.int64), known, leading == 1
    array = _float32(array)
    _require_bounded(array, "actions")
    known = np.asarray(np.isfinite(array).all(axis=-1))
    return np.where(known[..., None], array, np.float32(0.0)), known, leading == 1


def _float32(values: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):  # it becomes infinity, which is refused
        return values.astype(np.float32)


def _require_bounded(values: Floats, called: str) -> None:
    """Raise ObservationError for infinity; NaN is unknown."""
    if np.isinf(values).any():
        raise ObservationError(f"{called} hold infinity, or a number beyond float32; NaN stands for what is unknown.")
