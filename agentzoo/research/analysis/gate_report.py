"""The gates of a Mixture of Attention for some heads: their means, by token kind, over training, against context.

Unless others are named, these are the Markov heads of the first layer; the sum of their gates is G_Markov.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count as count_from
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.nn.base import parameter_count
from agentzoo.nn.tokens import TOKENS_PER_STEP
from agentzoo.research.analysis.agent_windows import in_pieces
from agentzoo.research.analysis.head_report import markov_report
from agentzoo.research.analysis.layers import AttentionLayer, layer_inputs, require_attention
from agentzoo.training.log import read_log
from agentzoo.types import Batch

TOKEN_KINDS = ("return-to-go", "observation", "action")
CONTEXTS = (10, 20, 30, 40, 50)  # K at which the papers print G_Markov


class GateReport(NamedTuple):
    """Mean gates over the real tokens of windows, and the sum for some heads of the first layer.

    mean: [layer][head]. by_kind: kind of token -> [layer][head].
    """

    mean: list[list[float]]
    by_kind: dict[str, list[list[float]]]
    heads: list[int]  # counted heads of the first layer
    g_markov: float  # sum of their mean gates
    uniform: float  # the sum if all heads had the same gate
    context: int
    windows: int
    numbers: int  # of all gates
    of_all: float  # their share of the network's
    of_trained: float  # their share of the trained numbers
    by_context: dict[int, float]  # K -> g_markov on the same windows cut to their newest K steps

    def r_markov(self) -> dict[int, float]:
        """R_Markov, in percent of the shortest context's; empty if the windows are too short."""
        return r_markov(self.by_context, min(self.by_context)) if len(self.by_context) > 1 else {}

    def as_tree(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "r_markov": self.r_markov()}


def gate_report(
    agent: Agent, windows: Batch, heads: Sequence[int] | None = None, contexts: Sequence[int] = CONTEXTS
) -> GateReport:
    """The mean gates of every layer.

    Args:
        windows: see `decision_windows`.
        heads: heads of the first layer to count together; by default those of `MarkovReport.counted`: the Markov
            heads, or the nearest one.
        contexts: lengths for `by_context`. Lengths above that of the longest window are dropped; that one is added.

    Raises:
        ConfigError: the network has no gates, or no such head.
    """
    layers = require_attention(agent.model, "gate report")
    require_gates(agent.config.agent_id, layers, heads or ())
    gates = [layer.gate for layer in layers]
    chosen = sorted(set(markov_report(agent).counted(model=agent.model.config).heads if heads is None else heads))
    own = int(windows.valid.sum(1).max())  # an agent may act on fewer steps than its context
    lengths = [*sorted(length for length in set(contexts) if length < own), own]
    sums = torch.zeros(len(lengths), len(layers), TOKENS_PER_STEP, layers[0].n_heads, dtype=torch.float64)
    steps = torch.zeros(len(lengths), dtype=torch.int64)
    for piece in in_pieces(windows):
        on = piece.to(agent.device)
        kept = _newest_steps(on.valid, lengths)
        steps += kept.sum((1, 2)).cpu()
        for i, (gate, tokens) in enumerate(zip(gates, layer_inputs(agent.model, on, layers), strict=True)):
            assert gate is not None
            with torch.no_grad():
                sums[:, i] += _by_kind(gate.weights(tokens), kept).cpu()
    means = sums / steps.clamp(min=1)[:, None, None, None]  # every real step has one token of each kind
    counted = means[:, 0][:, :, chosen].mean(1).sum(1)  # in the first layer a gate is the same in a shorter window
    means = means[-1]  # (layers, kinds, H) of whole windows
    mean = means.mean(1)
    numbers = sum(parameter_count(gate) for gate in gates if gate is not None)
    return GateReport(
        mean=mean.tolist(),
        by_kind={kind: means[:, k].tolist() for k, kind in enumerate(TOKEN_KINDS)},
        heads=chosen,
        g_markov=float(counted[-1]),
        uniform=len(chosen) / layers[0].n_heads,
        context=own,
        windows=windows.shape[0],
        numbers=numbers,
        of_all=numbers / parameter_count(agent.model),
        of_trained=numbers / sum(p.numel() for p in agent.model.parameters() if p.requires_grad),
        by_context=dict(zip(lengths, counted.tolist(), strict=True)),
    )


def require_gates(name: str, layers: Sequence[AttentionLayer], heads: Sequence[int] = ()) -> None:
    """Raise ConfigError unless every layer of the network called `name` has a gate, and the first one these heads."""
    if not layers or any(layer.gate is None for layer in layers):
        raise ConfigError(
            f"{name} has no gates, so there are no heads to count; families with gates end in 'dtma' or are gpt2-p."
        )
    if any(not 0 <= head < layers[0].n_heads for head in heads):
        raise ConfigError(f"the first layer has heads 0 to {layers[0].n_heads - 1}, got {sorted(set(heads))}.")


def _newest_steps(valid: Tensor, lengths: Sequence[int]) -> Tensor:
    """(B, K) -> (len(lengths), B, K): whether a step is among the newest `length` real steps of its window."""
    age = valid.sum(1, keepdim=True) - 1 - torch.arange(valid.shape[1], device=valid.device)
    return torch.stack([valid & (age < length) for length in lengths])


def _by_kind(weights: Tensor, kept: Tensor) -> Tensor:
    """(B, 3k, H), (C, B, K) -> (C, 3, H): sums over the tokens of kept steps; k is the longest window, k <= K."""
    split = weights.double().unflatten(1, (-1, TOKENS_PER_STEP))  # type: ignore[no-untyped-call]  # (B, k, 3, H)
    return torch.einsum("bkth,cbk->cth", split, kept[:, :, : split.shape[1]].double())


def r_markov(g_by_context: Mapping[int, float], base: int = 10) -> dict[int, float]:
    """`G_Markov(K) / G_Markov(base)` in percent, for agents trained with different contexts K.

    Raises:
        ConfigError: no figure for `base`, or it is 0.
    """
    if not g_by_context.get(base):
        given = ", ".join(f"{value:.3f} at {context}" for context, value in sorted(g_by_context.items())) or "nothing"
        raise ConfigError(
            f"R_Markov is relative to G_Markov at context {base}, which must be known and above 0; got {given}. "
            "Measure it at that context; if a network has no Markov head, name the heads to count."
        )
    return {context: 100.0 * value / g_by_context[base] for context, value in sorted(g_by_context.items())}


class GateCurve(NamedTuple):
    """Mean gate of each head of the first layer against training steps."""

    steps: list[int]
    gates: list[list[float]]  # [head][point]
    heads: list[int]  # counted heads

    @property
    def counted(self) -> list[float]:
        """Mean gate of a counted head."""
        return self._mean(self.heads)

    @property
    def others(self) -> list[float]:
        """Mean gate of another head."""
        return self._mean([head for head in range(len(self.gates)) if head not in self.heads])

    def _mean(self, heads: Sequence[int]) -> list[float]:
        return [sum(self.gates[head][point] for head in heads) / len(heads) for point in range(len(self.steps))]

    def as_tree(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "counted": self.counted, "others": self.others}


def gate_curve(folder: Path, heads: Sequence[int]) -> GateCurve:
    """The gates in the `training_log.csv` of a run or a staged agent.

    Args:
        heads: heads to count together.

    Raises:
        ConfigError: the log has no gates, or all heads are counted.
    """
    rows = [row for row in read_log(folder) if row.get("gate_0")]
    count = next(head for head in count_from(0) if f"gate_{head}" not in rows[0]) if rows else 0
    chosen = sorted(set(heads))
    if not rows:
        raise ConfigError(f"the log in {folder} has no gates; families with gates end in 'dtma' or are gpt2-p.")
    if not 0 < len(chosen) < count or not set(chosen) <= set(range(count)):
        raise ConfigError(
            f"the log in {folder} has gates of {count} heads, 0 to {count - 1}; a curve needs some of them to compare "
            f"with the rest, got {chosen}."
        )
    rows = [row for row in rows if all(row[f"gate_{head}"] for head in range(count))]
    gates = [[float(row[f"gate_{head}"]) for row in rows] for head in range(count)]
    return GateCurve([int(row["step"]) for row in rows], gates, chosen)
