"""The short evaluations of a run in training."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np

from agentzoo.agent import Agent
from agentzoo.config import AgentConfig
from agentzoo.data.episodes import Episodes
from agentzoo.data.spaces import describe_misfit
from agentzoo.envs.making import make_configured
from agentzoo.errors import ConfigError, SpaceError, warn
from agentzoo.evaluation.rollout import rollout
from agentzoo.evaluation.scores import normalized_score, reference_of
from agentzoo.nn.base import SequenceModel
from agentzoo.recipe import Recipe
from agentzoo.training.loop import Evaluation

SEED = 99  # apart from the seeds of final evaluations


def check_environment(recipe: Recipe, episodes: Episodes, trust_env_module: bool = False) -> None:
    """Make the recipe's environment once, before the first update: a wrong name must not wait for an evaluation.

    Where a package it needs is not installed and nothing is evaluated while training, that is a warning.

    Raises:
        SpaceError: its spaces are not those of the data. Otherwise as `make_configured`.
    """
    try:
        env = make_configured(recipe.eval.env, recipe.eval.env_options, trust_env_module)
    except ConfigError as error:
        if recipe.eval.every or not isinstance(error.__cause__, ImportError | gym.error.DependencyNotInstalled):
            raise
        warn(f"{error} Training goes on without it; the agent can only be measured elsewhere.", depth=2)
        return
    try:
        misfit = describe_misfit(episodes.observation, episodes.action, env.observation_space, env.action_space)
    except SpaceError as error:
        misfit = str(error).removesuffix(".")
    finally:
        env.close()
    if misfit:
        raise SpaceError(
            f"{recipe.eval.env} does not fit {episodes.dataset}: {misfit}. Set eval.env; one that a module of yours "
            "registers is named MODULE:Env-v0, with --trust-env-module."
        )


def short_evaluation(recipe: Recipe, trust_env_module: bool = False) -> Callable[[SequenceModel], Evaluation]:
    """What the loop calls every `eval.every` updates: `eval.every_episodes` episodes side by side."""

    def run(model: SequenceModel) -> Evaluation:
        agent = Agent(model, AgentConfig.of(recipe, model.io), recipe)
        episodes = recipe.eval.every_episodes
        found = rollout(agent, recipe.eval.env, episodes, seed=SEED, n_envs=episodes, trust_env_module=trust_env_module)
        returns = np.array([one.total_reward for one in found])
        reference = reference_of(recipe.eval.env, recipe.eval.env_options)
        score = None if reference is None else float(normalized_score(returns, reference).mean())
        return Evaluation(float(returns.mean()), score)

    return run
