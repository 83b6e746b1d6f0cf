"""Evaluate an agent, and the records of evaluations: `results.json`, the source of a card."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.envs import is_game
from agentzoo.envs.comparing import other_options
from agentzoo.envs.env_options import trust_flags
from agentzoo.envs.wrapping import spec_of
from agentzoo.errors import AgentzooError, ConfigError
from agentzoo.evaluation.backbones import Knowledge
from agentzoo.evaluation.environments import require_playable
from agentzoo.evaluation.jobs import rollout_in_jobs
from agentzoo.evaluation.rollout import EpisodeResult, OnEpisode, is_deterministic, rollout
from agentzoo.evaluation.scores import Reference, mean_interval, normalized_score, reference_for, with_reference
from agentzoo.evaluation.statistics import Converged
from agentzoo.evaluation.study import Study
from agentzoo.evaluation.versions import versions
from agentzoo.nn.base import ActingMode
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.store.files import CONFIG
from agentzoo.store.locate import STUDY_PICTURES, staged_agents
from agentzoo.text import amount, fixed
from agentzoo.types import Config, Digest

Interval = tuple[float, float]


class Result(Config):
    """An evaluation of one agent in one environment with one target return.

    Returns are undiscounted sums of the environment's reward; `score` is normalized (None without references).
    Intervals are 95 % bootstrap intervals of the mean over episodes.
    """

    agent_id: str
    weights_sha256: str | None
    checkpoint: Literal["final", "best"]
    training_seed: int | None = None  # seed of the run that trained the weights
    updates: int | None = None  # updates of that run, if a card shows it beside another agent
    env: str
    env_options: dict[str, bool | int | float | str] | None = None  # None: not recorded
    target_return: float
    acting: ActingMode = "window"
    history: int | None = None  # newest steps that window acting read; None: the whole window
    deterministic: bool
    seed: int
    episodes: Annotated[int, Field(ge=1)]
    mean_return: float
    std_return: float
    return_interval: Interval
    score: float | None
    score_interval: Interval | None
    random_reference: float | None
    expert_reference: float | None
    mean_length: float
    success_rate: float | None
    successes: tuple[bool, ...] | None = None  # one per episode; None if the environment does not report success
    rtg_source: str | None
    steps_per_second: float
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    versions: dict[str, str]
    command: str | None  # repeats the evaluation; None if no command can

    def return_in_words(self) -> str:
        """The mean return and its interval: `2733 [2617, 2842]`; without one for a single episode."""
        if self.episodes == 1:
            return amount(self.mean_return)
        low, high = self.return_interval
        return f"{amount(self.mean_return)} [{amount(low)}, {amount(high)}]"

    def score_in_words(self) -> str:
        """The score and its interval: `84.6 [81.1, 87.9]`; one episode has none. Empty without references."""
        if self.score is None:
            return ""
        if self.score_interval is None or self.episodes == 1:
            return fixed(self.score, 1)
        low, high = self.score_interval
        return f"{fixed(self.score, 1)} [{fixed(low, 1)}, {fixed(high, 1)}]"

    @property
    def ends_at_goal(self) -> bool:
        """Whether episodes end when the goal is reached, so that success and steps say it all."""
        return self.success_rate is not None and len(set(self.lengths)) > 1

    def success_flags(self) -> tuple[bool, ...] | None:
        """Which episodes reached their goal; None if unknown.

        For a record without `successes` they follow from the returns if only success is rewarded.
        """
        if self.successes is not None or self.success_rate is None:
            return self.successes
        rewarded = tuple(value > 0.0 for value in self.returns)
        return rewarded if round(self.success_rate * self.episodes) == sum(rewarded) else None

    @property
    def reference(self) -> Reference | None:
        """The returns that score 0 and 100."""
        if self.random_reference is None or self.expert_reference is None:
            return None
        return Reference(self.random_reference, self.expert_reference)

    @property
    def target_score(self) -> float | None:
        """The target return as a normalized score, None without references."""
        return None if self.reference is None else float(normalized_score(self.target_return, self.reference))


class Baseline(Config):
    """One training run of a simpler method, measured on the same episodes as the agents of its dataset."""

    method: Literal["bc", "td3+bc", "iql", "cql"]
    trained_with: Annotated[str, Field(max_length=500)]  # the command, or a description
    dataset_sha256: Digest | None = None  # of the data it learned from; None if not recorded
    result: Result


class DatasetFacts(Config):
    """Facts about the dataset the agent was trained on."""

    dataset: str
    steps: int
    episodes: int
    mean_return: float
    best_return: float
    made_by: str


class TrainingFacts(Config):
    """How long training took, and the hardware."""

    seconds: float  # time of updates, without evaluations
    parameters: int
    hardware: str
    updates: int | None = None  # fewer than the recipe's if training stopped early; None: unknown
    converged: Converged | None = None  # by its short evaluations, where they have scores


class Results(Config):
    """`results.json`: the headline evaluation, and evaluations of other seeds, methods, targets and acting modes."""

    headline: Result
    dataset: DatasetFacts
    training: TrainingFacts
    best: Result | None = None
    targets: tuple[Result, ...] = ()  # the same agent with other target returns
    seeds: tuple[Result, ...] = ()  # the same recipe trained with other seeds
    baselines: tuple[Result, ...] = ()  # other families trained on the same data, with the same target return
    yardsticks: tuple[Baseline, ...] = ()  # the rows of baselines.json for this dataset
    acting: tuple[Result, ...] = ()  # the same weights acting in another way
    language: Knowledge | None = None  # how well its backbone models language
    spearman: float | None = None  # rank correlation of target and achieved return over `targets`
    studies: Annotated[tuple[Study, ...], Field(max_length=len(STUDY_PICTURES))] = ()
    int8: bool = False  # large matrices of the measured weights are 8-bit integers
    plotted: bool = False  # the folder has a plot of the targets
    filmed: bool = False  # the folder has a video of one episode


def evaluate(
    agent: Agent | str | Path,
    env: str | Any | None = None,
    episodes: int = 100,
    *,
    seed: int = 0,
    n_envs: int = 20,
    deterministic: bool | None = None,
    target_return: float | None = None,
    checkpoint: Literal["final", "best"] = "final",
    command: str | None = None,
    trust_env_module: bool = False,
    trust_env_options: bool = False,
    jobs: int = 1,
    on_episode: OnEpisode = lambda _: None,
) -> Result:
    """Run `episodes` episodes and return the record.

    Args:
        agent: an agent, or an id or folder to load. Its own target return is used unless `target_return` is given.
        env: an id, or any environment that `rollout` accepts; by default the environment in the config.
        seed: episode e is reset with `10_000 * (seed + 1) + e`.
        deterministic: whether actions are the most likely ones, or sampled. By default as the agent's recipe says.
        command: repeats this evaluation, for the record. By default built for agents that are named or staged here.
        trust_env_module, trust_env_options: as in `Agent.from_pretrained`, also for an agent that is loaded.
        jobs: processes of one thread that share the environments and episodes, see `evaluation.jobs`.

    Raises:
        ConfigError: no environment is named, or several jobs are used without an environment id or with sampled
            actions. EvaluationError: a job ended too early. Otherwise as `rollout` and `Agent.from_pretrained`.
    """
    named = None if isinstance(agent, Agent) else str(agent)
    if not isinstance(agent, Agent):
        place = "cpu" if jobs > 1 else "auto"
        agent = Agent.from_pretrained(agent, device=place, trust_env_module=trust_env_module)
    where = env if env is not None else agent.config.env
    if where is None:
        raise ConfigError(f"{agent.config.agent_id} names no environment; pass one with env= (--env).")
    deterministic = is_deterministic(agent) if deterministic is None else deterministic
    require_playable(agent, episodes, n_envs)  # before the target is set, which clears those of each environment
    asked, trusted, began = agent.target_return, agent.trust_env_options, time.perf_counter()
    agent.target_return = target_return if target_return is not None else asked
    agent.trust_env_options = trusted or trust_env_options
    shared = {"seed": seed, "n_envs": n_envs, "trust_env_module": trust_env_module, "on_episode": on_episode}
    try:
        found = _played(agent, where, episodes, jobs, deterministic, shared)
        used = agent.target_return
    finally:
        agent.target_return, agent.trust_env_options = asked, trusted
    seconds = time.perf_counter() - began
    env_id = where if isinstance(where, str) else _id_of(where)
    own = agent.config.options_in(where) if isinstance(where, str) else None
    options = _options_of(where) if own is None else list(own)
    recipe = agent.recipe if isinstance(where, str) or _is_task_of(agent, where) else None
    result = result_of(agent, found, env_id, used, deterministic, seed, seconds, checkpoint, command, options, recipe)
    result = result.model_copy(update={"env_options": own})
    if command is None and isinstance(where, str) and checkpoint == "final" and not agent.is_conditioned:
        named = named or _name_of(agent)
        return result if named is None else with_command(result, agent, named, n_envs)
    return result


def _played(
    agent: Agent, where: Any, episodes: int, jobs: int, deterministic: bool, shared: dict[str, Any]
) -> list[EpisodeResult]:
    if isinstance(where, str):
        agent.warn_of_other_env(where)
    if jobs == 1:
        return rollout(agent, where, episodes, deterministic=deterministic, **shared)
    if isinstance(where, str) and deterministic:
        return rollout_in_jobs(agent, where, episodes, jobs, **shared)
    raise ConfigError("several jobs need an environment named by its id and deterministic actions; use jobs=1.")


def _name_of(agent: Agent) -> str | None:
    """The agent's id, if this agent is staged under it."""
    folder = staged_agents().get(agent.config.agent_id)
    if folder is None or agent.weights_sha256 is None:
        return None
    try:
        staged = read_record(AgentConfig, folder / CONFIG)
    except AgentzooError:
        return None
    return agent.config.agent_id if staged == agent.config else None


def with_command(one: Result, agent: Agent, named: str, n_envs: int = 20) -> Result:
    """The record with the command that repeats it, if there is one; `named` must name this agent."""
    if one.deterministic and not is_deterministic(agent):
        return one  # the command would sample
    command = f"agentzoo evaluate {shlex.quote(named)} -n {one.episodes} --seed {one.seed}"
    command += f" --target {one.target_return:.12g}"
    if one.env != agent.config.env:
        command += f" --env {shlex.quote(one.env)}"
    if one.acting != agent.model.acting:
        command += f" --acting {one.acting}"
    if one.history != agent.config.history and one.acting == "window":
        command += f" --history {one.history or 0}"
    if agent.runtime != "pytorch":
        command += f" --runtime {agent.runtime}"
    command += trust_flags(one.env, agent.config.options_in(one.env))
    if not one.deterministic:
        command += f" --sampled --envs {n_envs}"  # the number of environments determines which random number each gets
    return one.model_copy(update={"command": command})


def result_of(
    agent: Agent,
    found: list[EpisodeResult],
    env_id: str,
    target_return: float,
    deterministic: bool,
    seed: int,
    seconds: float,
    checkpoint: Literal["final", "best"],
    command: str | None,
    options: Iterable[str] = (),
    recipe: Recipe | None = None,
) -> Result:
    """The record of finished episodes.

    Args:
        options: names of the environment's options.
        recipe: whose references may be those of the environment.
    """
    returns = np.array([one.total_reward for one in found])
    lengths = np.array([one.length for one in found])
    # some environments report success only for the episodes that succeed
    successes = [bool(one.success) for one in found] if any(one.success is not None for one in found) else []
    reference = reference_for(env_id, options, None if recipe is None else with_reference(recipe))
    low, high = mean_interval(returns)
    score = score_interval = None
    if reference is not None:
        score = float(normalized_score(returns.mean(), reference))
        first, second = normalized_score(np.array([low, high]), reference)
        score_interval = (float(first), float(second))
    return Result(
        agent_id=agent.config.agent_id,
        weights_sha256=agent.weights_sha256,
        checkpoint=checkpoint,
        training_seed=None if agent.recipe is None else agent.recipe.train.seed,
        env=env_id,
        target_return=target_return,
        acting=agent.acting,
        history=agent.history_in_use,
        deterministic=deterministic,
        seed=int(seed),
        episodes=len(found),
        mean_return=float(returns.mean()),
        std_return=float(returns.std(ddof=1)) if len(returns) > 1 else 0.0,
        return_interval=(low, high),
        score=score,
        score_interval=score_interval,
        random_reference=reference.random if reference else None,
        expert_reference=reference.expert if reference else None,
        mean_length=float(lengths.mean()),
        success_rate=float(np.mean(successes)) if successes else None,
        successes=tuple(successes) or None,
        rtg_source=agent.rtg_source,
        steps_per_second=float(lengths.sum() / max(seconds, 1e-9)),
        returns=tuple(float(value) for value in returns),
        lengths=tuple(int(value) for value in lengths),
        versions=versions(*["onnxruntime"] * (agent.runtime == "onnx"), *["ale-py"] * is_game(env_id)),
        command=command,
    )


def _id_of(env: Any) -> str:
    return str(spec.id) if (spec := spec_of(env)) is not None else type(env).__name__


def _is_task_of(agent: Agent, env: Any) -> bool:
    """Whether an environment has the options that the agent's recipe has."""
    spec = spec_of(env)
    return agent.recipe is None or spec is None or not other_options(spec, agent.recipe.eval.env_options)


def _options_of(env: Any) -> list[str]:
    """Names of the options in which an environment differs from the registered one."""
    return [] if (spec := spec_of(env)) is None else other_options(spec)
