"""Online Decision Transformer agents, offline part. Data, context and budget are DT's; only the loss differs."""

from __future__ import annotations

from agentzoo.models.odt import ODTConfig
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.recipes._tasks import HISTORY, locomotion

CPU_BUDGET = TrainConfig(steps=20_000, lr=3e-4, warmup_steps=1_000, schedule="cosine")


def _recipe(kind: str) -> Recipe:
    data, evaluation = locomotion("hopper", kind)
    recipe = Recipe(agent_id=f"odt-hopper-{kind}", model=ODTConfig(), data=data, train=CPU_BUDGET, eval=evaluation)
    return recipe.reading(HISTORY.get(kind))


RECIPES = {recipe.agent_id: recipe for recipe in map(_recipe, ("medium", "medium-replay"))}
