"""Infer hidden parts of a window with a masked agent: its past, its future, actions between two observations.

One forward pass gives the answer. `agentzoo.masked.histories` samples complete pasts and futures step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from agentzoo.acting.observing import as_numbers, is_count
from agentzoo.acting.output import explained_weights, random_source
from agentzoo.config import AgentConfig
from agentzoo.errors import ConfigError, ObservationError, ShapeError
from agentzoo.masked.question import Mask, Window, fitting, read_window
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.masked_model import require_masked
from agentzoo.nn.masking import Masking, StepTask, masking_at
from agentzoo.types import Batch


class HasNetwork(Protocol):
    """The parts of `Agent` that inference needs."""

    config: AgentConfig

    @property
    def model(self) -> SequenceModel:
        """The network."""


@dataclass(frozen=True)
class Answer:
    """The prediction of a masked agent for every step of N windows, shown steps included.

    observations: (N, K, ...) in the environment's units, a dict of arrays for a Dict space; probabilities if the
        observation's parts are one-hot. actions: (N, K, A) in the environment's units, or probabilities if Discrete.
        Both have no leading N if the question had none.
    window: the question; windows always have one.
    """

    observations: Any
    actions: NDArray[Any]
    window: Window
    agent: HasNetwork

    def most_likely(self) -> Window:
        """The windows with all hidden parts filled in by the most likely choice or the predicted number."""
        return _filled(self, None)

    def sample(self, seed: int | np.random.Generator = 0) -> Window:
        """The windows with all hidden parts filled in; each choice is drawn independently from its probabilities."""
        return _filled(self, random_source(seed))


def infer(
    agent: HasNetwork,
    *,
    observations: Any = None,
    actions: Any = None,
    returns: Any = None,
    mask: Mapping[str, Any] | None = None,
    task: StepTask | None = None,
    step: int | None = None,
    timestep: int | None = None,
    window: Window | None = None,
) -> Answer:
    """Predict every part of a window from the parts that are shown.

    Args:
        agent: an agent of a masked family.
        observations: (K, ...) or (N, K, ...), a dict of arrays for a Dict space, K at most the agent's context. A step
            with NaN is unknown; None: all steps are unknown.
        actions: (K, A) or (N, K, A); (K,) or (N, K) for Discrete, where `start - 1` (-1 by default) is unknown. None:
            all steps are unknown.
        returns: the return-to-go of the first step, one number or (N,), in raw units. None: unknown.
        mask: False hides a known part: "observations" and "actions" (K,) or (N, K) bool, "returns" a bool.
        task, step: show what this task shows at this step, a number from 0: "past", "future", "bc", "rc", "goal",
            "waypoint", "forward" or "inverse". Not together with `mask`.
        timestep: the environment step of the window's first step, 0 by default.
        window: replaces observations, actions, returns and timestep (see `question.read_window`).

    Raises:
        ConfigError: the network is not masked; one of `task` and `step` without the other; `task` with `mask`, at a
            step that it does not have, or "rc" without a return; `window` together with arguments it replaces.
            ShapeError: other shapes, a `timestep` below 0, no argument that sets the number of steps, a `mask` that is
            no dict, or a `window` that is no `Window` or not one for this agent. UnknownNameError: no such task.
            ObservationError: infinity in the question, or NaN or infinity in the answer.
    """
    require_masked(agent.model, "asked about a window")
    single = False
    if window is None:
        window, single = read_window(agent.config, observations, actions, returns, 0 if timestep is None else timestep)
    else:
        parts = {"observations": observations, "actions": actions, "returns": returns, "timestep": timestep}
        given = [name for name, value in parts.items() if value is not None]
        if given:
            raise ConfigError(f"window= already holds {', '.join(given)}: pass either the window or these.")
        window = _checked_window(window, agent.config)
    if task is not None:
        if step is None or mask is not None:
            raise ConfigError("task= needs step= (0, 1, ...) and defines the mask, so omit mask=.")
        if not is_count(step):
            raise ConfigError(f"step must be 0, 1, ...; got {step!r}.")
        if not isinstance(task, str):
            raise ConfigError(f"task is a name, such as 'past'; got {task!r}.")
        window = replace(window, mask=_both(window.mask, _task_mask(window, task, step)))
    elif step is not None:
        raise ConfigError("step= is the step of a task; name one with task=, or omit step=.")
    elif mask is not None:
        window = replace(window, mask=_both(window.mask, _own_mask(window, mask)))
    return ask(agent, window, single)


def _checked_window(window: Any, config: AgentConfig) -> Window:
    if not isinstance(window, Window):
        raise ShapeError(
            f"window= is a Window, as `read_window` makes it, got {type(window).__name__}; pass arrays as "
            "observations= and actions=."
        )
    return fitting(window, config)


def ask(agent: HasNetwork, window: Window, single: bool = False) -> Answer:
    """`infer` for a `Window`.

    Raises:
        ShapeError: the window is not for this agent. Otherwise as `infer`.
    """
    model = require_masked(agent.model, "asked about a window")
    window = fitting(window, agent.config)
    if model.training:
        model.eval()  # as `predict` does
    shown = [torch.from_numpy(values) for values in (window.mask.observations, window.mask.actions)]
    returns = torch.zeros_like(shown[0])
    returns[:, 0] = torch.from_numpy(window.mask.returns)
    nothing = torch.zeros_like(shown[0])
    device = model.obs_mean.device
    with torch.inference_mode(), explained_weights(model):
        masking = Masking(*(m.to(device) for m in (*shown, returns, nothing, nothing)))
        actions, parts = model.answer(_batch(agent, window), masking)
    if not all(bool(torch.isfinite(part).all()) for part in (actions, *parts)):
        raise ObservationError(
            f"{agent.config.agent_id} answers with NaN or infinity: a shown number is too large for the network."
        )
    steps = window.actions.shape[1]
    spec, action = agent.config.io.observation, agent.config.io.action
    if action.low is not None:  # as `predict` clips them
        actions = actions.clamp(*(torch.tensor(bound, device=device) for bound in (action.low, action.high)))
    shaped = [
        part[:, :steps].cpu().numpy().reshape(len(part), steps, *shape)
        for part, shape in zip(parts, spec.shapes, strict=True)
    ]
    if single:
        shaped, actions = [part[0] for part in shaped], actions[0]
    where = (slice(steps),) if single else (slice(None), slice(steps))
    found = dict(zip(spec.keys, shaped, strict=True)) if spec.keys is not None else shaped[0]
    return Answer(found, actions[where].cpu().numpy(), window, agent)


def _task_mask(window: Window, task: StepTask, step: int) -> Mask:
    count, steps = window.mask.actions.shape
    found = masking_at(task, torch.full((count,), step), steps)
    if found.returns.any() and not window.mask.returns.any():
        raise ConfigError(f"task {task!r} shows the first step's return-to-go: pass returns=, or ask task 'bc'.")
    return Mask(found.observations.numpy(), found.actions.numpy(), found.returns[:, 0].numpy())


def _own_mask(window: Window, mask: Mapping[str, Any]) -> Mask:
    if not isinstance(mask, Mapping):
        raise ShapeError(f"a mask is a dict with {', '.join(Mask._fields)}, got {type(mask).__name__}.")
    if unknown := [name for name in mask if name not in Mask._fields]:
        raise ShapeError(f"a mask has {', '.join(Mask._fields)}; got {unknown}.")
    for name, shown in mask.items():
        if not np.isin(as_numbers(shown, f"mask[{name!r}]"), (0, 1)).all():
            raise ShapeError(f"mask[{name!r}] holds True where a part is shown and False where it is hidden.")
    full = {"observations": window.mask.observations, "actions": window.mask.actions, "returns": window.mask.returns}
    try:
        return Mask(**{k: np.broadcast_to(np.asarray(mask.get(k, True), bool), v.shape) for k, v in full.items()})
    except ValueError as error:
        shape = window.mask.actions.shape
        raise ShapeError(
            f"a mask is (K,) or (N, K) with (N, K) = {shape}, for returns one bool or (N,): {error}"
        ) from None


def _both(a: Mask, b: Mask) -> Mask:
    return Mask(*(x & y for x, y in zip(a, b, strict=True)))


def _batch(agent: HasNetwork, window: Window) -> Batch:
    count, steps = window.mask.actions.shape
    rtg = np.zeros((count, steps), dtype=np.float32)
    rtg[:, 0] = window.returns / agent.config.rtg_scale
    timesteps = np.broadcast_to(window.timestep + np.arange(steps), (count, steps)).copy()
    return Batch(
        observations=torch.from_numpy(window.observations),
        actions=torch.from_numpy(window.actions),
        returns_to_go=torch.from_numpy(rtg),
        timesteps=torch.from_numpy(timesteps),
        valid=torch.ones(count, steps, dtype=torch.bool),
    ).to(agent.model.obs_mean.device)


def _filled(answer: Answer, rng: np.random.Generator | None) -> Window:
    window, agent = answer.window, answer.agent
    spec = agent.config.io.observation
    shape = window.mask.actions.shape
    parts = [answer.observations[key] for key in spec.keys] if spec.keys is not None else [answer.observations]
    flat = [np.asarray(part).reshape(*shape, -1) for part in parts]
    actions = np.asarray(answer.actions).reshape(*shape, -1)
    if agent.config.io.action.kind == "discrete":
        actions = _choose(actions, rng)
    if getattr(agent.model.config, "onehot_observations", False):
        flat = [np.eye(part.shape[-1], dtype=np.float32)[_choose(part, rng)] for part in flat]
    seen, acted = window.mask.observations[..., None], window.mask.actions
    kept = acted.reshape(acted.shape + (1,) * (actions.ndim - 2))
    return replace(
        window,
        observations=np.where(seen, window.observations, np.concatenate(flat, axis=-1)),
        actions=np.where(kept, window.actions, actions),
    )


def _choose(probabilities: NDArray[Any], rng: np.random.Generator | None) -> NDArray[np.int64]:
    """(..., C) -> (...): the most likely choice, or a random one with `rng`."""
    if rng is None:
        return np.asarray(probabilities.argmax(axis=-1), dtype=np.int64)
    noise = rng.gumbel(size=probabilities.shape)
    return np.asarray((np.log(np.maximum(probabilities, 1e-30)) + noise).argmax(axis=-1), dtype=np.int64)
