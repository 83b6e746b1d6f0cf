"""The forward passes used in acting, as modules from tensors to tensors, with random inputs to compare runtimes.

| pass | inputs | outputs |
|---|---|---|
| window | a `Batch` of K steps | actions |
| masked | a `Batch` and `Known` observations of later steps | actions |
| step | return-to-go, observation, last action, timestep, and the network's state | actions and the new state |
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from agentzoo.nn.base import ActingMode, SequenceModel
from agentzoo.nn.masked_model import Known, MaskedModel
from agentzoo.nn.recurrent import RecurrentModel
from agentzoo.types import Batch

WINDOW = ("observations", "actions", "returns_to_go", "timesteps", "valid")
KNOWN = ("known_observations", "known_shown")
STEP = ("returns_to_go", "observations", "previous_actions", "timesteps")


class Pass(nn.Module):
    """One way to run a network. Every input and output has a leading axis of windows or environments."""

    name: str
    model: SequenceModel
    steps: int  # of the longest window that it takes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ("action",)

    @abstractmethod
    def sample(self, count: int, seed: int) -> tuple[Tensor, ...]:
        """Random inputs like those of acting, for `count` windows or environments."""


class WindowPass(Pass):
    """`act` on windows of K steps, padded on the right; or of fewer, `steps`."""

    name, inputs = "window", WINDOW

    def __init__(self, model: SequenceModel, steps: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.steps = steps or model.io.context

    def forward(self, *parts: Tensor) -> Tensor:
        """The tensors of a `Batch` -> (B, A) actions in env units, or logits."""
        return self.model.act_deterministic(Batch(*parts))

    def sample(self, count: int, seed: int) -> tuple[Tensor, ...]:
        """Windows of lengths 1 to `steps` in turn."""
        batch = random_windows(self.model, count, seed, self.steps)
        return tuple(getattr(batch, name) for name in WINDOW)


class MaskedPass(Pass):
    """`act_knowing` on windows of K steps; half of them show observations of later steps."""

    name, inputs = "masked", (*WINDOW, *KNOWN)
    model: MaskedModel

    def __init__(self, model: MaskedModel) -> None:
        super().__init__()
        self.model = model
        self.steps = model.io.context

    def forward(self, *parts: Tensor) -> Tensor:
        """The tensors of a `Batch` and of `Known` -> (B, A) actions in env units, or logits."""
        return self.model.act_knowing(Batch(*parts[: len(WINDOW)]), Known(*parts[len(WINDOW) :]))

    def sample(self, count: int, seed: int) -> tuple[Tensor, ...]:
        """Windows of lengths 1 to K in turn; every other one shows the observation of the last step."""
        batch, generator = random_windows(self.model, count, seed), torch.Generator().manual_seed(seed)
        noise = torch.randn(batch.observations.shape, generator=generator)
        shown = torch.zeros_like(batch.valid)
        shown[::2, -1] = True
        known = (self.model.obs_mean + self.model.obs_std * noise) * shown.unsqueeze(-1)
        return (*(getattr(batch, name) for name in WINDOW), known, shown)


class StepPass(Pass):
    """`step` of a recurrent network."""

    name, steps = "step", 1
    model: Any  # a RecurrentModel

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        state = model.initial_state(1)
        self.inputs = (*STEP, *(f"state_{name}" for name in state._fields))
        self.outputs = ("action", *(f"new_{name}" for name in state._fields))
        self._state = type(state)

    def forward(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Return-to-go (N,), observations (N, S), last actions, timesteps (N,) and the state -> actions and state."""
        rtg, obs, action, timestep, *state = parts
        actions, after = self.model.step(self._state(*state), rtg, obs, action, timestep)
        return (actions, *after)

    def sample(self, count: int, seed: int) -> tuple[Tensor, ...]:
        """Environments after 0, 1, ... steps of an episode, with states computed by the network."""
        batch = random_windows(self.model, count, seed)
        state = self.model.initial_state(count)
        lengths = batch.valid.sum(dim=1)
        with torch.no_grad():
            for t in range(int(lengths.max()) - 1):
                running = lengths > t + 1
                _, after = self.model.step(state, *self._inputs_at(batch, t))
                pairs = zip(after, state, strict=True)
                state = self._state(*(torch.where(_like(running, new), new, old) for new, old in pairs))
        return (*self._inputs_at(batch, lengths - 1), *state)

    def _inputs_at(self, batch: Batch, step: Tensor | int) -> tuple[Tensor, ...]:
        """The inputs of `step` at this step of each window."""
        rows = torch.arange(len(batch.valid))
        at = torch.as_tensor(step).expand(len(rows))
        before = batch.actions[rows, (at - 1).clamp(min=0)]
        return batch.returns_to_go[rows, at], batch.observations[rows, at], before, batch.timesteps[rows, at]


def pass_of(model: SequenceModel, mode: ActingMode, steps: int | None = None) -> Pass:
    """The pass that an agent of `model` needs to act in this mode; a window pass has `steps` steps, K by default."""
    if mode == "recurrent" and isinstance(model, RecurrentModel):
        return StepPass(model)
    return MaskedPass(model) if isinstance(model, MaskedModel) else WindowPass(model, steps)


def random_windows(model: SequenceModel, count: int, seed: int, steps: int | None = None) -> Batch:
    """Windows of lengths 1 to `steps` (K by default) in turn, in raw units and at random times, padded on the right."""
    io, rng = model.io, torch.Generator().manual_seed(seed)
    k, spec = steps or io.context, model.io.action
    lengths = torch.arange(count) % k + 1
    valid = torch.arange(k)[None] < lengths[:, None]
    if spec.kind == "discrete":
        actions = torch.randint(spec.size, (count, k), generator=rng) * valid
    else:
        encoded = torch.rand(count, k, spec.size, generator=rng) * 2 - 1
        actions = model.decode_actions(encoded) * valid[..., None]
    starts = torch.randint(model.config.max_ep_len, (count, 1), generator=rng)
    if io.observation.image is not None:
        pixels = torch.randint(256, (count, k, *io.observation.row), generator=rng, dtype=torch.uint8)
        observations = pixels * valid[..., None, None, None]
    else:
        noise = torch.randn(count, k, io.observation.size, generator=rng)
        observations = (model.obs_mean + model.obs_std * noise) * valid[..., None]
    return Batch(
        observations=observations,
        actions=actions,
        returns_to_go=torch.rand(count, k, generator=rng) * valid,
        timesteps=(starts + torch.arange(k)) * valid,
        valid=valid,
    )


def _like(mask: Tensor, values: Tensor) -> Tensor:
    return mask.view(-1, *(1,) * (values.ndim - 1))
