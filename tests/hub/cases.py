"""Runs that are staged quickly, a small dataset, actions of two agents compared, and commands that must succeed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from conftest import SMALL, CountingEnv, make_agent
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.config import AgentConfig
from agentzoo.data.episodes import Episodes
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import load_episodes, write_dataset
from agentzoo.hub.stage import stage
from agentzoo.recipe import Recipe
from agentzoo.training import log


def same_actions(first: Agent, second: Agent) -> bool:
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    return np.array_equal(first.predict(observations)[0], second.predict(observations)[0])


def finished(folder: Path, dataset: str, env: str = "Hopper-v5", family: str = "bc") -> Path:
    """A run of an untrained network on the shipped Hopper episodes."""
    made = make_agent("Hopper-v5", SMALL[family])
    recipe = made.recipe
    assert recipe is not None
    evaluation = recipe.eval.model_copy(update={"env": env, "target_return": 100.0, "episodes": 2})
    recipe = recipe.replace(data=recipe.data.model_copy(update={"dataset": dataset}), eval=evaluation)
    agent = Agent(made.model, AgentConfig.of(recipe, made.config.io), recipe)
    agent.save_pretrained(folder)
    columns = [*log.COLUMNS, "eval_return", "eval_score", "action_mse"]
    log.start_log(folder, columns, 0)
    log.append_row(folder, columns, {"step": 10, "loss": 0.1, "action_mse": 0.1, "seconds": 1.0})
    return folder


def quickly(run: Path, zoo: Path, **options: Any) -> Path:
    return stage(run, zoo, "a test machine", sweep_episodes=0, **options)


def rewritten(run: Path, **settings: Any) -> Path:
    """The run with another recipe: `--set` by field, dots as `__`."""
    path = run / "train_config.json"
    changes = [f"{name.replace('__', '.')}={value}" for name, value in settings.items()]
    path.write_text(Recipe.from_json(path.read_text(), "recipe").override(changes).to_json())
    return run


def invoke(*arguments: str) -> str:
    """The output of `agentzoo ARGUMENTS`, which must succeed."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def write_small(dataset_id: str) -> Episodes:
    """A local dataset of three short episodes."""
    env = CountingEnv()
    rng = np.random.default_rng(0)

    def episode(seed: int) -> Rollout:
        length = 5 + seed
        return Rollout(
            seed,
            rng.normal(size=(length + 1, 3)).astype(np.float32),
            rng.uniform(-1, 1, (length, 2)).astype(np.float32),
            np.arange(1.0, length + 1),
            np.arange(length) == length - 1,
            np.zeros(length, dtype=bool),
        )

    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    write_dataset(dataset_id, (episode(i) for i in range(3)), **spaces, description="By hand.", algorithm_name="none")
    return load_episodes(dataset_id)
