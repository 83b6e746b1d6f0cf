"""From the network's output to the actions that `predict` returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentzoo.config import AgentConfig
from agentzoo.errors import ConfigError, ObservationError
from agentzoo.nn.base import SequenceModel
from agentzoo.types import ActionDistribution, ActionSpec


class Actions:
    """Turns network output into actions of one action space, sampled or the most likely."""

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        bounds = (spec.low, spec.high)
        # (2, A) in the space's own precision: 0.1 as float32 lies outside a float64 Box that ends at 0.1
        self._bounds = None if None in bounds else np.array(bounds, dtype=spec.dtype)
        self._rng = np.random.default_rng()

    def seed(self, seed: int | None) -> None:
        """Seed the sampling."""
        self._rng = random_source(seed)

    def values(self, output: Tensor | ActionDistribution, deterministic: bool) -> NDArray[np.float32]:
        """(N, A) numbers or logits: a network's output, or the mode of a distribution or a sample from it."""
        if not isinstance(output, Tensor):
            output = output.mode() if deterministic else output.sample(self._generator())
        found: NDArray[np.float32] = output.float().cpu().numpy()
        return found

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(int(self._rng.integers(2**63)))

    def decode(self, output: NDArray[Any], deterministic: bool) -> NDArray[Any]:
        """(N, A) network output -> (N, A) actions within the Box, or (N,) choices counted from 0."""
        if self._spec.kind == "discrete":
            scores = output if deterministic else output + self._rng.gumbel(size=output.shape)  # sampling by Gumbel-max
            return np.asarray(scores.argmax(axis=1), dtype=np.int64)
        if self._bounds is None:
            return output
        low, high = self._bounds
        return output.astype(self._spec.dtype, copy=False).clip(low, high)

    def to_space(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The actions of `decode` in the environment's space: its first choice added, or in the dtype of the Box."""
        return actions + self._spec.start if self._spec.kind == "discrete" else actions.astype(self._spec.dtype)


def random_source(seed: int | np.random.Generator | None) -> np.random.Generator:
    """NumPy's generator with this seed; None: one from the operating system. ConfigError: not a seed."""
    try:
        return np.random.default_rng(seed)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"a seed is a whole number from 0 on, or None; got {seed!r}.") from error


@contextmanager
def explained_weights(model: SequenceModel) -> Iterator[None]:
    """Raise ConfigError if PyTorch cannot run the network inside because its weights are not float32."""
    try:
        yield
    except RuntimeError as error:
        dtype = model.obs_mean.dtype
        if dtype == torch.float32:
            raise
        raise ConfigError(
            f"a {model.config.family!r} network with weights of {dtype} cannot act ({error}); agent.model.float() "
            "makes them float32."
        ) from error


def require_finite(
    output: NDArray[Any], rtg: NDArray[np.float64], config: AgentConfig, targets: NDArray[np.float64]
) -> None:
    """Raise ObservationError if the network's output (N, A) holds NaN or infinity.

    `rtg` and `targets` (N,), the return-to-go and target return of each environment, are for the message.
    """
    if np.isfinite(output).all():
        return
    row, _ = np.argwhere(~np.isfinite(output))[0]
    raise ObservationError(
        f"{config.agent_id} outputs {output[row]} for environment {row}, whose return-to-go is {rtg[row]:g} in units "
        f"of {config.rtg_scale:g} (target_return is {targets[row]:g}). This number or an observation is too large for "
        "the network."
    )
