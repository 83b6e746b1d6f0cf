"""Reward and goals in the dense maze: one masked network acts in three ways.

Cloned: it sees only the past. With a return: its target is a tenth above the return of the training episode with the
most similar start and goal. With a goal: the last step of its window shows a position on the straight line to the goal,
as far ahead as the data usually gets in the remaining steps, possibly behind a wall. Those are K-1 steps at the start
of an episode, and one step once the window is full.

Source: Carroll et al. 2022, arXiv:2211.10869, section 5 and appendix.
Differs: the reference also compares start velocities, which our observations leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.agent import Agent
from agentzoo.data.episodes import Episodes
from agentzoo.data.spaces import GOAL_KEY
from agentzoo.envs import MAZE2D_DENSE
from agentzoo.envs.maze2d import REACHED
from agentzoo.errors import ConfigError
from agentzoo.evaluation.environments import open_envs
from agentzoo.evaluation.rollout import run_seeded
from agentzoo.evaluation.scores import mean_interval
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.evaluation.study import Study
from agentzoo.models.unimask import UniMask

FACTOR = 1.1  # of the nearest episode's return; the published code has 1.2
# K = 10, mean ± standard error of 5 seeds
PUBLISHED = {"cloned": "2.293 ± 0.071", "with a return": "2.306 ± 0.061"}


Array = NDArray[np.float64]


class GoalAhead(gym.ObservationWrapper[Any, NDArray[np.float32], Array]):
    """Adds the position for the end of the window: on the straight line to the goal, at most at the goal.

    Args:
        reach: metres within 1, 2, ... K-1 steps.
        history: the newest steps that the agent reads; None for the whole window.
    """

    def __init__(
        self, env: gym.Env[Array, NDArray[np.float32]], reach: Sequence[float], history: int | None = None
    ) -> None:
        super().__init__(env)
        self.reach, self.history = reach, history or len(reach) + 1
        self.taken = 0  # steps of the episode
        own = env.observation_space
        self.observation_space = gym.spaces.Dict({"observation": own, GOAL_KEY: own})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """As the environment's `reset`, with the goal K-1 steps away."""
        self.taken = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: NDArray[np.float32]) -> Any:
        """As the environment's `step`; the end of the window comes nearer until the steps that are read fill up."""
        self.taken += 1
        return super().step(action)

    def observation(self, observation: Array) -> dict[str, Array]:
        """(4,) -> a dict of the observation (4,) and the goal (4,)."""
        point, goal = observation[:2], observation[2:]
        way = goal - point
        read = min(self.taken + 1, self.history, len(self.reach))  # steps before the end of the window
        reach = self.reach[len(self.reach) - read]
        share = min(1.0, reach / max(float(np.linalg.norm(way)), 1e-9))
        return {"observation": observation, GOAL_KEY: np.concatenate((point + share * way, goal))}


def usual_reach(data: Episodes, steps: int) -> float:
    """Median distance in metres of a point from its position `steps` later, over data away from the goal.

    Raises:
        ConfigError: no episode is long enough, or all are near the goal after so many steps.
    """
    starts = data.starts
    froms = [np.arange(start, start + length - steps) for start, length in zip(starts, data.lengths, strict=True)]
    first = np.concatenate(froms)
    last = data.observations[first + steps]
    under_way = np.linalg.norm(last[:, 2:] - last[:, :2], axis=1) > REACHED
    if not under_way.any():
        raise ConfigError(f"{data.dataset} has no {steps} steps that end away from the goal; is it a maze dataset?")
    moved = np.linalg.norm(last[:, :2] - data.observations[first][:, :2], axis=1)
    return float(np.median(moved[under_way]))


class Way(NamedTuple):
    """One way to act and its results."""

    name: str
    returns: NDArray[np.float64]
    successes: NDArray[np.bool_]


def nearest_targets(starts: NDArray[np.float32], data: Episodes, factor: float = FACTOR) -> NDArray[np.float64]:
    """(N,) target returns: `factor` times the return of the training episode with the nearest first observation.

    Args:
        starts: (N, 4) first observations: x, y of the point and of the goal, equally weighted.
    """
    known = data.observations[data.starts]  # (E, 4)
    nearest = np.linalg.norm(starts[:, None] - known[None], axis=-1).argmin(axis=1)
    return np.asarray(factor * data.returns[nearest])


def three_ways(
    agent: Agent, data: Episodes, episodes: int, seed: int = 0, *, trust_env_module: bool = False
) -> list[Way]:
    """Run the same `episodes` starts in each way, all side by side.

    Raises:
        ConfigError: not a masked agent of such an environment.
    """
    model = agent.require_masked("run in three ways")
    if not isinstance(model, UniMask) or agent.config.io.observation.shapes != ((4,),):
        raise ConfigError(
            f"{agent.config.agent_id} is a {model.config.family!r} network for {agent.config.env}; only a 'unimask' "
            f"network with the observations of {MAZE2D_DENSE} can be run in three ways."
        )
    reach = [usual_reach(data, steps) for steps in range(1, agent.config.io.context)]
    conditioned = model.acts_on_returns
    ways = []
    try:
        with open_envs(agent, None, episodes, trust_env_module=trust_env_module) as envs:
            starts = np.stack([env.reset(seed=episode_seed(seed, e))[0] for e, env in enumerate(envs)])
            targets = nearest_targets(starts.astype(np.float32), data)
            for name in ("cloned", "with a return", "with a goal"):
                model.acts_on_returns = name == "with a return"
                agent.condition(target_return=targets)
                seen: list[gym.Env[Any, Any]] = envs
                if "goal" in name:
                    seen = [GoalAhead(env, reach, agent.history) for env in envs]
                found = run_seeded(agent, seen, episodes, seed)
                totals = np.array([one.total_reward for one in found])
                ways.append(Way(name, totals, np.array([bool(one.success) for one in found])))
    finally:
        model.acts_on_returns = conditioned
        agent.condition()
    return ways


def as_study(ways: list[Way], data: Episodes) -> Study:
    """The table for a card."""
    rows = []
    for way in ways:
        low, high = mean_interval(way.returns)
        reached = f"{100 * way.successes.mean():.0f} %"
        measured = f"{way.returns.mean():.3f} [{low:.3f}, {high:.3f}]"
        rows.append((way.name, measured, reached, PUBLISHED.get(way.name, "")))
    note = _note(len(ways[0].returns), float(data.returns.mean()))
    columns = ("acting", "metres covered", "goal in reach at the end", "published")
    return Study(title="Three ways to act", columns=columns, rows=tuple(rows), note=note)


def _note(episodes: int, controller: float) -> str:
    return (
        f"Cloned: it reads only the past. With a return: its target is {FACTOR:g} times the return of the training "
        "episode with the most similar start and goal. With a goal: the last step of its window shows a position on "
        "the straight line to the goal, which may cross a wall, as far ahead as the data usually gets by then. "
        f"{episodes} episodes of 200 steps each, the same starts in every way; brackets hold 95 % bootstrap intervals. "
        f"The data's own controller returns {controller:.2f} on average. "
        "Published: from the authors' notebook, not the paper's tables; Uni[MASK] trained on random masks, windows of "
        "10, mean and standard error of 5 seeds, each its best checkpoint by 1,000 rollouts (ours: the last), "
        "targets of 1.2 times the return, on other physics and its own 1,000 episodes."
    )
