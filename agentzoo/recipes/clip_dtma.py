"""CLIP-DTMA agents: the CLIP-DT recipes with gates."""

from __future__ import annotations

from agentzoo.models.clip_dtma import CLIPDTMAConfig
from agentzoo.recipe import Recipe
from agentzoo.recipes import clip_dt


def _recipe(base: Recipe) -> Recipe:
    fields = base.model.model_dump(exclude={"family"})
    agent_id = base.agent_id.replace("clip-dt-", "clip-dtma-")
    return base.replace(agent_id=agent_id, model=CLIPDTMAConfig(**fields))


RECIPES = {recipe.agent_id: recipe for recipe in map(_recipe, clip_dt.RECIPES.values())}
