"""All analyses of one network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.nn.mamba import Mamba
from agentzoo.nn.markov import THRESHOLD
from agentzoo.research.analysis.agent_windows import decision_windows, fullest, thinned
from agentzoo.research.analysis.gate_report import GateCurve, GateReport, gate_curve, gate_report, require_gates
from agentzoo.research.analysis.head_report import (
    CountedHeads,
    MarkovReport,
    is_language_model,
    kind_of_backbone,
    language_blocks,
    markov_report,
    random_network,
    untrained,
)
from agentzoo.research.analysis.importance import HeadImportance, head_importance
from agentzoo.research.analysis.layers import attention_layers
from agentzoo.research.analysis.maps import Look, attention_maps, mean_looks
from agentzoo.research.analysis.memory import MemoryReport, memory_report
from agentzoo.store.files import LOG
from agentzoo.store.locate import find_agent


class Inspection(NamedTuple):
    """The analyses of a network; those that do not apply are None."""

    name: str
    network: str  # the family of an agent, "language model" and its like
    weights: str = ""  # "random weights" or "before training"; empty for trained ones
    markov: MarkovReport | None = None
    importance: HeadImportance | None = None
    gates: GateReport | None = None
    curve: GateCurve | None = None
    maps: list[NDArray[np.float32]] | None = None  # of one window
    looks: list[Look] | None = None  # means over windows
    memory: MemoryReport | None = None
    causal: bool = True  # three tokens per step; else one
    temperature: float = 1.0  # at which maps are drawn; `maps` are as the network computes them
    counted: CountedHeads | None = None  # whose gates are counted together

    @property
    def kind(self) -> str:
        """The kind of the network and of its weights."""
        return f"{self.network}, {self.weights}" if self.weights else self.network

    @property
    def title(self) -> str:
        """The name, with the kind of weights if they are not trained."""
        return f"{self.name} ({self.weights})" if self.weights else self.name

    def as_tree(self) -> dict[str, Any]:
        """Plain data for JSON, without the maps."""
        tree: dict[str, Any] = {"name": self.name, "kind": self.kind}
        for part in ("markov", "importance", "gates", "memory"):
            found = getattr(self, part)
            if found is not None:
                tree[part] = found.as_tree()
        if self.curve is not None:
            tree["gate_curve"] = self.curve.as_tree()
        if self.looks is not None:
            tree["attention_maps"] = [one._asdict() for one in self.looks]
        if self.counted is not None:
            tree["counted_heads"] = self.counted.words()
        return tree


class Options(NamedTuple):
    """Options of an inspection."""

    episodes: int = 5
    seed: int = 0
    most_windows: int = 2_000  # at most, evenly spaced
    threshold: float = THRESHOLD
    fold_ln_gain: bool = False
    heads: tuple[int, ...] | None = None  # heads of layer 0 to count together; None: Markov heads
    temperature: float = 1.0  # of attention maps, as they are drawn
    random: bool = False  # the network with random weights
    before: bool = False  # the network before training: its backbone's blocks, fresh maps
    distance: int = 0  # of the Markov report, for rotary positions

    def require_default(self, why: str, **flags: str) -> None:
        """Raise ConfigError if one of these fields, each with its option, is set; `why` says why none has an effect."""
        given = [flag for name, flag in flags.items() if getattr(self, name) != self._field_defaults[name]]
        if given:
            raise ConfigError(f"{', '.join(given)} has no effect: {why}. Omit it.")


def inspect(
    name: str, options: Options | None = None, *, revision: str | None = None, trust_env_module: bool = False
) -> Inspection:
    """Inspect an agent or a language model, by id, folder or Hub repo.

    Args:
        revision: commit, tag or branch on the Hub.

    Raises:
        ConfigError: no analysis applies to the network. Also raised by `Agent.from_pretrained`.
    """
    options = options or Options()
    if options.random and options.before:
        raise ConfigError("--random and --before exclude each other: use only one of them.")
    if is_language_model(name, revision):
        return _inspect_language_model(name, options, revision)
    agent = Agent.from_pretrained(name, revision=revision, trust_env_module=trust_env_module)
    if options.random:
        found = inspect_agent(untrained(agent, options.seed), options, trust_env_module=trust_env_module)
        return found._replace(weights="random weights")
    if options.before:
        start = untrained(agent, options.seed, backbone=True)
        found = inspect_agent(start, options, trust_env_module=trust_env_module)
        return found._replace(weights="before training")
    found = inspect_agent(agent, options, trust_env_module=trust_env_module)
    if found.gates is None:
        return found
    return found._replace(curve=_curve(find_agent(name, revision=revision), found.gates.heads))


def inspect_agent(agent: Agent, options: Options | None = None, *, trust_env_module: bool = False) -> Inspection:
    """Inspect a loaded agent, in its own environment.

    Raises:
        ConfigError: no analysis applies to its network, it has no such gated heads, or an option has no effect on it.
    """
    options = options or Options()
    layers = attention_layers(agent.model)
    remembers = any(isinstance(module, Mamba) for module in agent.model.modules())
    family = agent.model.config.family
    if not layers and not remembers:
        raise ConfigError(f"{agent.config.agent_id}: a {family!r} network has no attention layers and no Mamba blocks.")
    if options.heads is not None:
        require_gates(agent.config.agent_id, layers, options.heads)
    causal = bool(layers) and layers[0].causal
    network = f"{agent.config.agent_id} is a {family!r} network"
    if not causal:
        flags = {"threshold": "--threshold", "fold_ln_gain": "--fold-ln-gain", "distance": "--distance"}
        options.require_default(f"only causal attention has Markov heads, and {network}", **flags)
    if not layers:
        options.require_default(f"{network}, without attention to draw", temperature="--temperature")
    report = (
        markov_report(agent, options.threshold, fold_ln_gain=options.fold_ln_gain, distance=options.distance)
        if causal
        else None
    )
    every = decision_windows(agent, options.episodes, options.seed, trust_env_module=trust_env_module)
    windows = thinned(every, options.most_windows)
    found = Inspection(agent.config.agent_id, family)
    if remembers:
        found = found._replace(memory=memory_report(agent, windows))
    if not layers:
        return found
    gated = all(layer.gate is not None for layer in layers)
    found = found._replace(
        markov=report,
        importance=head_importance(agent, windows),
        maps=attention_maps(agent, fullest(every)),
        looks=mean_looks(agent, every, causal),
        causal=causal,
        temperature=options.temperature,
    )
    if not gated or report is None:
        return found
    counted = report.counted(options.heads, agent.model.config)
    return found._replace(gates=gate_report(agent, windows, counted.heads), counted=counted)


def _inspect_language_model(name: str, options: Options, revision: str | None) -> Inspection:
    from agentzoo.nn.language.pretrained import load_backbone

    if options.before:
        raise ConfigError(f"--before is for agents, but {name} is a language model; --random shows it before training.")
    if options.heads is not None:
        require_gates(name, ())
    flags = {"episodes": "--episodes", "most_windows": "--windows", "temperature": "--temperature"}
    flags |= {} if options.random else {"seed": "--seed"}
    options.require_default(f"{name} is a language model, whose weights alone are inspected", **flags)
    found = load_backbone(name, revision)
    blocks = random_network(found.sizes, options.seed) if options.random else language_blocks(found)
    report = markov_report(
        blocks, options.threshold, fold_ln_gain=options.fold_ln_gain, distance=options.distance
    )._replace(name=name)
    weights = "random weights" if options.random else ""
    return Inspection(name, kind_of_backbone(found.sizes.architecture), weights, markov=report)


def _curve(folder: Path, heads: Sequence[int]) -> GateCurve | None:
    """The gates over training; None without a log, gates in it, or other heads to compare with."""
    if not (folder / LOG).is_file():
        return None
    try:
        return gate_curve(folder, heads)
    except ConfigError:
        return None
