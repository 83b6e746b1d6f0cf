"""CLIP-DT agents: the `markov` preset on the text tower of `clip-mini`, on GPT2-DT's budget."""

from __future__ import annotations

from agentzoo.models.clip_dt import CLIPDTConfig
from agentzoo.models.gpt2_dt import PRESETS
from agentzoo.recipe import Recipe
from agentzoo.recipes._tasks import locomotion
from agentzoo.recipes.gpt2_dt import CPU_BUDGET, CURVE_EVERY


def _recipe(kind: str) -> Recipe:
    data, evaluation = locomotion("hopper", kind)
    evaluation = evaluation.model_copy(update={"every": CURVE_EVERY})
    model = CLIPDTConfig(**PRESETS["markov"], backbone="clip-mini", embed_dim=128, n_layers=3, n_heads=2)
    return Recipe(agent_id=f"clip-dt-hopper-{kind}", model=model, data=data, train=CPU_BUDGET, eval=evaluation)


RECIPES = {recipe.agent_id: recipe for recipe in map(_recipe, ("medium", "medium-replay"))}
