"""Return against context length, of one agent that reads fewer and fewer steps, or of an agent trained for each length.

The first needs no training, since a training window of K steps also holds every shorter history. The second is what the
papers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.evaluation.results import Result, evaluate
from agentzoo.evaluation.study import MAX_CELL, Study
from agentzoo.evaluation.sweep import COLORS, draw_returns
from agentzoo.plots import new_figure, save_figure
from agentzoo.text import amount, counted

PICTURE = "histories.png"
LENGTHS = (1, 2, 5, 10, 20, 50)
X_READ, X_TRAINED = "steps read", "steps in a window"  # the first column, and the x-axis
OF_ONE = (
    "Each agent is one training, which reads fewer steps of its window here; the papers train an agent for each length."
)
OF_EACH = "Each number is a training of its own, with windows of that length; one training seed each."
APART = 0.03  # distance of two curves, as a share of the length


def lengths_of(agent: Agent, wanted: Sequence[int] = ()) -> list[int]:
    """The `wanted` lengths that fit into the agent's window, ascending; by default `LENGTHS` and the whole window.

    Raises:
        ConfigError: fewer than two are left, so there is nothing to compare, or one is below 1.
    """
    name, whole = agent.config.agent_id, agent.config.io.context
    chosen = sorted({length for length in (wanted or (*LENGTHS, whole)) if length <= whole})
    if chosen and chosen[0] < 1:
        raise ConfigError(f"a history has at least 1 step, got {chosen[0]}.")
    if len(chosen) < 2:
        among = f" among {', '.join(map(str, wanted))}." if wanted else "."
        hint = f" Name two or more lengths from 1 to {whole} (--steps)." if whole > 1 else ""
        raise ConfigError(
            f"{name} reads windows of {counted(whole, 'step')}, so there is nothing to compare{among}{hint}"
        )
    return chosen


def require_fitting(agents: Sequence[Agent], wanted: Sequence[int]) -> None:
    """Raise ConfigError if a wanted length fits into no agent's window; `lengths_of` would leave it out."""
    longest = max(agent.config.io.context for agent in agents)
    if beyond := sorted(length for length in set(wanted) if length > longest):
        raise ConfigError(
            f"the longest window here has {counted(longest, 'step')}, so nothing reads {', '.join(map(str, beyond))}; "
            "name shorter lengths (--steps)."
        )


def measure_histories(
    agent: Agent,
    lengths: Sequence[int],
    episodes: int = 20,
    *,
    seed: int = 0,
    trust_env_module: bool = False,
    on_length: Callable[[], None] = lambda: None,
) -> tuple[Result, ...]:
    """One evaluation per length, with the same target return and episode seeds for all.

    The agent acts from windows. Its acting mode and history are restored afterwards.

    Args:
        lengths: numbers of newest steps that it reads, each from 1 to its context.

    Raises:
        ConfigError: a length is out of range.
    """
    mode, history = agent.acting, agent.history
    found = []
    try:
        if mode != "window":
            agent.acting = "window"
        for length in lengths:
            agent.history = length
            found.append(evaluate(agent, episodes=episodes, seed=seed, trust_env_module=trust_env_module))
            on_length()
    finally:
        agent.history = history
        if mode != "window":
            agent.acting = mode
    return tuple(found)


def trained_lengths(agents: Sequence[Agent]) -> dict[str, list[Agent]]:
    """The trainings of each agent id, by the length of their windows, ascending.

    Raises:
        ConfigError: two trainings of an id have windows of one length, or there is only one.
    """
    grouped: dict[str, list[Agent]] = {}
    for agent in sorted(agents, key=lambda one: one.config.io.context):
        grouped.setdefault(agent.config.agent_id, []).append(agent)
    for name, trainings in grouped.items():
        lengths = [one.config.io.context for one in trainings]
        if len(lengths) < 2 or len(set(lengths)) < len(lengths):
            raise ConfigError(
                f"the trainings of {name} have windows of {', '.join(map(str, lengths))} steps; name two or more of "
                "different lengths."
            )
    return grouped


def as_study(found: Mapping[str, Sequence[Result]], picture: str = PICTURE, trained: bool = False) -> Study:
    """The table for a card: one row per length, one column per agent title; empty where an agent lacks the length.

    Args:
        trained: the results of a title are of different trainings, each with windows of that length.
    """
    first = next(iter(found.values()))[0]
    read = {title: {one.history: one for one in results} for title, results in found.items()}
    lengths = sorted({length for each in read.values() for length in each if length is not None})
    rows = [(str(length), *(_cell(each.get(length)) for each in read.values())) for length in lengths]
    return Study(
        title="Return against context length",
        columns=(X_TRAINED if trained else X_READ, *(title[-MAX_CELL:] for title in found)),  # ends differ
        rows=tuple(rows),
        picture=picture,
        note=f"Return and mean length of {counted(first.episodes, 'episode')} (--seed {first.seed}), the same for all; "
        "brackets are 95 % bootstrap intervals. " + (OF_EACH if trained else OF_ONE),
    )


def _cell(one: Result | None) -> str:
    return "" if one is None else f"{one.return_in_words()}, {amount(one.mean_length)} steps"


def draw_histories(found: Mapping[str, Sequence[Result]], path: Path, trained: bool = False) -> Path:
    """Plot the return with its interval against the number of steps, one curve per agent; `trained` as `as_study`."""
    first = next(iter(found.values()))[0]
    figure = new_figure(6, 4.2)
    axes = figure.add_subplot()
    for i, ((title, results), color) in enumerate(zip(found.items(), cycle(COLORS), strict=False)):
        aside = 1.0 + APART * i  # equal returns stay visible
        draw_returns(axes, [aside * (one.history or 0) for one in results], results, color, title)
    ticks = sorted({one.history for results in found.values() for one in results if one.history is not None})
    axes.set_xscale("log")
    axes.set_xticks(ticks, labels=[str(length) for length in ticks])
    axes.minorticks_off()
    axes.set_xlabel(X_TRAINED if trained else X_READ)
    axes.set_ylabel(f"return ({counted(first.episodes, 'episode')})")
    axes.set_title(first.env)
    low, high = axes.get_ylim()
    low = min(0.0, low)
    axes.set_ylim(low, high + 0.05 * (high - low))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return save_figure(figure, path)
