"""Where each head looks in one window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.agent import Agent
from agentzoo.errors import ShapeError
from agentzoo.nn.tokens import TOKENS_PER_STEP
from agentzoo.research.analysis.layers import layer_inputs, require_attention
from agentzoo.types import Batch


class Look(NamedTuple):
    """Where the last observation of a window looks (a masked network's last step)."""

    layer: int
    head: int
    on_itself: float  # weight
    on_its_step: float
    steps_back: float  # in the mean


def looks_of(maps: Sequence[NDArray[np.float32]], causal: bool) -> list[Look]:
    """What maps at temperature 1 say of every head; `causal`: three tokens a step, else one."""
    per_step = TOKENS_PER_STEP if causal else 1
    found = []
    for layer, weights in enumerate(maps):
        asking = weights.shape[1] - (2 if causal else 1)
        step = asking // per_step
        back = np.abs(step - np.arange(weights.shape[2]) // per_step)
        for head, one in enumerate(weights):
            row = one[asking].astype(np.float64)
            own = row[step * per_step : (step + 1) * per_step].sum()
            found.append(Look(layer, head, float(row[asking]), float(own), float((row * back).sum())))
    return found


def attention_maps(agent: Agent, window: Batch, temperature: float = 1.0) -> list[NDArray[np.float32]]:
    """(H, L, L) weights of each layer, rows the asking token; L is 3K, or K for a masked network.

    Args:
        window: one window, see `analysis.windows.fullest`.
        temperature: scores are divided by it, for display; 1 is what the network computes.

    Raises:
        ShapeError: several windows, or a temperature that is not positive. ConfigError: no attention layers.
    """
    if window.shape[0] != 1 or temperature <= 0:
        raise ShapeError(f"maps are of one window at a positive temperature, got {window.shape[0]} and {temperature}.")
    layers = require_attention(agent.model, "attention map")
    tokens = layer_inputs(agent.model, window.to(agent.device), layers)
    found = [(layer.scores(x) / temperature).softmax(-1)[0] for layer, x in zip(layers, tokens, strict=True)]
    return [weights.detach().cpu().numpy() for weights in found]
