"""Head importance: the change of the action without a head."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentzoo.agent import Agent
from agentzoo.research.analysis.agent_windows import in_pieces
from agentzoo.research.analysis.layers import require_attention
from agentzoo.types import Batch


class HeadImportance(NamedTuple):
    """`mean[layer][head]` of ‖a - a without the head‖₂ over decisions, in env units (a Discrete action's are logits).

    The standard error treats decisions as independent, so it is a lower bound. None for a single decision.
    """

    mean: list[list[float]]
    standard_error: list[list[float | None]]
    decisions: int

    def as_tree(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict()


def head_importance(agent: Agent, windows: Batch) -> HeadImportance:
    """Act again on the same windows with one head silenced, for every head; nothing is retrained.

    Silenced means that its output is 0 just before the output projection. A Discrete agent's action is its logits.

    Args:
        windows: of the unmodified agent, see `decision_windows`.

    Raises:
        ConfigError: no attention layers.
    """
    layers = require_attention(agent.model, "head importance")
    pieces = [piece.to(agent.device) for piece in in_pieces(windows)]
    whole = _act(agent, pieces)
    means: list[list[float]] = []
    errors: list[list[float | None]] = []
    for layer in layers:
        found = []
        for head in range(layer.n_heads):
            with layer.without_head(head):
                found.append((_act(agent, pieces) - whole).norm(dim=1))
        moved = torch.stack(found)  # (H, decisions)
        count = moved.shape[1]
        means.append(moved.mean(1).tolist())
        errors.append((moved.std(1) / count**0.5).tolist() if count > 1 else [None] * len(found))
    return HeadImportance(means, errors, len(whole))


def _act(agent: Agent, pieces: list[Batch]) -> Tensor:
    with torch.no_grad():
        return torch.cat([agent.model.act_deterministic(piece) for piece in pieces]).double()
