"""Evaluations of runs and staged agents, kept beside their weights so that nothing is measured twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError
from agentzoo.evaluation.results import Result, evaluate
from agentzoo.evaluation.rollout import OnEpisode
from agentzoo.hub.verify import check_files
from agentzoo.record import read_record
from agentzoo.store.files import CONFIG, RECIPE, RESULT, RESULTS, WEIGHTS, write_atomic
from agentzoo.text import counted


def measured(
    run: Path,
    episodes: int,
    on_progress: Callable[[str], None] = lambda _: None,
    trust_env_module: bool = False,
    or_more: bool = False,
    on_episode: OnEpisode = lambda _: None,
) -> Result:
    """The evaluation of a run's final weights: the one kept beside them, or a new one.

    A new one is then kept, unless the one there is of more episodes.

    Args:
        or_more: one of more episodes will do, too.
        on_episode: called with each episode that is played.
    """
    agent = load_finished(run, trust_env_module)
    path = run / RESULT
    kept = read_record(Result, path) if path.is_file() else None
    if kept is not None and not _asked_alike(kept, agent):
        kept = None
    if kept is not None and (kept.episodes == episodes or (or_more and kept.episodes > episodes)):
        return kept
    on_progress(f"{counted(episodes, 'episode')} of {run.name}")
    found = evaluate(agent, episodes=episodes, trust_env_module=trust_env_module, on_episode=on_episode)
    found = found.model_copy(update={"command": None})  # an id names what is staged, not this run
    if kept is None or kept.episodes < episodes:
        write_atomic(path, found.to_json())
    return found


def headline(
    folder: Path, episodes: int, on_progress: Callable[[str], None] = lambda _: None, trust_env_module: bool = False
) -> Result:
    """What a run's final weights score (`measured`), or what a staged agent's record says they do.

    Args:
        episodes: at least, of a run.

    Raises:
        CheckpointError: no finished run, or a record that is not of the weights beside it.
    """
    if not (folder / RESULTS).is_file():
        return measured(folder, episodes, on_progress, trust_env_module, or_more=True)
    _, results, checks = check_files(folder)
    wrong = [check.said for check in checks if check.name in ("weights", "results") and check.holds is False]
    if results is None or wrong:
        raise CheckpointError(
            f"{folder} holds no sound record: {'; '.join(wrong)}. `agentzoo hub verify {folder}` says more."
        )
    return results.headline


def _asked_alike(kept: Result, agent: Agent) -> bool:
    """Whether `kept` is what evaluating these weights again would give: somebody may have measured otherwise.

    But for the number of episodes.
    """
    config = agent.config
    wanted = (config.weights_sha256, config.env, agent.target_return, agent.acting, True, 0)
    return wanted == (
        kept.weights_sha256,
        kept.env,
        kept.target_return,
        kept.acting,
        kept.deterministic,
        kept.seed,
    )


def is_finished(run: Path) -> bool:
    """Whether a training in this folder has come to its end."""
    return (run / WEIGHTS).is_file() and (run / CONFIG).is_file()


def require_finished(run: Path) -> None:
    """Raise CheckpointError unless a training in this folder has come to its end, or an agent is staged there."""
    if not is_finished(run):
        raise CheckpointError(
            f"{run} holds no finished run ({WEIGHTS} and {CONFIG}); `agentzoo train` goes on with one."
        )


def load_finished(run: Path, trust_env_module: bool = False) -> Agent:
    """The agent of a finished run, with its recipe.

    Raises:
        CheckpointError: not finished, or without its recipe.
    """
    require_finished(run)
    agent = Agent.from_pretrained(run, trust_env_module=trust_env_module)
    if agent.recipe is None:
        raise CheckpointError(f"{run} lacks {RECIPE}.")
    return agent
