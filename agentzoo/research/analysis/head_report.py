"""The Markov heads of agents and language models, after and before training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.nn.base import ModelConfig
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.block_sizes import Sizes
from agentzoo.nn.language.wheels import gguf_path
from agentzoo.nn.markov import THRESHOLD, head_matrix, markov_statistics, rule_threshold
from agentzoo.registry import get_family
from agentzoo.research.analysis.layers import require_attention
from agentzoo.store.downloads import fetch, is_repo_id
from agentzoo.store.files import CONFIG, is_backbone
from agentzoo.store.locate import local_zoo
from agentzoo.store.named import WITHOUT_OWNER

if TYPE_CHECKING:
    from agentzoo.nn.language.pretrained import Pretrained

TIED_GAUSSIAN = (
    "For scale: independent random queries and keys give 1, queries equal to keys give sqrt(pi h / 2) = {0:.1f} for "
    "heads of {1} numbers."
)


class MarkovHead(NamedTuple):
    """One head. It is Markov if its diagonal is `positive` and its `ratio` is above the report's threshold."""

    layer: int
    head: int
    positive: bool  # condition (i): every entry of the diagonal
    positive_share: float
    ratio: float
    markov: bool


class CountedHeads(NamedTuple):
    """Heads of the first layer whose gates are counted together, and the reason for their choice."""

    heads: tuple[int, ...]
    chosen: Literal["markov", "named", "nearest"]
    at_start: bool = False  # judged by the initial weights, not the present ones
    ratio: float | None = None  # of the nearest
    threshold: float = THRESHOLD

    def words(self) -> str:
        """The heads and the reason, for a label or a sentence."""
        named = f"{'head' if len(self.heads) == 1 else 'heads'} {', '.join(map(str, self.heads))}"
        if self.chosen == "named":
            return f"{named}, as named"
        when = " when training began" if self.at_start else ""
        if self.chosen == "markov":
            return f"Markov {named}{when}"
        return f"{named}, nearest to Markov{when} (ratio {self.ratio:.2f}, r = {self.threshold:g})"


class MarkovReport(NamedTuple):
    """Every head of a network."""

    name: str
    threshold: float  # r of condition (ii)
    rule: float  # the smallest r the paper derives for matrices of this size
    dim: int
    head_size: int
    heads: list[MarkovHead]
    fold_ln_gain: bool = False  # diag(γ) A diag(γ) was judged, γ the gain of the norm before the layer
    distance: int = 0  # tokens from the key to the query, which rotary positions turn by as much

    def matrix(self) -> str:
        """The formula of the judged matrix, for captions."""
        product = f"W_q R({self.distance}) W_k^T" if self.distance else "W_q W_k^T"
        return f"diag(g) {product} diag(g), g the gain of the norm before" if self.fold_ln_gain else product

    def counted_in(self) -> str:
        """The options of the report, as the end of a title."""
        gain = ", the norm's gain counted" if self.fold_ln_gain else ""
        return f"{gain}, rotated as for keys {self.distance} tokens back" if self.distance else gain

    def markov_heads(self, layer: int = 0) -> list[int]:
        """The Markov heads of one layer."""
        return [one.head for one in self.heads if one.layer == layer and one.markov]

    def counted(self, named: Sequence[int] | None = None, model: ModelConfig | None = None) -> CountedHeads:
        """The named heads; else the Markov heads of the first layer; else the nearest one.

        The nearest one has the highest ratio among the heads with a mostly positive diagonal, or among all if there is
        none: a head that attends away from tokens like the querying one has a high ratio too.

        Args:
            model: the config of a gated agent; if it records the heads at the start of training, those decide.
        """
        start = (
            None if self.fold_ln_gain or self.distance else getattr(model, "markov_at_start", None)
        )  # recorded without gains
        first = [(one.positive_share, one.ratio) for one in self.heads if one.layer == 0] if start is None else start
        found = tuple(i for i, (share, ratio) in enumerate(first) if share == 1.0 and ratio > self.threshold)
        began = start is not None
        if named is not None:
            heads = tuple(sorted(set(named)))
            return CountedHeads(heads, "markov", began) if heads == found else CountedHeads(heads, "named")
        if found:
            return CountedHeads(found, "markov", began)
        nearest = max(range(len(first)), key=lambda head: (first[head][0] > 0.5, first[head][1]))
        return CountedHeads((nearest,), "nearest", began, first[nearest][1], self.threshold)

    def as_tree(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "heads": [one._asdict() for one in self.heads], "markov": self.markov_heads()}

    def scale(self) -> str:
        """The ratios of random weights, in a sentence."""
        return TIED_GAUSSIAN.format((torch.pi * self.head_size / 2) ** 0.5, self.head_size)


def markov_report(
    source: Agent | nn.Module | str | Path,
    threshold: float = THRESHOLD,
    *,
    fold_ln_gain: bool = False,
    distance: int = 0,
) -> MarkovReport:
    """Condition (i), ratio and verdict of every head.

    Args:
        source: an agent, any network with attention, or the name of a language model: a folder, the id of a staged
            one (`lm-mini`), a Hub id (`gpt2`).
        threshold: r of condition (ii).
        fold_ln_gain: judge diag(γ) A diag(γ), γ the gain of the norm before the layer.
        distance: for rotary positions, judge W_q R W_kᵀ, with R the rotation of a key that is `distance` tokens before
            the query; 3 is one step back. At 0, R is the identity.

    Raises:
        ConfigError: no attention layers, or a distance without rotary positions. CheckpointError, HubError: no such
            language model.
    """
    network: nn.Module
    if isinstance(source, str | Path):
        name, network = str(source), language_network(str(source))
    else:
        name = source.config.agent_id if isinstance(source, Agent) else type(source).__name__
        network = source.model if isinstance(source, Agent) else source
    layers = require_attention(network, "Markov report")
    if distance and all(layer.rotary is None for layer in layers):
        raise ConfigError(f"--distance (distance=) is for networks with rotary positions; {name} has none, so omit it.")
    heads = []
    for layer in layers:
        size = layer.qkv.shape[1] // layer.n_heads
        turn = layer.rotary.matrix(distance, size) if layer.rotary is not None and distance else None
        for head in range(layer.n_heads):
            matrix = head_matrix(layer.qkv, layer.n_heads, head, turn)
            found = markov_statistics(_folded(matrix, layer.gain) if fold_ln_gain else matrix)
            verdict = found.is_markov(threshold)
            heads.append(MarkovHead(layer.number, head, found.positive, found.positive_share, found.ratio, verdict))
    dim = layers[0].qkv.shape[1]
    sizes = (dim, dim // layers[0].n_heads)
    return MarkovReport(name, threshold, rule_threshold(dim), *sizes, heads, fold_ln_gain, distance)


def _folded(matrix: Tensor, gain: Tensor | None) -> Tensor:
    if gain is None:
        return matrix
    scale = gain.detach().double()
    return scale[:, None] * matrix * scale


def language_network(name: str) -> LanguageBackbone:
    """The blocks of a language model, by folder, staged id or Hub id."""
    from agentzoo.nn.language.pretrained import load_backbone

    return language_blocks(load_backbone(name))


def language_blocks(found: Pretrained) -> LanguageBackbone:
    """The blocks of a checkpoint as a network."""
    network = LanguageBackbone(found.sizes)
    network.load_state_dict(found.blocks)
    return network.eval()


def kind_of_backbone(architecture: str) -> str:
    """The kind of a backbone of this architecture, in words."""
    return {"clip": "text tower", "imagegpt": "image model"}.get(architecture, "language model")


def is_language_model(name: str, revision: str | None = None) -> bool:
    """Whether `name` is a backbone and not an agent: by its folder, its staged id, or its Hub id.

    Args:
        revision: commit, tag or branch on the Hub.

    Raises:
        HubError: a repo whose config could not be fetched.
    """
    if gguf_path(name) is not None:
        return True
    zoo, plain = local_zoo(), name.removeprefix("zoo/")
    folders = [Path(name)] + ([zoo / plain] if zoo is not None and "/" not in plain else [])
    if any(is_backbone(folder) for folder in folders):
        return True
    if any(folder.is_dir() for folder in folders):
        return False
    if "/" in plain and is_repo_id(name):
        return is_backbone(fetch(name, (CONFIG,), revision=revision))
    return name in WITHOUT_OWNER


def random_network(sizes: Sizes, seed: int = 0) -> LanguageBackbone:
    """Untrained blocks of the same sizes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageBackbone(sizes).eval()


def untrained(agent: Agent, seed: int = 0, backbone: bool = False) -> Agent:
    """The same network with fresh weights and the trained normalization.

    Args:
        backbone: keep the blocks of the language model that training started from.

    Raises:
        ConfigError: with `backbone`, if training started from none. Otherwise as `load_backbone`.
    """
    config = agent.model.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = get_family(config.family).model(config, agent.model.io)
        if backbone:
            if getattr(config, "backbone", None) is None:
                name = agent.config.agent_id
                raise ConfigError(f"{name} started from random weights, not from a backbone.")
            without = {"cosine_weight": 0.0, "lm_weight": 0.0}  # whose losses read text
            fresh = get_family(config.family).model(config.model_copy(update=without), agent.model.io)
            fresh.begin_training(fresh=True)
    fresh.obs_mean.copy_(agent.model.obs_mean)
    fresh.obs_std.copy_(agent.model.obs_std)
    return Agent(fresh.to(agent.device), agent.config, agent.recipe)
