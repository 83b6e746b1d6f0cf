"""Evaluations of runs and staged agents, stored beside the weights so that nothing is measured twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from agentzoo.agent import Agent
from agentzoo.errors import CheckpointError
from agentzoo.evaluation.results import Result, evaluate
from agentzoo.evaluation.rollout import OnEpisode, is_deterministic
from agentzoo.hub.records import write_settings
from agentzoo.hub.stored_weights import Stored, convert_weights
from agentzoo.hub.verify import check_files
from agentzoo.recipe import EvalConfig
from agentzoo.record import read_record
from agentzoo.store.files import CONFIG, RECIPE, RESULT, RESULTS, STORED_RESULT, WEIGHTS, write_atomic
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
    device: str = "auto",
) -> Result:
    """The evaluation of a run's final weights: the stored one, or a new one.

    A new evaluation is stored unless the stored one has more episodes, or another target than the run's was asked for.

    Args:
        or_more: accept a stored evaluation of more episodes.
        target_return: raw units; the run's own by default.
        on_episode: called with each played episode.
        device: of a new evaluation.
    """
    agent = load_finished(run, trust_env_module, device)
    stores = target_return in (None, agent.target_return)
    kept = _kept(run / RESULT, agent) if stores else None
    if kept is not None and (kept.episodes == episodes or (or_more and kept.episodes > episodes)):
        return kept
    on_progress(f"{counted(episodes, 'episode')} of {run.name}")
    found = _evaluated(agent, episodes, trust_env_module, on_episode, target_return)
    if stores and (kept is None or kept.episodes < episodes):
        write_atomic(run / RESULT, found.to_json())
    return found


def measured_as_staged(
    run: Path,
    settings: EvalConfig,
    weights: Stored,
    on_progress: Callable[[str], None] = lambda _: None,
    trust_env_module: bool = False,
    on_episode: OnEpisode = lambda _: None,
) -> Result:
    """The evaluation of a run's final weights in the type of a staged agent's: the stored one, or a new one.

    Rounding can change what an agent does, so another training seed is rounded too. The evaluation is stored in the
    run's folder, apart from that of `measured`.

    Args:
        settings: of the staged agent: target return, history and number of episodes.
        weights: the type in which they are stored.
        on_episode: called with each played episode.

    Raises:
        CheckpointError: not finished, without a recipe, or a number is too large for float16.
    """
    recipe = load_finished(run, trust_env_module).recipe
    assert recipe is not None
    with TemporaryDirectory() as name:
        copy = Path(name)
        for file in (CONFIG, WEIGHTS):
            shutil.copyfile(run / file, copy / file)
        write_settings(copy, recipe.replace(eval=settings))
        convert_weights(copy, weights)
        agent = load_finished(copy, trust_env_module)
        kept = _kept(run / STORED_RESULT, agent)
        if kept is not None and kept.episodes == settings.episodes:
            return kept
        on_progress(f"{counted(settings.episodes, 'episode')} of {run.name}, its weights as {weights}")
        found = _evaluated(agent, settings.episodes, trust_env_module, on_episode)
    write_atomic(run / STORED_RESULT, found.to_json())
    return found


def _kept(path: Path, agent: Agent) -> Result | None:
    """The stored evaluation, if it has the agent's weights and settings."""
    kept = read_record(Result, path) if path.is_file() else None
    return kept if kept is not None and _asked_alike(kept, agent) else None


def _evaluated(
    agent: Agent, episodes: int, trust_env_module: bool, on_episode: OnEpisode, target_return: float | None = None
) -> Result:
    """A new evaluation. It names no command, since an id is of a staged agent, not of a run."""
    found = evaluate(
        agent,
        episodes=episodes,
        target_return=target_return,
        trust_env_module=trust_env_module,
        on_episode=on_episode,
    )
    return found.model_copy(update={"command": None})


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


def load_finished(run: Path, trust_env_module: bool = False, device: str = "auto") -> Agent:
    """The agent of a finished run, with its recipe.

    Raises:
        CheckpointError: not finished, or without a recipe.
    """
    require_finished(run)
    agent = Agent.from_pretrained(run, trust_env_module=trust_env_module, device=device)
    if agent.recipe is None:
        raise CheckpointError(f"{run} lacks {RECIPE}.")
    return agent
