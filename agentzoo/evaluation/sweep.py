"""Sweeps over target returns: does the agent achieve the return it is conditioned on?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.errors import ConfigError
from agentzoo.evaluation.results import Result, evaluate
from agentzoo.evaluation.rollout import OnEpisode
from agentzoo.evaluation.study import MAX_CELL, MAX_COLUMNS, Study
from agentzoo.extras import needed
from agentzoo.plots import new_figure, save_figure
from agentzoo.text import amount, counted

MIN_RANKED = 3  # targets for a rank correlation
MAX_AGENTS = MAX_COLUMNS - 1  # in one table


def sweep(
    agent: Agent,
    targets: Sequence[float],
    episodes: int = 20,
    *,
    seed: int = 0,
    trust_env_module: bool = False,
    on_target: Callable[[], None] = lambda: None,
    on_episode: OnEpisode = lambda _: None,
) -> tuple[Result, ...]:
    """One evaluation per target return, with the same episode seeds for all."""
    found = []
    for target in targets:
        asked = float(target)
        found.append(
            evaluate(
                agent,
                episodes=episodes,
                seed=seed,
                target_return=asked,
                trust_env_module=trust_env_module,
                on_episode=on_episode,
            )
        )
        on_target()
    return tuple(found)


def by_title(agents: Mapping[str, Agent]) -> dict[str, Agent]:
    """Named agents by their titles in a table: the agent's id, or its name if ids are equal.

    Raises:
        ConfigError: the agents act in different environments or with other options of one, so their returns are not
            comparable.
    """
    envs = sorted({_environment(agent.config) for agent in agents.values()})
    if len(envs) > 1:
        raise ConfigError(f"these agents act in different environments: {', '.join(envs)}. Measure each separately.")
    ids = [agent.config.agent_id for agent in agents.values()]
    return {
        agent_id if ids.count(agent_id) == 1 else name: agent
        for (name, agent), agent_id in zip(agents.items(), ids, strict=True)
    }


def _environment(config: AgentConfig) -> str:
    """The environment of an agent, with its options."""
    options = ", ".join(f"{name}={value!r}" for name, value in sorted(config.env_options.items()))
    return f"{config.env} with {options}" if options else str(config.env)


def even_targets(highest: float, count: int = 8, lowest: float = 0.0) -> list[float]:
    """`count` targets, evenly spaced above `lowest` up to `highest`.

    Raises:
        ConfigError: `highest` is not above `lowest`.
    """
    if not lowest < highest:
        raise ConfigError(
            f"the largest target return, {highest:g}, must be above {lowest:g}; set a lower --from if returns are "
            "negative."
        )
    return [lowest + (highest - lowest) * (i + 1) / count for i in range(count)]


def rank_correlation(results: Sequence[Result]) -> float | None:
    """Spearman's correlation of target and mean achieved return; None if all targets or all achieved returns are equal.

    Raises:
        ConfigError: fewer than three targets.
    """
    if len(results) < MIN_RANKED:
        raise ConfigError(f"a rank correlation needs at least {MIN_RANKED} targets, got {len(results)}.")
    asked, achieved = [one.target_return for one in results], [one.mean_return for one in results]
    if 1 in (len(set(asked)), len(set(achieved))):  # nothing to rank; scipy returns NaN
        return None
    stats = needed("scipy.stats", "train", "a rank correlation")
    return float(stats.spearmanr(asked, achieved).statistic)


def as_study(sweeps: Mapping[str, Sequence[Result]], picture: str, best_in_data: float | None = None) -> Study:
    """The table for a card: one row per target, one column per agent title; at most `MAX_AGENTS` agents."""
    first = next(iter(sweeps.values()))
    rows = []
    for i, one in enumerate(first):
        cells = (results[i].return_in_words() for results in sweeps.values())
        rows.append((f"{one.target_return:g}", *cells))
    best = "" if best_in_data is None else f" The best return in the data is {amount(best_in_data)}."
    return Study(
        title="Return against target return",
        columns=("target", *(title[-MAX_CELL:] for title in sweeps)),  # folder names differ at the end
        rows=tuple(rows),
        picture=picture,
        note=f"Return achieved over {counted(first[0].episodes, 'episode')} per target, with the same episode seeds "
        f"for all; brackets are 95 % bootstrap intervals.{best}",
    )


COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")


def draw_returns(axes: Any, at: Sequence[float], results: Sequence[Result], color: str, label: str) -> None:
    """Draw one curve: the mean returns with their intervals at these positions."""
    means = [one.mean_return for one in results]
    low = [max(one.mean_return - one.return_interval[0], 0.0) for one in results]  # below 0 by rounding
    high = [max(one.return_interval[1] - one.mean_return, 0.0) for one in results]
    axes.errorbar(at, means, yerr=[low, high], marker="o", capsize=3, color=color, label=label)


def plot_sweeps(sweeps: Mapping[str, Sequence[Result]], path: Path, best_in_data: float | None = None) -> None:
    """Plot achieved return with its interval against target return, one curve per agent, and the data's best return."""
    first, alone = next(iter(sweeps.values()))[0], len(sweeps) == 1
    every = [one.target_return for results in sweeps.values() for one in results]
    lowest, highest = min(0.0, *every), max(every)
    figure = new_figure(6, 4.2, layout=None)
    axes = figure.add_subplot()
    axes.plot([lowest, highest], [lowest, highest], color="0.6", linestyle="--", linewidth=1, label="target = achieved")
    if best_in_data is not None:
        axes.axhline(best_in_data, color="0.6", linestyle=":", linewidth=1, label="best return in the data")
        if best_in_data < highest:
            axes.axvline(best_in_data, color="0.6", linestyle=":", linewidth=1)
    for (title, results), color in zip(sweeps.items(), cycle(COLORS), strict=False):
        asked = [one.target_return for one in results]
        draw_returns(axes, asked, results, color, "mean, 95 % interval" if alone else title)
    axes.set_xlabel("target return")
    axes.set_ylabel(f"achieved return ({counted(first.episodes, 'episode')})")
    axes.set_title(f"{first.agent_id} on {first.env}" if alone else first.env)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    save_figure(figure, path)
