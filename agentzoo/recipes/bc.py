"""Behaviour-cloning baselines, trained as the Decision Transformers they are compared with (no gradient clip).

Only the newest action of a window is learned, so windows are drawn by their last step: by their first, as the published
code does, the opening steps of an episode are hardly ever seen, and a hopper falls before its first step.
"""

from __future__ import annotations

from agentzoo.models.bc import BCConfig
from agentzoo.recipe import Recipe
from agentzoo.recipes._tasks import LOCOMOTION, locomotion
from agentzoo.recipes.dt import CPU_BUDGET


def _recipe(env: str, kind: str) -> Recipe:
    data, evaluation = locomotion(env, kind)
    data = data.model_copy(update={"drawn": "last"})
    train = CPU_BUDGET.model_copy(update={"clip": None})
    return Recipe(agent_id=f"bc-{env}-{kind}", model=BCConfig(), data=data, train=train, eval=evaluation)


RECIPES = {
    recipe.agent_id: recipe
    for recipe in (_recipe(env, kind) for env in LOCOMOTION for kind in ("medium", "medium-replay"))
}
