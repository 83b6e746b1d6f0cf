"""Frozen networks: a network's forward pass in ONNX Runtime, compared with PyTorch before it acts.

The exported file is cached in the user's cache folder under a hash of the weights, the config and the package versions.
Later changes of the PyTorch network do not change the frozen one.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from agentzoo.acting.onnx_export import EXAMPLES, OPSET, open_session, require, to_onnx
from agentzoo.acting.passes import WINDOW, Pass, StepPass, pass_of
from agentzoo.errors import RuntimeMismatchError, StorageError, warn
from agentzoo.nn.base import ActingMode, SequenceModel
from agentzoo.nn.masked_model import Known
from agentzoo.store.cache import forget_unused, mark_used, private_folder
from agentzoo.store.files import write_atomic
from agentzoo.store.tensors import fingerprint
from agentzoo.types import Batch

TOLERANCE = 1e-4  # largest difference to PyTorch, in units of the largest expected number where that is above 1
PACKAGES = ("agentzoo", "onnx", "onnxruntime", "onnxscript", "torch")


class FrozenNetwork:
    """An exported pass and its sessions. A copy or a pickle opens new ones."""

    def __init__(self, model: SequenceModel, run: Pass, data: bytes) -> None:
        self.io, self.device = model.io, torch.device("cpu")
        self._names, self.data = run.inputs, data
        self._sessions: dict[int, Any] = {}  # number of threads -> session
        self._read = {entry.name for entry in self._session().get_inputs()}

    def _session(self) -> Any:
        """The session with PyTorch's current number of threads: one for a few environments."""
        threads = torch.get_num_threads()
        if threads not in self._sessions:
            self._sessions[threads] = open_session(self.data)
        return self._sessions[threads]

    def run(self, *parts: Tensor) -> list[Tensor]:
        """The outputs of the pass for inputs in the order of `Pass.inputs`."""
        fed = {name: value.numpy() for name, value in zip(self._names, parts, strict=True) if name in self._read}
        return [torch.from_numpy(value) for value in self._session().run(None, fed)]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sessions": {}}


class FrozenWindow(FrozenNetwork):
    """Acts from windows of up to K steps, or of the fewer steps of its pass."""

    def __init__(self, model: SequenceModel, run: Pass, data: bytes) -> None:
        super().__init__(model, run, data)
        self.steps = run.steps

    def act(self, batch: Batch) -> Tensor:
        """As `SequenceModel.act`."""
        batch = self._whole(batch)
        parts = [getattr(batch, name) for name in WINDOW]
        if len(self._names) > len(WINDOW):
            parts += [torch.zeros_like(batch.observations), torch.zeros_like(batch.valid)]
        return self.run(*parts)[0]

    def act_knowing(self, batch: Batch, known: Known) -> Tensor:
        """As `MaskedModel.act_knowing`, for windows of K steps."""
        return self.run(*(getattr(batch, name) for name in WINDOW), *known)[0]

    def _whole(self, batch: Batch) -> Batch:
        """The same windows with padding up to the steps of the pass."""
        missing = self.steps - batch.shape[1]
        if not missing:
            return batch
        return batch.map(lambda part: pad(part, (0, 0) * (part.ndim - 2) + (0, missing)))


class FrozenStep(FrozenNetwork):
    """Acts step by step from the state of a recurrent network."""

    def __init__(self, model: Any, run: Pass, data: bytes) -> None:
        super().__init__(model, run, data)
        self._zeros = model.initial_state(1)

    def initial_state(self, n: int) -> Any:
        """As `RecurrentModel.initial_state`."""
        return type(self._zeros)(*(part.expand(n, *part.shape[1:]).clone() for part in self._zeros))

    def step(self, state: Any, rtg: Tensor, obs: Tensor, previous_action: Tensor, timestep: Tensor) -> Any:
        """As `RecurrentModel.step`."""
        actions, *after = self.run(rtg, obs, previous_action, timestep, *state)
        return actions, type(self._zeros)(*after)


def freeze(model: SequenceModel, mode: ActingMode, name: str, steps: int | None = None) -> FrozenNetwork:
    """The pass of `model` for this mode in ONNX Runtime, checked against PyTorch.

    Args:
        name: the agent's name, for messages.
        steps: the longest windows that it will read, for window acting; K by default. A masked network keeps K.

    Raises:
        ConfigError: a package is missing, or the network cannot be exported. RuntimeMismatchError: the two runtimes
            disagree.
    """
    require("onnxruntime")
    run = pass_of(copy.deepcopy(model).eval().cpu(), mode, steps).eval()
    file = _cached_file(run)
    kind = FrozenStep if isinstance(run, StepPass) else FrozenWindow
    if file is not None and file.is_file():
        try:
            frozen = kind(run.model, run, file.read_bytes())
            compare(run, frozen, name)
            mark_used(file)
            return frozen
        except Exception:  # a broken file, or one of a wrapped or hooked network: export again
            file.unlink(missing_ok=True)
    print(f"agentzoo: exporting {name} for ONNX Runtime{f' into {file}, once' if file else ''}", file=sys.stderr)
    data = to_onnx(run, run.sample(EXAMPLES, 0), run.inputs, run.outputs, name)
    frozen = kind(run.model, run, data)
    compare(run, frozen, name)
    if file is not None:
        write_atomic(file, data)
        forget_unused(file.parent)
    return frozen


def compare(run: Pass, frozen: FrozenNetwork, name: str) -> None:
    """Compare the runtimes on random inputs of several batch sizes and all lengths.

    Raises:
        RuntimeMismatchError: a difference exceeds 1e-4, or 1e-4 of the largest expected number if that is above 1.
    """
    for count in (1, 3, 2 * frozen.io.context + 3):
        parts = run.sample(count, seed=count)
        with torch.inference_mode():
            expected = run(*parts)
        found = frozen.run(*parts)
        for wanted, got in zip(expected if isinstance(expected, tuple) else (expected,), found, strict=True):
            difference, most = float((got - wanted).abs().max()), TOLERANCE * max(1.0, float(wanted.abs().max()))
            if not difference <= most:
                raise RuntimeMismatchError(
                    f"{name} differs by {difference:g} between ONNX Runtime and PyTorch ({run.name} pass, {count} "
                    f"rows); at most {most:g} is accepted. Act with PyTorch: runtime='pytorch'."
                )


def _cached_file(run: Pass) -> Path | None:
    """The path of this network's exported file; None if the cache folder cannot be trusted."""
    model: Any = run.model
    parts = [
        run.name,
        f"{run.steps} steps",
        fingerprint(model),
        model.config.to_json(),
        model.io.to_json(),
        f"opset {OPSET}",
    ]
    parts += [f"{package} {_version(package)}" for package in PACKAGES]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    try:
        return private_folder("onnx") / f"{key[:32]}.onnx"
    except StorageError as error:
        warn(f"the exported network is not cached: {error}", 2)
        return None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
