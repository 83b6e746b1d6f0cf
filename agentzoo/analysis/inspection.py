"""Everything the instruments can say of one network, gathered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.agent import Agent
from agentzoo.analysis.gates import GateCurve, GateReport, gate_curve, gate_report
from agentzoo.analysis.importance import HeadImportance, head_importance
from agentzoo.analysis.layers import attention_layers
from agentzoo.analysis.maps import attention_maps
from agentzoo.analysis.markov import (
    MarkovReport,
    is_language_model,
    language_blocks,
    markov_report,
    random_network,
    untrained,
)
from agentzoo.analysis.memory import MemoryReport, memory_report
from agentzoo.analysis.windows import decision_windows, fullest, thinned
from agentzoo.errors import ConfigError
from agentzoo.locate import find_agent
from agentzoo.nn.mamba import Mamba
from agentzoo.nn.markov import THRESHOLD
from agentzoo.training.log import FILE as LOG


class Inspection(NamedTuple):
    """What makes sense for the network; the rest is None."""

    name: str
    kind: str  # the family of an agent, "language model", or either "with random weights"
    markov: MarkovReport | None = None
    importance: HeadImportance | None = None
    gates: GateReport | None = None
    curve: GateCurve | None = None
    maps: list[NDArray[np.float32]] | None = None
    memory: MemoryReport | None = None
    causal: bool = True  # three tokens a step; else one

    def as_tree(self) -> dict[str, Any]:
        """For JSON; maps are left to pictures and Python."""
        tree: dict[str, Any] = {"name": self.name, "kind": self.kind}
        for part in ("markov", "importance", "gates", "memory"):
            found = getattr(self, part)
            if found is not None:
                tree[part] = found.as_tree()
        if self.curve is not None:
            tree["gate_curve"] = self.curve.as_tree()
        if self.maps is not None:
            tree["attention_maps"] = [list(one.shape) for one in self.maps]
        return tree


class Options(NamedTuple):
    """How to look."""

    episodes: int = 5
    seed: int = 0
    most_windows: int = 2_000  # evenly spaced ones are taken from more
    threshold: float = THRESHOLD
    fold_ln_gain: bool = False
    heads: tuple[int, ...] | None = None  # of layer 0, whose gates are counted together; None: Markov heads
    temperature: float = 1.0  # of attention maps
    random: bool = False  # the same network before it learned anything


def inspect(
    name: str, options: Options | None = None, *, revision: str | None = None, trust_env_module: bool = False
) -> Inspection:
    """An agent, or a language model, by id, folder or Hub repo.

    Args:
        revision: commit, tag or branch on the Hub.

    Raises:
        ConfigError: there is nothing in this network that the instruments read. As `Agent.from_pretrained`.
    """
    options = options or Options()
    if is_language_model(name, revision):
        return _inspect_language_model(name, options, revision)
    agent = Agent.from_pretrained(name, revision=revision, trust_env_module=trust_env_module)
    if options.random:
        found = inspect_agent(untrained(agent, options.seed), options, trust_env_module=trust_env_module)
        return found._replace(kind=f"{found.kind}, random weights")
    found = inspect_agent(agent, options, trust_env_module=trust_env_module)
    if found.gates is None:
        return found
    return found._replace(curve=_curve(find_agent(name, revision=revision), found.gates.heads))


def inspect_agent(agent: Agent, options: Options | None = None, *, trust_env_module: bool = False) -> Inspection:
    """An agent that is loaded, in its own environment.

    Raises:
        ConfigError: there is nothing in its network that the instruments read.
    """
    options = options or Options()
    layers = attention_layers(agent.model)
    remembers = any(isinstance(module, Mamba) for module in agent.model.modules())
    family = agent.model.config.family
    if not layers and not remembers:
        raise ConfigError(f"{agent.config.agent_id}: a {family!r} network has neither attention nor a memory to show.")
    every = decision_windows(agent, options.episodes, options.seed, trust_env_module=trust_env_module)
    windows = thinned(every, options.most_windows)
    found = Inspection(agent.config.agent_id, family)
    if remembers:
        found = found._replace(memory=memory_report(agent, windows))
    if not layers:
        return found
    causal = layers[0].causal
    gated = all(layer.gate is not None for layer in layers)
    report = markov_report(agent, options.threshold, fold_ln_gain=options.fold_ln_gain) if causal else None
    heads = options.heads if options.heads is not None or report is None else report.markov_heads()
    return found._replace(
        markov=report,
        importance=head_importance(agent, windows),
        gates=gate_report(agent, windows, heads) if gated else None,
        maps=attention_maps(agent, fullest(every), options.temperature),
        causal=causal,
    )


def _inspect_language_model(name: str, options: Options, revision: str | None) -> Inspection:
    from agentzoo.nn.pretrained import load_backbone

    found = load_backbone(name, revision)
    network, kind = language_blocks(found), "language model"
    if options.random:
        network, kind = random_network(found.sizes, options.seed), "language model, random weights"
    report = markov_report(network, options.threshold, fold_ln_gain=options.fold_ln_gain)
    return Inspection(name, kind, markov=report._replace(name=name))


def _curve(folder: Path, heads: Sequence[int]) -> GateCurve | None:
    """Where there is a log, gates in it, and heads to tell from others."""
    if not heads or not (folder / LOG).is_file():
        return None
    try:
        return gate_curve(folder, heads)
    except ConfigError:
        return None
