"""A complete training run: checks, updates with short evaluations, and an agent in its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.episodes import Episodes
from agentzoo.data.spaces import describe_misfit
from agentzoo.envs.making import make_configured
from agentzoo.errors import ConfigError, SpaceError, warn
from agentzoo.evaluation.rollout import rollout
from agentzoo.evaluation.scores import normalized_score, reference_for
from agentzoo.evaluation.seeds import VALIDATION
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe
from agentzoo.record import read_record
from agentzoo.store.files import RECIPE
from agentzoo.training.hooks import Evaluation, Hooks
from agentzoo.training.loop import train
from agentzoo.training.processes import process_index
from agentzoo.training.settle import with_precision
from agentzoo.training.tracking import Tracking

CANNOT = (ImportError, gym.error.DependencyNotInstalled, AssertionError)  # errors of missing or broken packages


def default_folder(recipe: Recipe) -> Path:
    """The folder of a run if the caller names none: `runs/<agent>-s<seed>`."""
    return Path("runs") / f"{recipe.agent_id}-s{recipe.train.seed}"


def train_in(
    folder: Path,
    recipe: Recipe,
    episodes: Episodes,
    *,
    start: SequenceModel | None = None,
    hooks: Hooks | None = None,
    trackers: Tracking | None = None,
    device: str | None = None,
    cuda_graph: bool = False,
    trust_env_module: bool = False,
    license_id: str | None = None,
) -> Agent:
    """Train `recipe` in `folder`, or continue the run there, and save a loadable agent.

    It does not check the environment: call `check_environment` before it.

    Args:
        folder, recipe, episodes, start, trackers, device, cuda_graph: as `training.loop.train`.
        hooks: progress; its `evaluate` is replaced by the recipe's short evaluations.
        trust_env_module: import the module that an environment id names.
        license_id: the agent's license; by default that of its model.

    Raises:
        As `training.loop.train`.
    """
    recipe = with_precision(recipe, folder, device)
    evaluate = short_evaluation(recipe, trust_env_module) if recipe.eval.every else None
    hooks = replace(hooks or Hooks(), evaluate=evaluate)
    model = train(
        recipe,
        folder,
        episodes,
        start=start,
        hooks=hooks,
        trackers=trackers,
        device=device,
        cuda_graph=cuda_graph,
    )
    main = process_index() == 0
    if main:
        recipe = read_record(Recipe, folder / RECIPE)  # with the values that the run chose
    config = AgentConfig.of(recipe, model.io)
    if license_id is not None:
        config = config.model_copy(update={"license": license_id})
    agent = Agent(model, config, recipe)
    if main:
        agent.save_pretrained(folder)
    return agent


def check_environment(
    recipe: Recipe, episodes: Episodes, trust_env_module: bool = False, trust_env_options: bool = False
) -> None:
    """Create the recipe's environment once, so that a wrong name is found before the first update.

    A missing package is only a warning if the recipe evaluates nothing during training.

    Raises:
        SpaceError: its spaces differ from those of the data. Otherwise as `make_configured`.
    """
    try:
        env = make_configured(recipe.eval.env, recipe.eval.env_options, trust_env_module, trust_env_options)
    except ConfigError as error:
        if recipe.eval.every or not isinstance(error.__cause__, CANNOT):
            raise
        warn(f"{error} Training continues without it; measure the agent on another machine.", depth=2)
        return
    try:
        misfit = describe_misfit(episodes.observation, episodes.action, env.observation_space, env.action_space)
    except SpaceError as error:
        misfit = str(error).removesuffix(".")
    finally:
        env.close()
    if misfit:
        raise SpaceError(
            f"{recipe.eval.env} does not fit {episodes.dataset}: {misfit}. Set eval.env; if your own module registers "
            "the environment, write MODULE:Env-v0 and pass --trust-env-module."
        )


def short_evaluation(recipe: Recipe, trust_env_module: bool = False) -> Callable[[SequenceModel], Evaluation]:
    """A function for `Hooks.evaluate`: it plays `eval.every_episodes` episodes at once, on validation seeds."""

    def run(model: SequenceModel) -> Evaluation:
        agent = Agent(model, AgentConfig.of(recipe, model.io), recipe)
        env, episodes = recipe.eval.env, recipe.eval.every_episodes
        found = rollout(agent, env, episodes, seed=VALIDATION, n_envs=episodes, trust_env_module=trust_env_module)
        returns = np.array([one.total_reward for one in found])
        reference = reference_for(recipe.eval.env, recipe.eval.env_options, recipe)
        score = None if reference is None else float(normalized_score(returns, reference).mean())
        return Evaluation(float(returns.mean()), score)

    return run
