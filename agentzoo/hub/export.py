"""Export an agent's network as an ONNX file from windows of K steps to actions, compared with PyTorch before writing.

The caller keeps the history: raw observations, actions, returns-to-go divided by `rtg_scale`, timesteps from 0, and
`valid`. Windows are padded on the right with zeros. K is the agent's `history` where it has one. The file's metadata
holds K, the scale, whether actions are sampled from the logits, and the environment with its options.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from agentzoo.acting.onnx_export import EXAMPLES, open_session, require, to_onnx
from agentzoo.acting.passes import WindowPass
from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, RuntimeMismatchError
from agentzoo.evaluation.rollout import is_deterministic
from agentzoo.nn.masked_model import MaskedModel
from agentzoo.store.files import write_atomic
from agentzoo.types import Config

CONTRACT = (
    "Inputs, each with a leading axis of environments: observations (K, S) float32, raw units, of a Dict its "
    "`obs_keys` flattened and joined in this order, or images (K, C, H, W) uint8; actions (K, A) float32, environment "
    "units, or (K,) int64 choices counted from 0, 0 at the newest step; returns_to_go (K,) float32: the target return "
    "less all rewards so far, or the target return at every step if `rewards` is `delayed`, divided by rtg_scale; "
    "timesteps (K,) int64, steps of the episode from 0; valid (K,) bool. A window holds the last K steps, oldest "
    "first, padded on the right with zeros and valid=False. Inputs that a network does not read are absent. Output: "
    "action (A,) in environment units, clipped, or one logit a choice: if `sampled` is true, draw the choice from "
    "softmax(logits), as the scores were measured; else take the largest; the action is this choice plus the first "
    "action of the Discrete space. K is `context`, the steps that the agent reads. context, rtg_scale, rewards, "
    "target_return, sampled, env, and, as JSON, env_options and obs_keys are in the metadata of this file."
)
TOLERANCE = 1e-4  # relative to the largest action or logit, if that is above 1


class ExportReport(Config):
    """The written file, and its largest difference to PyTorch."""

    path: str
    bytes: int
    compared: int  # number of windows, of every length from 1 to K
    largest_difference: float  # in the action's units


class _Clipped(WindowPass):
    """The actions that `predict` returns: inside the bounds of the action space."""

    def forward(self, *parts: Tensor) -> Tensor:
        """As `WindowPass.forward`, clipped."""
        actions, spec = super().forward(*parts), self.model.io.action
        if spec.low is None or spec.high is None:
            return actions
        return actions.clamp(torch.tensor(spec.low), torch.tensor(spec.high))


def export_onnx(agent: Agent, path: Path) -> ExportReport:
    """Write the file if ONNX Runtime and PyTorch give the same actions.

    Its windows have the steps that the agent reads: `agent.history`, or K.

    Raises:
        ConfigError: a package is missing, or the family cannot be exported. RuntimeMismatchError: the two runtimes
            disagree; nothing is written.
    """
    onnx, name = require("onnx"), agent.config.agent_id
    require("onnxruntime")
    if isinstance(agent.model, MaskedModel):
        raise ConfigError(f"a {agent.config.model.family!r} network has no single forward pass to export.")
    run = _Clipped(copy.deepcopy(agent.model), agent.history).eval().cpu()  # a copy, since `cpu()` moves the network
    model = onnx.load_model_from_string(to_onnx(run, run.sample(EXAMPLES, 0), run.inputs, run.outputs, name))
    onnx.helper.set_model_props(model, _properties(agent, run.steps))
    data: bytes = model.SerializeToString()
    session = open_session(data)
    names = {entry.name for entry in session.get_inputs()}  # the graph omits inputs that the network does not read
    worst, counts = 0.0, (1, 2 * run.steps + 3)
    for count in counts:
        parts = run.sample(count, seed=count)
        with torch.inference_mode():
            expected = run(*parts).numpy()
        fed = {name: part.numpy() for name, part in zip(run.inputs, parts, strict=True) if name in names}
        found = session.run(None, fed)[0]
        worst = max(worst, float(np.abs(found - expected).max()))
        if not worst <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
            raise RuntimeMismatchError(
                f"the ONNX network of {name} differs from PyTorch's by {worst:g}; nothing was written."
            )
    write_atomic(path, data)
    return ExportReport(path=str(path), bytes=len(data), compared=sum(counts), largest_difference=worst)


def _properties(agent: Agent, steps: int) -> dict[str, str]:
    config = agent.config
    return {
        "agent_id": config.agent_id,
        "input_contract": CONTRACT,
        "context": str(steps),
        "rtg_scale": repr(config.rtg_scale),
        "rewards": config.rewards,
        "target_return": repr(agent.target_return),
        "sampled": "false" if is_deterministic(agent) else "true",
        "env": config.env or "",
        "env_options": json.dumps(config.env_options),
        "obs_keys": json.dumps(config.io.observation.keys),
        "weights_sha256": agent.weights_sha256 or "",
    }
