"""The gates of Markov heads against context length, beside the published tables.

Source: Zhao et al., ICML 2025, "Markov heads", Tables 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, DataError
from agentzoo.evaluation.study import Study
from agentzoo.nn.markov import THRESHOLD
from agentzoo.plots import entitle, new_figure, save_figure, wrapped
from agentzoo.research.analysis.agent_windows import decision_windows
from agentzoo.research.analysis.gate_report import CONTEXTS, gate_report, r_markov
from agentzoo.research.analysis.head_report import CountedHeads, markov_report
from agentzoo.research.analysis.pictures import MARKOV, OTHER, WIDTH
from agentzoo.research.studies.gate_curves import letter_of

PICTURE = "contexts.png"
PUBLISHED = {  # G_Markov against K, of agents trained with each
    "PointMaze-large": {10: 0.397, 20: 0.310, 30: 0.234, 40: 0.188, 50: 0.167},
    "Hopper-medium": {10: 0.505, 20: 0.488, 30: 0.480, 40: 0.461, 50: 0.440},
}
NAMES = "G_Markov and R_Markov are the papers' names where the heads counted are Markov heads."


class ContextGates(NamedTuple):
    """The gates of the counted heads on windows of one length."""

    agent_id: str
    context: int
    counted: CountedHeads
    g: float  # sum of their mean gates
    uniform: float
    windows: int
    trained: int  # the context it was trained with


class Looks(NamedTuple):
    """The choice of windows and heads."""

    episodes: int = 5
    seed: int = 0
    most_windows: int = 2_000
    heads: tuple[int, ...] | None = None
    threshold: float = THRESHOLD


def gates_by_context(
    agents: Sequence[Agent],
    contexts: Sequence[int] | None = None,
    looks: Looks | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
    *,
    trust_env_module: bool = False,
) -> list[ContextGates]:
    """Gates of one agent on windows of its own episodes, cut to their newest K steps; or of several, each with its K.

    A gate in the first layer reads only its own token, timestep included, so for one agent a shorter window only
    changes which tokens count. The papers have several agents, each trained with its context.

    Args:
        contexts: K; by default the published ones up to the agent's context.

    Raises:
        ConfigError: fewer than two contexts, one beyond an agent's own, or contexts for several agents; no gates.
        DataError: two of several agents have the same context, they act in different environments, or different heads
            would be counted.
    """
    looks = looks or Looks()
    if len(agents) > 1:
        if contexts:
            raise ConfigError("--context is for one agent; several agents are each measured with their own context. "
                              "Omit --context, or name one agent.")  # fmt: skip
        ordered = sorted(agents, key=lambda agent: agent.config.io.context)
        lengths = [agent.config.io.context for agent in ordered]
        if len(set(lengths)) < len(lengths):
            raise DataError(f"the agents were trained with contexts {', '.join(map(str, lengths))}; all must differ.")
        envs = sorted({str(agent.config.env) for agent in ordered})
        if len(envs) > 1:
            raise DataError(f"gates are compared in one environment, these agents act in {', '.join(envs)}.")
        _require_same_heads(ordered, looks)
        return [
            point
            for agent, length in zip(ordered, lengths, strict=True)
            for point in _look(agent, [length], looks, on_progress, trust_env_module)
        ]
    (agent,) = agents
    own = agent.config.io.context
    chosen = sorted(set(contexts or [length for length in CONTEXTS if length <= own]))
    if len(chosen) < 2 or chosen[-1] > own:
        raise ConfigError(
            f"{agent.config.agent_id} was trained with context {own}; name at least two of 1 to {own} with --context, "
            f"got {', '.join(map(str, chosen)) or 'none'}."
        )
    return _look(agent, chosen, looks, on_progress, trust_env_module)


def _require_same_heads(agents: Sequence[Agent], looks: Looks) -> None:
    """Raise DataError unless all agents count the same heads, since R compares their sums."""
    counted = {agent.config.io.context: _counted(agent, looks) for agent in agents}
    if len({one.heads for one in counted.values()}) > 1:
        found = "; ".join(f"K = {context}: {one.words()}" for context, one in counted.items())
        raise DataError(
            f"different heads would be counted ({found}), so their gates cannot be compared. Name the same heads for "
            "all with --markov-head."
        )


def _counted(agent: Agent, looks: Looks) -> CountedHeads:
    return markov_report(agent, looks.threshold).counted(looks.heads, agent.model.config)


def _look(
    agent: Agent, contexts: Sequence[int], looks: Looks, on_progress: Callable[[str], None], trust: bool
) -> list[ContextGates]:
    on_progress(f"{looks.episodes} episodes of {agent.config.agent_id}")
    counted = _counted(agent, looks)
    windows = decision_windows(
        agent, looks.episodes, looks.seed, looks.most_windows, whole=True, trust_env_module=trust
    )
    name, own = agent.config.agent_id, agent.config.io.context
    found = gate_report(agent, windows, counted.heads, contexts)
    return [
        ContextGates(name, k, counted, found.by_context[min(k, found.context)], found.uniform, found.windows, own)
        for k in contexts
    ]


def relative(points: Sequence[ContextGates]) -> dict[int, float]:
    """R of each context: percent of G at 10, or at the shortest context."""
    g = {point.context: point.g for point in points}
    return r_markov(g, base_of(points))


def base_of(points: Sequence[ContextGates]) -> int:
    """The reference context of R."""
    lengths = [point.context for point in points]
    return CONTEXTS[0] if CONTEXTS[0] in lengths else min(lengths)


def as_study(points: Sequence[ContextGates], picture: str | None = PICTURE) -> Study:
    """G and R at each context, beside the published ones."""
    base, shares = base_of(points), relative(points)
    published = {task: r_markov(g, base) if base in g else {} for task, g in PUBLISHED.items()}
    rows = []
    for one in points:
        printed = [_percent(values.get(one.context)) for values in published.values()]
        cells = (str(one.context), one.agent_id, one.counted.words(), f"{one.g:.3f}", f"{one.uniform:.3f}")
        rows.append((*cells, _percent(shares[one.context]), *printed))
    g, r = (letter_of([one.counted for one in points], letter) for letter in "GR")
    return Study(
        title="Gates against context length",
        columns=("K", "agent", "heads counted", g, "if all had the same", f"{r} (of K = {base})", *_printed(r)),
        rows=tuple(rows),
        picture=picture,
        note=f"{_ways(points)} G is the sum of the counted heads' gates in the first layer, mean over real tokens, R "
        f"its share of G at K = {base}. {NAMES} Published: Zhao et al., ICML 2025, Tables 5 and 6, GPT-2 small with "
        "three Markov heads of twelve, an agent trained with each K; R computed from the printed G.",
    )


def _ways(points: Sequence[ContextGates]) -> str:
    counts = sorted({one.windows for one in points})
    looked = (
        f"{' to '.join(f'{count:,}' for count in sorted({counts[0], counts[-1]}))} windows of the agent's own episodes"
    )
    if len({one.trained for one in points}) > 1:
        return f"Each agent was trained with its K; {looked} each."
    return (
        f"One agent, trained with K = {points[0].trained}; {looked}, cut to their newest K steps. A gate of the first "
        "layer reads only its own token, so K changes which tokens are counted, but no gate. To see the effect of "
        "training with K, compare agents trained with each K."
    )


def draw_contexts(points: Sequence[ContextGates], path: Path) -> Path:
    """Plot G beside its value for equal gates, and R beside the published ones."""
    base, shares = base_of(points), relative(points)
    lengths = [one.context for one in points]
    words = sorted({one.counted.words() for one in points})
    g, r = (letter_of([one.counted for one in points], letter) for letter in "GR")
    figure = new_figure(WIDTH, 3.7)
    left, right = figure.subplots(1, 2)
    label = words[0] if len(words) == 1 else "counted"
    left.plot(lengths, [one.g for one in points], "o-", color=MARKOV, label=wrapped(label))
    left.plot(lengths, [one.uniform for one in points], "--", color="0.5", linewidth=1, label="all heads the same")
    left.set_ylim(0.0, 1.35 * max(max(one.g, one.uniform) for one in points))
    left.set_ylabel(f"{g}, layer 0")
    right.plot(lengths, [shares[length] for length in lengths], "o-", color=MARKOV, label="ours")
    for style, (task, values) in zip(("s:", "^:"), PUBLISHED.items(), strict=True):
        if base in values:
            printed = r_markov(values, base)
            right.plot(
                list(printed), list(printed.values()), style, color=OTHER, markersize=4, label=f"published, {task}"
            )
    right.set_ylim(0.0, None)
    right.set_ylabel(f"{r}, % of K = {base}")
    for axes in (left, right):
        axes.set_xlabel("context K, steps")
        axes.set_xticks(lengths)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="upper right" if axes is left else "lower left")
    if len({one.trained for one in points}) > 1:
        looked = f"{len(points)} agents, each trained with its K ({points[-1].agent_id} with {points[-1].trained})"
    else:
        looked = f"{points[0].agent_id}, windows cut to K"
    entitle(figure, f"Gates against context length: {looked}", 10)
    return save_figure(figure, path)


def _printed(letter: str) -> list[str]:
    return [f"published {letter}, {task}" for task in PUBLISHED]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1f} %"
