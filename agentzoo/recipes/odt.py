"""Online Decision Transformer agents, offline part. Data, context and budget are DT's; only the network differs."""

from __future__ import annotations

from agentzoo.models.odt import ODTConfig
from agentzoo.recipe import Recipe
from agentzoo.recipes.dt import RECIPES as DT


def _recipe(kind: str) -> Recipe:
    return DT[f"dt-hopper-{kind}"].replace(agent_id=f"odt-hopper-{kind}", model=ODTConfig(dropout=0.0))


RECIPES = {recipe.agent_id: recipe for recipe in map(_recipe, ("medium", "medium-replay"))}
