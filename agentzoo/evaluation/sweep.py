"""Asked against achieved return: does the agent do what it is told?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.evaluation.results import Result, evaluate


def sweep(
    agent: Agent,
    targets: Sequence[float],
    episodes: int = 20,
    *,
    seed: int = 0,
    on_target: Callable[[], None] = lambda: None,
) -> tuple[Result, ...]:
    """One evaluation a target, the same episode seeds for all."""
    found = []
    for target in targets:
        found.append(evaluate(agent, episodes=episodes, seed=seed, target_return=float(target)))
        on_target()
    return tuple(found)


def even_targets(highest: float, count: int = 8) -> list[float]:
    """`count` targets, evenly spaced, the last one `highest`."""
    return [highest * (i + 1) / count for i in range(count)]


def rank_correlation(results: Sequence[Result]) -> float:
    """Spearman's correlation of asked and mean achieved return.

    Raises:
        ConfigError: fewer than three targets.
    """
    from scipy.stats import spearmanr

    if len(results) < 3:
        raise ConfigError(f"a rank correlation needs at least three targets, got {len(results)}.")
    return float(spearmanr([r.target_return for r in results], [r.mean_return for r in results]).statistic)


def plot_sweep(results: Sequence[Result], path: Path, best_in_data: float | None = None) -> None:
    """Achieved return with its interval over the asked one, the diagonal, and the best episode of the data."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    asked = [r.target_return for r in results]
    means = [r.mean_return for r in results]
    low = [r.mean_return - r.return_interval[0] for r in results]
    high = [r.return_interval[1] - r.mean_return for r in results]
    figure, axes = pyplot.subplots(figsize=(6, 4.2), dpi=110)
    axes.plot([0, max(asked)], [0, max(asked)], color="0.6", linestyle="--", linewidth=1, label="asked = achieved")
    if best_in_data is not None:
        axes.axhline(best_in_data, color="0.6", linestyle=":", linewidth=1, label="best episode of the data")
    axes.errorbar(asked, means, yerr=[low, high], marker="o", capsize=3, color="#2b6cb0", label="mean, 95 % interval")
    axes.set_xlabel("return asked for")
    axes.set_ylabel(f"return achieved ({results[0].episodes} episodes)")
    axes.set_title(f"{results[0].agent_id} on {results[0].env}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
