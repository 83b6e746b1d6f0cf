"""Where each head looks in one window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentzoo.agent import Agent
from agentzoo.analysis.layers import layer_inputs, require_attention
from agentzoo.errors import ShapeError
from agentzoo.types import Batch

SHARPENED = 0.1  # temperature at which the paper draws its maps


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
