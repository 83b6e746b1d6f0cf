"""Evaluations of runs and staged agents, stored beside the weights so that nothing is measured twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError
from agentzoo.evaluation.results import Result, evaluate
from agentzoo.evaluation.rollout import OnEpisode, is_deterministic
from agentzoo.hub.verify import check_files
from agentzoo.record import read_record
from agentzoo.store.files import RECIPE, RESULT, RESULTS, write_atomic
from agentzoo.store.named import require_finished
from agentzoo.text import counted


def measured(
    run: Path,
    episodes: int,
    on_progress: Callable[[str], None] = lambda _: None,
    trust_env_module: bool = False,
    or_more: bool = False,
    on_episode: OnEpisode = lambda _: None,
    target_return: float | None = None,
) -> Result:
    """The evaluation of a run's final weights: the stored one, or a new one.

    A new evaluation is stored unless the stored one has more episodes, or another target than the run's was asked for.

    Args:
        or_more: accept a stored evaluation of more episodes.
        target_return: raw units; the run's own by default.
        on_episode: called with each played episode.
    """
    agent = load_finished(run, trust_env_module)
    path, stores = run / RESULT, target_return in (None, agent.target_return)
    kept = read_record(Result, path) if stores and path.is_file() else None
    if kept is not None and not _asked_alike(kept, agent):
        kept = None
    if kept is not None and (kept.episodes == episodes or (or_more and kept.episodes > episodes)):
        return kept
    on_progress(f"{counted(episodes, 'episode')} of {run.name}")
    found = evaluate(
        agent,
        episodes=episodes,
        target_return=target_return,
        trust_env_module=trust_env_module,
        on_episode=on_episode,
    )
    found = found.model_copy(update={"command": None})  # an id names the staged agent, not this run
    if stores and (kept is None or kept.episodes < episodes):
        write_atomic(path, found.to_json())
    return found


def headline(
    folder: Path, episodes: int, on_progress: Callable[[str], None] = lambda _: None, trust_env_module: bool = False
) -> Result:
    """The result of a run's final weights (`measured`), or the headline of a staged agent.

    Args:
        episodes: minimum number, for a run.

    Raises:
        CheckpointError: no finished run, or a record that does not match the weights beside it.
    """
    return trainings(folder, episodes, on_progress, trust_env_module)[0]


def trainings(
    folder: Path, episodes: int, on_progress: Callable[[str], None] = lambda _: None, trust_env_module: bool = False
) -> tuple[Result, ...]:
    """`headline`, followed by the other training seeds that a staged agent's record holds.

    Raises:
        CheckpointError: as `headline`.
    """
    if not (folder / RESULTS).is_file():
        return (measured(folder, episodes, on_progress, trust_env_module, or_more=True),)
    _, results, checks = check_files(folder)
    wrong = [check.details for check in checks if check.name in ("weights", "results") and check.holds is False]
    if results is None or wrong:
        raise CheckpointError(
            f"{folder} holds no valid record: {'; '.join(wrong)}. `agentzoo hub verify {folder}` shows details."
        )
    return (results.headline, *results.seeds)


def _asked_alike(kept: Result, agent: Agent) -> bool:
    """Whether `kept` has the settings of a new evaluation of these weights, apart from the number of episodes."""
    config = agent.config
    asked = (agent.target_return, agent.acting, agent.history_in_use, is_deterministic(agent), 0)
    wanted = (config.weights_sha256, config.env, *asked)
    return wanted == (
        kept.weights_sha256,
        kept.env,
        kept.target_return,
        kept.acting,
        kept.history,
        kept.deterministic,
        kept.seed,
    )


def load_finished(run: Path, trust_env_module: bool = False) -> Agent:
    """The agent of a finished run, with its recipe.

    Raises:
        CheckpointError: not finished, or without a recipe.
    """
    require_finished(run)
    agent = Agent.from_pretrained(run, trust_env_module=trust_env_module)
    if agent.recipe is None:
        raise CheckpointError(f"{run} lacks {RECIPE}.")
    return agent
