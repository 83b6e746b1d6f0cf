"""What the gates of a Mixture of Attention give to Markov heads: now, by token kind, over training, against context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentzoo.agent import Agent
from agentzoo.analysis.layers import layer_inputs, require_attention
from agentzoo.analysis.markov import markov_report
from agentzoo.analysis.windows import in_pieces
from agentzoo.errors import ConfigError
from agentzoo.nn.tokens import TOKENS_PER_STEP
from agentzoo.training.log import read_log
from agentzoo.types import Batch

TOKEN_KINDS = ("return-to-go", "observation", "action")


class GateReport(NamedTuple):
    """Mean gates over the real tokens of windows, and the share of the first layer's Markov heads.

    mean: [layer][head]. by_kind: kind of token -> [layer][head].
    """

    mean: list[list[float]]
    by_kind: dict[str, list[list[float]]]
    markov_heads: list[int]
    g_markov: float  # sum over these heads of the first layer's mean gates
    uniform: float  # what it would be if all heads had the same
    context: int
    windows: int

    def as_tree(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict()


def gate_report(agent: Agent, windows: Batch, markov_heads: Sequence[int] | None = None) -> GateReport:
    """How the gates weigh the heads of every layer.

    Args:
        windows: see `decision_windows`.
        markov_heads: of the first layer; by default those `markov_report` finds in the agent as it is.

    Raises:
        ConfigError: the network has no gates, or no such head.
    """
    layers = require_attention(agent.model, "gate report")
    gates = [layer.gate for layer in layers]
    if any(gate is None for gate in gates):
        raise ConfigError(f"{agent.config.agent_id} has no gates; families with gates end in 'dtma' or are gpt2_p.")
    chosen = markov_report(agent).markov_heads() if markov_heads is None else sorted(set(markov_heads))
    if any(not 0 <= head < layers[0].n_heads for head in chosen):
        raise ConfigError(f"the first layer has heads 0 to {layers[0].n_heads - 1}, got {chosen}.")
    sums = torch.zeros(len(layers), TOKENS_PER_STEP, layers[0].n_heads, dtype=torch.float64)
    steps = 0
    for piece in in_pieces(windows):
        on = piece.to(agent.device)
        inputs = layer_inputs(agent.model, on, layers)
        steps += int(on.valid.sum())
        for i, (gate, tokens) in enumerate(zip(gates, inputs, strict=True)):
            assert gate is not None
            with torch.no_grad():
                sums[i] += _by_kind(gate.weights(tokens), on.valid).cpu()
    means = sums / max(steps, 1)  # (layers, kinds, H): every real step has one token of each kind
    mean = means.mean(1)
    return GateReport(
        mean=mean.tolist(),
        by_kind={kind: means[:, k].tolist() for k, kind in enumerate(TOKEN_KINDS)},
        markov_heads=chosen,
        g_markov=float(mean[0, chosen].sum()),
        uniform=len(chosen) / layers[0].n_heads,
        context=windows.shape[1],
        windows=windows.shape[0],
    )


def _by_kind(weights: Tensor, valid: Tensor) -> Tensor:
    """(B, 3K, H) -> (3, H): sums over the tokens of real steps."""
    split = weights.double().unflatten(1, (-1, TOKENS_PER_STEP))  # type: ignore[no-untyped-call]  # (B, K, 3, H)
    found: Tensor = (split[:, : valid.shape[1]] * valid[:, : split.shape[1], None, None]).sum((0, 1))
    return found


def r_markov(g_by_context: Mapping[int, float], base: int = 10) -> dict[int, float]:
    """`G_Markov(K) / G_Markov(base)` in percent, for agents trained with different contexts K.

    Raises:
        ConfigError: no figure for `base`, or it is 0.
    """
    if not g_by_context.get(base):
        raise ConfigError(f"R_Markov is relative to G_Markov at context {base}, which must be there and above 0.")
    return {context: 100.0 * value / g_by_context[base] for context, value in sorted(g_by_context.items())}


class GateCurve(NamedTuple):
    """Mean gate of one Markov head and of one other head of the first layer, against training steps."""

    steps: list[int]
    markov: list[float]
    others: list[float]


def gate_curve(folder: Path, markov_heads: Sequence[int]) -> GateCurve:
    """From the `training_log.csv` of a run or a staged agent.

    Raises:
        ConfigError: a log without gates, or heads that leave no one to compare with.
    """
    rows = [row for row in read_log(folder) if row.get("gate_0")]
    heads = [name for name in (rows[0] if rows else {}) if name.startswith("gate_")]
    inside = [f"gate_{head}" for head in markov_heads]
    outside = [name for name in heads if name not in inside]
    if not heads or not inside or not outside or not set(inside) <= set(heads):
        raise ConfigError(
            f"the log in {folder} has gates of {len(heads)} heads; Markov heads named: {inside or 'none'}."
        )
    means = [[sum(float(row[name]) for name in names) / len(names) for row in rows] for names in (inside, outside)]
    return GateCurve([int(row["step"]) for row in rows], means[0], means[1])
