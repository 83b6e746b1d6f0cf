"""The networks of the page: ONNX files, and the facts that the page needs to build their windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from agentzoo.acting.frozen import freeze
from agentzoo.acting.onnx_export import require
from agentzoo.agent import Agent
from agentzoo.nn.base import SequenceModel
from agentzoo.nn.masked_model import MaskedModel
from agentzoo.nn.recurrent import RecurrentModel
from agentzoo.store.files import write_atomic


def write_network(folder: Path, path: Path) -> dict[str, Any]:
    """Export the agent in `folder` to `path`, compared with PyTorch; returns its facts, ready for JSON.

    A recurrent network is exported as its step, which takes a fraction of its window's time; a window has as many steps
    as the agent reads. A masked network keeps K steps, since a goal stands in the last of them.

    Raises:
        AgentzooError: it cannot be loaded or exported.
    """
    agent = Agent.from_pretrained(folder)
    config = agent.config
    memory = memory_of(agent.model)
    takes_goals = isinstance(agent.model, MaskedModel)
    context = config.io.context if takes_goals else config.history or config.io.context
    data = freeze(agent.model, "window" if memory is None else "recurrent", config.agent_id, context).data
    shows: dict[str, str] = {}
    if memory is None:
        data, shows = with_attention(data, context)
    write_atomic(path, data)
    action = config.io.action
    return {
        "context": context,
        "history": config.history or config.io.context,
        "observation_size": config.io.observation.size,
        "action_size": action.size,
        "discrete": action.kind == "discrete",
        "low": None if action.low is None else list(action.low),
        "high": None if action.high is None else list(action.high),
        "rtg_scale": config.rtg_scale,
        "rewards": config.rewards,
        "target_return": agent.target_return,
        "asks": agent.model.config.acts_on_target(),
        "takes_goals": takes_goals,
        "memory": memory,
        "shows": shows,
        "bytes": len(data),
    }


def memory_of(model: SequenceModel) -> dict[str, Any] | None:
    """Type and shape of each tensor in a recurrent network's state of one environment; None for other networks."""
    if not isinstance(model, RecurrentModel):
        return None
    state = model.initial_state(1)._asdict()
    kinds = {torch.float32: "float32", torch.int64: "int64"}
    return {name: {"type": kinds[part.dtype], "shape": list(part.shape)} for name, part in state.items()}


def with_attention(data: bytes, context: int) -> tuple[bytes, dict[str, str]]:
    """The graph with the newest token's attention weights in the last layer as further outputs, if it has any.

    Returns:
        The graph, and the outputs' names: `attention` (rows, heads, 1, tokens), the softmax over the tokens of K steps,
        or (rows, heads, K, K) where all K steps look; `gates` (rows, 1, heads), the softmax over heads.
    """
    onnx = require("onnx")
    model = onnx.load_model_from_string(data)
    shapes = {one.name: one.type.tensor_type for one in model.graph.value_info}
    shows: dict[str, str] = {}
    for node in model.graph.node:
        name = node.output[0]
        if node.op_type != "Softmax" or name not in shapes:
            continue
        sides = [side.dim_value for side in shapes[name].shape.dim]
        newest_alone = len(sides) >= 3 and sides[-2] == 1
        of_newest = newest_alone and sides[-1] > 0 and sides[-1] % context == 0
        of_all_steps = len(sides) == 4 and sides[-2] == context > 1
        if len(sides) == 4 and (of_newest or of_all_steps):
            shows["attention"] = name
        elif newest_alone and len(sides) == 3:
            shows["gates"] = name
    for name in shows.values():
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return model.SerializeToString(), shows
