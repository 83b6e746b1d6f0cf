"""Reward and goals in the dense maze: one masked network asked to act in three ways.

Cloned: it sees the past alone. With a return: it is asked for a tenth more than the training episode with the most
similar start and goal brought. With a goal: it is shown itself at the goal, at the end of its window.

Source: Carroll et al. 2022, arXiv:2211.10869, section 5 and appendix.
Differs: the reference also compares start velocities, which our observations leave out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.agent import Agent
from agentzoo.data.episodes import Episodes
from agentzoo.evaluation.rollout import env_of, evaluation_seed, run_seeded
from agentzoo.evaluation.scores import mean_interval
from agentzoo.evaluation.study import Study
from agentzoo.models.unimask import UniMask

FACTOR = 1.1  # of the nearest episode's return; the published code has 1.2
PUBLISHED = {"cloned": "2.293 ± 0.071", "with a return": "2.306 ± 0.061"}  # K = 10, 5 seeds, mean ± standard error


class Way(NamedTuple):
    """One way to act and what came of it."""

    name: str
    returns: NDArray[np.float64]
    successes: NDArray[np.bool_]


def nearest_targets(starts: NDArray[np.float32], data: Episodes, factor: float = FACTOR) -> NDArray[np.float64]:
    """(N,) returns to ask for: `factor` times that of the training episode with the nearest first observation.

    Args:
        starts: (N, 4) first observations: x, y of the point and of the goal, which weigh alike.
    """
    known = data.observations[data.starts]  # (E, 4)
    nearest = np.linalg.norm(starts[:, None] - known[None], axis=-1).argmin(axis=1)
    return np.asarray(factor * data.returns[nearest])


def three_ways(agent: Agent, data: Episodes, episodes: int, seed: int = 0) -> list[Way]:
    """Run the same `episodes` starts in each way, all side by side.

    Raises:
        ConfigError: not a masked agent of an environment of this kind.
    """
    model = agent.require_masked("run in three ways")
    assert isinstance(model, UniMask)
    conditioned = model.acts_on_returns
    envs = [env_of(agent, None) for _ in range(episodes)]
    starts = np.stack([env.reset(seed=evaluation_seed(seed, e))[0] for e, env in enumerate(envs)]).astype(np.float32)
    at_goal = np.concatenate([starts[:, 2:], starts[:, 2:]], axis=1)
    ways = []
    try:
        for name in ("cloned", "with a return", "with a goal"):
            model.acts_on_returns = name == "with a return"
            agent.condition(
                goal=at_goal if name == "with a goal" else None, target_return=nearest_targets(starts, data)
            )
            found = run_seeded(agent, envs, episodes, seed)
            totals = np.array([one.total_reward for one in found])
            ways.append(Way(name, totals, np.array([bool(one.success) for one in found])))
    finally:
        model.acts_on_returns = conditioned
        agent.condition()
        for env in envs:
            env.close()
    return ways


def as_study(ways: list[Way], data: Episodes) -> Study:
    """The table for a card."""
    rows = []
    for way in ways:
        low, high = mean_interval(way.returns)
        reached = f"{100 * way.successes.mean():.0f} %"
        measured = f"{way.returns.mean():.3f} [{low:.3f}, {high:.3f}]"
        rows.append((way.name, measured, reached, PUBLISHED.get(way.name, "")))
    count = len(ways[0].returns)
    note = (
        f"{count} episodes of 200 steps each, the same starts in every way; brackets hold 95 % bootstrap intervals. "
        f"The data's own controller returns {data.returns.mean():.2f} on average. Published: Uni[MASK] trained on "
        "random masks, windows of 10, mean and standard error of 5 seeds, on other physics and its own 1,000 episodes."
    )
    columns = ("acting", "metres covered", "goal in reach at the end", "published")
    return Study(title="Three ways to act", columns=columns, rows=tuple(rows), note=note)
