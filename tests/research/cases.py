"""Folders of finished runs."""

from __future__ import annotations

from pathlib import Path

from conftest import SMALL, make_agent

from agentzoo.agent import Agent


def a_run(folder: Path, agent_id: str, seed: int = 0, family: str = "dt", **changes: float) -> Path:
    made = make_agent(model=SMALL[family])
    assert made.recipe is not None
    train = made.recipe.train.model_copy(update={"seed": seed, **changes})
    recipe = made.recipe.replace(agent_id=agent_id, train=train)
    config = made.config.model_copy(update={"agent_id": agent_id})
    with_name = Agent(made.model, config, recipe)
    with_name.save_pretrained(folder)
    return folder
