"""Attention maps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from agentzoo.agent import Agent
from agentzoo.errors import ShapeError
from agentzoo.nn.tokens import TOKENS_PER_STEP
from agentzoo.research.analysis.agent_windows import in_pieces, thinned
from agentzoo.research.analysis.layers import layer_inputs, require_attention
from agentzoo.types import Batch


class Look(NamedTuple):
    """The mean attention of the newest observation (of the newest step in a masked network) over windows."""

    layer: int
    head: int
    on_itself: float  # weight
    on_its_step: float
    steps_back: float  # mean distance of what it attends to in the window, the padding of a masked network left out


MAX_WINDOWS = 256  # whose attention is averaged


def mean_looks(agent: Agent, windows: Batch, causal: bool) -> list[Look]:
    """The mean attention of every head, over at most 256 of the longest windows.

    Args:
        agent: the agent.
        windows: its windows, see `decision_windows`.
        causal: three tokens per step, else one.

    Raises:
        ConfigError: no attention layers.
    """
    layers = require_attention(agent.model, "attention map")
    lengths = windows.valid.sum(1)
    steps = int(lengths.max())
    chosen = thinned(windows.map(lambda part: part[lengths == steps, :steps]), MAX_WINDOWS)
    per_step = TOKENS_PER_STEP if causal else 1
    asking = per_step * steps - (2 if causal else 1)
    sums = [torch.zeros(layer.n_heads, per_step * steps, device=agent.device) for layer in layers]
    for piece in in_pieces(chosen, 32):
        inputs = layer_inputs(agent.model, piece.to(agent.device), layers)
        for total, layer, tokens in zip(sums, layers, inputs, strict=True):
            weights = layer.scores(tokens).detach()[:, :, asking].softmax(-1)
            total += weights[..., : per_step * steps].sum(0)  # a masked network pads its window to K steps
    back = steps - 1 - torch.arange(per_step * steps) // per_step
    found = []
    for number, total in enumerate(sums):
        for head, row in enumerate((total / len(chosen.valid)).double().cpu()):
            looks = (row[asking], row[per_step * (steps - 1) :].sum(), (row * back).sum() / row.sum())
            found.append(Look(number, head, *(float(one) for one in looks)))
    return found


def attention_maps(agent: Agent, window: Batch, temperature: float = 1.0) -> list[NDArray[np.float32]]:
    """(H, L, L) weights of each layer, rows are querying tokens; L is 3K, or K for a masked network.

    Args:
        window: one window, see `agent_windows.fullest`.
        temperature: divides the scores, for display; 1 gives the network's own weights.

    Raises:
        ShapeError: several windows, or a temperature that is not positive. ConfigError: no attention layers.
    """
    if window.shape[0] != 1 or temperature <= 0:
        raise ShapeError(f"maps are of one window at a positive temperature, got {window.shape[0]} and {temperature}.")
    layers = require_attention(agent.model, "attention map")
    tokens = layer_inputs(agent.model, window.to(agent.device), layers)
    found = [(layer.scores(x) / temperature).softmax(-1)[0] for layer, x in zip(layers, tokens, strict=True)]
    return [weights.detach().cpu().numpy() for weights in found]
