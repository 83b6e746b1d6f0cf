"""The return of a DoorKey agent beside the best possible return from each of its starts."""

from __future__ import annotations

import numpy as np

from agentzoo.envs import DOORKEY, DOORKEY_STEPS
from agentzoo.envs.doorkey import DoorKeyEnv
from agentzoo.envs.doorkey_rules import MOVES, GridState, path_distance, transition
from agentzoo.errors import ConfigError
from agentzoo.evaluation.results import Result
from agentzoo.evaluation.seeds import episode_seed
from agentzoo.evaluation.study import Study
from agentzoo.text import counted


def best_return(start: GridState, steps: int = DOORKEY_STEPS) -> int:
    """The largest return within exactly `steps` steps from `start`, by trying all of them."""
    reached = {start}
    for _ in range(steps):
        reached = {transition(state, action) for state in reached for action in range(len(MOVES))}
    return path_distance(start.agent) - min(path_distance(state.agent) for state in reached)


def optimum(result: Result) -> Study:
    """The agent's return and the best possible one over the episodes of `result`, by what the start allows.

    Raises:
        ConfigError: it is of another environment.
    """
    if result.env != DOORKEY:
        raise ConfigError(f"{result.agent_id} was evaluated in {result.env}; the best return is known for {DOORKEY}.")
    env = DoorKeyEnv()
    best = []
    for episode in range(result.episodes):
        env.reset(seed=episode_seed(result.seed, episode))
        best.append(best_return(env.state))
    allowed, reached = np.array(best), np.array(result.returns)
    rows = []
    for value in (*sorted(set(best)), None):
        chosen = np.ones(len(best), dtype=bool) if value is None else allowed == value
        rows.append(
            (
                f"all: {allowed.mean():.2f}" if value is None else str(value),
                str(chosen.sum()),
                f"{reached[chosen].mean():.2f}",
                f"{(reached == allowed)[chosen].mean():.0%}",
            )
        )
    note = (
        f"Of the {counted(result.episodes, 'episode')}, {(reached == allowed).mean():.0%} cannot be played better in "
        f"{DOORKEY_STEPS} steps. The best return is found by trying all action sequences from the same start."
    )
    return Study(
        title="Beside the best possible",
        columns=("best possible", "episodes", "this agent", "episodes at the best"),
        rows=tuple(rows),
        note=note,
    )
