"""An agent's network as an ONNX file: a window of K steps in, an action out, compared with PyTorch before it is kept.

What stays with the caller is the history: raw observations, its own actions, the return-to-go divided by `rtg_scale`,
timesteps from 0, and `valid`, windows being padded on the right with zeros. The file's metadata says K and the scale.
"""

from __future__ import annotations

import copy
import io
import logging
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.attention import causal_bias
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.masked_model import MaskedModel
from agentzoo.store.files import write_atomic
from agentzoo.types import Batch, Config, IOSpec

INPUTS = ("observations", "actions", "returns_to_go", "timesteps", "valid")
OPSET = 18
TOLERANCE = 1e-4  # of the action's range, or of the largest logit


class ExportReport(Config):
    """What was written and how near it is."""

    path: str
    bytes: int
    compared: int  # windows, of every length from 1 to K
    largest_difference: float  # to PyTorch, in the action's own units


class _OneAction(nn.Module):
    """`act` without what only Python can decide: tensors in, the newest step's action (clipped) or logits out."""

    def __init__(self, model: SequenceModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, *parts: Tensor) -> Tensor:
        batch = Batch(*parts)
        encoded = self.model(batch)
        if encoded.ndim == 3:
            newest = batch.valid.sum(dim=1, keepdim=True) - 1  # (B, 1)
            encoded = encoded.gather(1, newest.unsqueeze(-1).expand(-1, -1, encoded.shape[-1])).squeeze(1)
        spec = self.model.io.action
        if spec.kind == "discrete":
            return torch.as_tensor(encoded)
        actions = self.model.decode_actions(encoded)
        if spec.low is None or spec.high is None:
            return actions
        return actions.clamp(torch.tensor(spec.low), torch.tensor(spec.high))


def export_onnx(agent: Agent, path: Path) -> ExportReport:
    """Write the file, if onnxruntime gives what PyTorch gives.

    Raises:
        ConfigError: onnx or onnxruntime is missing, or the family cannot be exported. CheckpointError: the two
            disagree; nothing is written.
    """
    onnx = _need("onnx")
    runtime = _need("onnxruntime")
    _need("onnxscript")
    if type(agent.model).forward is nn.Module.forward or isinstance(agent.model, MaskedModel):
        raise ConfigError(f"a {agent.config.model.family!r} network has no single forward pass that ONNX could hold.")
    network = _OneAction(copy.deepcopy(agent.model)).eval().cpu()  # the agent's own stays where it is
    windows = _windows(agent.config.io, 8)
    data = _to_onnx(network, windows, agent)
    model = onnx.load_model_from_string(data)
    onnx.helper.set_model_props(model, _properties(agent))
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = {entry.name for entry in session.get_inputs()}  # what a network does not read is no input
    if any(isinstance(entry.shape[0], int) for entry in session.get_inputs()):
        raise ConfigError(f"a {agent.config.model.family!r} network exports for a fixed number of windows only.")
    worst, counts = 0.0, (1, 2 * agent.config.io.context + 3)
    for count in counts:
        parts = _windows(agent.config.io, count, seed=count)
        with torch.inference_mode():
            expected = network.model.act(Batch(*parts)).numpy()
        expected = _clip(expected, agent.config.io)
        fed = {name: part.numpy() for name, part in zip(INPUTS, parts, strict=True) if name in names}
        found = session.run(None, fed)[0]
        allowed = TOLERANCE * max(1.0, float(np.abs(expected).max()))
        worst = max(worst, float(np.abs(found - expected).max()))
        if not worst <= allowed:
            raise CheckpointError(
                f"the ONNX network of {agent.config.agent_id} differs from PyTorch's by {worst:g}; nothing was written."
            )
    write_atomic(path, data)
    return ExportReport(path=str(path), bytes=len(data), compared=sum(counts), largest_difference=worst)


def _to_onnx(network: _OneAction, windows: tuple[Tensor, ...], agent: Agent) -> bytes:
    batch = torch.export.Dim("windows", min=1, max=65_536)
    shapes = (tuple({0: batch} for _ in INPUTS),)
    level = logging.getLogger("torch.onnx").level
    try:
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                network,
                windows,
                input_names=list(INPUTS),
                output_names=["action"],
                dynamic_shapes=shapes,
                opset_version=OPSET,
                dynamo=True,
                optimize=True,
                external_data=False,
            )
    except Exception as error:  # the exporter's own types, of which there are many
        text = " ".join(str(error).split())
        raise ConfigError(
            f"{agent.config.agent_id} cannot be exported: {type(error).__name__}: {text[:300]}"
        ) from error
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
        causal_bias.cache_clear()  # it may now hold a tensor of the exporter, without numbers
    data: bytes = program.model_proto.SerializeToString()
    return data


def _properties(agent: Agent) -> dict[str, str]:
    config = agent.config
    return {
        "agent_id": config.agent_id,
        "context": str(config.io.context),
        "rtg_scale": repr(config.rtg_scale),
        "rewards": config.rewards,
        "target_return": repr(agent.target_return),
        "env": config.env or "",
        "weights_sha256": agent.weights_sha256 or "",
    }


def _windows(spec: IOSpec, count: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Random windows of lengths 1 to K in turn, padded on the right with zeros."""
    rng = torch.Generator().manual_seed(seed)
    k = spec.context
    lengths = torch.arange(count) % k + 1
    valid = torch.arange(k)[None] < lengths[:, None]
    if spec.action.kind == "discrete":
        actions = torch.randint(spec.action.size, (count, k), generator=rng) * valid
    else:
        actions = (torch.rand(count, k, spec.action.size, generator=rng) * 2 - 1) * valid[..., None]
    return (
        torch.randn(count, k, spec.observation.size, generator=rng) * valid[..., None],
        actions,
        torch.rand(count, k, generator=rng) * valid,
        torch.arange(k).expand(count, k) * valid,
        valid,
    )


def _clip(actions: NDArray[Any], spec: IOSpec) -> NDArray[Any]:
    action = spec.action
    return actions if action.low is None else np.clip(actions, action.low, action.high).astype(np.float32)


def _need(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"export needs {name}: pip install 'agentzoo[export]' ({error}).") from error
