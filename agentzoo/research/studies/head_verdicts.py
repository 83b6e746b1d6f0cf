"""The Markov heads of language models, agents and random weights, before and after training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, UnknownNameError
from agentzoo.evaluation.study import Study, cell, filled
from agentzoo.nn.markov import THRESHOLD
from agentzoo.plots import entitle, new_figure, save_figure
from agentzoo.research.analysis.head_report import (
    MarkovReport,
    is_language_model,
    kind_of_backbone,
    language_blocks,
    markov_report,
    random_network,
    untrained,
)
from agentzoo.research.analysis.pictures import WIDTH, draw_ratios
from agentzoo.store.named import RANDOM

UNTRAINED = "random weights"
PICTURE = "markov.png"
MAX_ROWS = 100  # of a study
WIDE = 6  # heads; networks with more are drawn below each other


class Judged(NamedTuple):
    """One network."""

    name: str
    kind: str  # "language model" and its like, the family of an agent, or "random weights"
    report: MarkovReport
    started_from: str | None = None  # an agent's backbone

    @property
    def size(self) -> tuple[int, int, int]:
        """Width, numbers per head, heads."""
        return self.report.dim, self.report.head_size, len(self.report.heads)

    def summary(self) -> str:
        """The number of Markov heads, by the threshold and by the paper's rule for this size, in a sentence."""
        heads, rule = self.report.heads, self.report.rule
        first = [one for one in heads if one.layer == 0]
        markov, by_rule = (sum(one.positive and one.ratio > r for one in first) for r in (self.report.threshold, rule))
        every = sum(one.markov for one in heads)
        return (
            f"{self.name}: {markov} of {len(first)} heads of the first layer are Markov, {every} of {len(heads)} in "
            f"all layers (r = {self.report.threshold:g}); with the paper's rule for this size, r = {rule:.2f}, "
            f"{by_rule} of {len(first)}."
        )

    def as_tree(self) -> dict[str, Any]:
        """For JSON."""
        tree = {"name": self.name, "kind": self.kind, "started_from": self.started_from, "summary": self.summary()}
        return {**self.report.as_tree(), **tree}


def judge(
    names: Sequence[str],
    threshold: float = THRESHOLD,
    *,
    fold_ln_gain: bool = False,
    distance: int = 0,
    seed: int = 0,
    trust_env_module: bool = False,
) -> list[Judged]:
    """The Markov report of each network.

    Args:
        names: agents and language models, by id, folder or Hub repo; `random` adds an untrained network for each size
            among them.
        threshold: r of condition (ii).
        fold_ln_gain, distance: as in `markov_report`.
        seed: of random weights.

    Raises:
        ConfigError: `random` alone, or a network without attention. Otherwise as `Agent.from_pretrained` and
            `load_backbone`.
    """
    found: list[Judged] = []
    random: dict[tuple[int, int, int], Judged] = {}
    for name in dict.fromkeys(names):
        if name == RANDOM:
            continue
        if is_language_model(name):
            from agentzoo.nn.language.pretrained import load_backbone

            loaded = load_backbone(name)
            source: Any = language_blocks(loaded)
            fresh: Any = random_network(loaded.sizes, seed)
            label, kind, start = Path(name).name, kind_of_backbone(loaded.sizes.architecture), None
        else:
            source = _agent(name, trust_env_module)
            fresh = untrained(source, seed)
            label, kind = source.config.agent_id, source.model.config.family
            began = source.model.config.origin()
            start = None if began is None else began.backbone
        if any(one.name == label for one in found):
            label = name  # two runs of one agent
        report = markov_report(source, threshold, fold_ln_gain=fold_ln_gain, distance=distance)._replace(name=label)
        found.append(Judged(label, kind, report, start))
        if found[-1].size not in random:
            report = markov_report(fresh, threshold, fold_ln_gain=fold_ln_gain, distance=distance)._replace(
                name=f"random, as {label}"
            )
            random[found[-1].size] = Judged(report.name, UNTRAINED, report)
    if RANDOM not in names:
        return found
    if not found:
        raise ConfigError("`random` takes its size from another network: name one too, as in `lm-chibi random`.")
    return found + list(random.values())


def _agent(name: str, trust: bool) -> Agent:
    try:
        return Agent.from_pretrained(name, trust_env_module=trust)
    except UnknownNameError as error:
        raise UnknownNameError(
            f"{error} A language model is a folder, a Hub id, or the id of a staged one: `agentzoo research "
            "pretrain` makes one."
        ) from None


def changes(judged: Sequence[Judged]) -> Iterator[str]:
    """The change of each agent's heads by training, if its backbone is among the networks: a sentence each."""
    for after in judged:
        for before in judged:
            started = after.started_from is not None and Path(after.started_from).name == before.name
            # an agent may have only the first layers
            whole = before.size[:2] == after.size[:2] and before.size[2] >= after.size[2]
            if started and before.started_from is None and whole:
                yield f"{before.name} → {after.name}: {_change(before.report, after.report)}."


def _change(before: MarkovReport, after: MarkovReport) -> str:
    pairs = list(zip(before.heads, after.heads, strict=False))
    moved = max(abs(new.ratio / old.ratio - 1) for old, new in pairs)
    turned = [
        f"head {old.head} of layer {old.layer} {'became' if new.markov else 'is no longer'} a Markov head"
        for old, new in pairs
        if old.markov != new.markov
    ]
    verdicts = "; ".join(turned) if turned else f"none of {len(pairs)} verdicts changed"
    return f"{verdicts}, ratios moved by at most {100 * moved:.1f} %"


def as_study(judged: Sequence[Judged], picture: str | None = PICTURE) -> Study:
    """The table for a card: a row for each network."""
    rows = []
    for one in judged:
        heads = one.report.heads
        markov = [f"{head.layer}.{head.head}" for head in heads if head.markov]
        ratios = [head.ratio for head in heads]
        origin = one.kind if one.started_from is None else f"{one.kind} from {one.started_from}"
        verdict = f"{len(markov)}{': ' if markov else ''}{', '.join(markov)}"
        positive = str(sum(head.positive for head in heads))
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append(tuple(map(cell, (one.name, origin, str(len(heads)), verdict, positive, spread))))
    threshold = judged[0].report.threshold
    learned = [head for one in judged if one.kind != UNTRAINED for head in one.report.heads]
    total, found = len(learned), sum(head.markov for head in learned)
    matrix = judged[0].report.matrix() + ("," if judged[0].report.fold_ln_gain else "")
    note = (
        f"A head is Markov if the diagonal of {matrix} is positive and, on average, above r = {threshold:g} times the "
        f"rest. {found or 'None'} of the {total} trained heads {'are' if found > 1 else 'is'}. Large language models "
        f"have such heads (Zhao et al., arXiv:2409.06985). {scale(judged)}"
    )
    return Study(
        title="Markov heads before and after",
        columns=("network", "what it is", "heads", "Markov (layer.head)", "positive diagonal", "ratio"),
        rows=tuple(rows[:MAX_ROWS]),
        picture=picture,
        note=filled(note, [*changes(judged), *(one.summary() for one in judged)]),
    )


def scale(judged: Sequence[Judged]) -> str:
    """The ratios of random weights at these sizes, in a sentence."""
    tied = {one.report.head_size: math.sqrt(math.pi * one.report.head_size / 2) for one in judged}
    values = " and ".join(f"{value:.1f} for heads of {size} numbers" for size, value in sorted(tied.items()))
    return f"For scale: independent random queries and keys give 1, queries equal to keys {values}."


def draw_heads(judged: Sequence[Judged], path: Path) -> Path:
    """Plot every head's ratio and verdict, a panel per network, with one colour scale."""
    layers = [1 + max(head.layer for head in one.report.heads) for one in judged]
    heads = [1 + max(head.head for head in one.report.heads) for one in judged]
    columns = 1 if max(heads) > WIDE or len(judged) == 1 else 2
    down = -(-len(judged) // columns)
    heights = [0.9 + 0.42 * max(layers[row * columns : (row + 1) * columns]) for row in range(down)]
    figure = new_figure(WIDTH, 1.2 + sum(heights))
    grid = figure.subplots(down, columns, squeeze=False, height_ratios=heights).flatten()
    threshold = judged[0].report.threshold
    highest = 2 * threshold or max(head.ratio for one in judged for head in one.report.heads)
    for axes, one in zip(grid, judged, strict=False):
        image = draw_ratios(axes, one.report, highest)
        markov = sum(head.markov for head in one.report.heads)
        axes.set_title(f"{one.name} ({one.kind}): {markov} of {len(one.report.heads)}", fontsize=9, loc="left")
    for axes in grid[len(judged) :]:
        axes.set_visible(False)
    counted = judged[0].report.counted_in().removeprefix(", ")
    gain = f" ({counted})" if counted else ""
    title = f"Markov ratio{gain}; +: positive diagonal, framed: Markov head (r = {threshold:g})"
    entitle(figure, f"{title}\n{scale(judged)}", 9)
    figure.colorbar(image, ax=list(grid), label="ratio", pad=0.02, extend="max")
    return save_figure(figure, path)
