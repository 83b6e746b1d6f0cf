"""DTMA agents: in the mazes of GPT2-DTMA's sizes, on locomotion data of `dt`'s width; random initial weights.

On locomotion the network has `dt`'s width and layers, four heads with gates, and no timesteps, and trains for half of
`dt`'s updates. On validation episodes of hopper/medium-replay seed 0 scores 97.7 and 97.7 so; with twice the width,
after 4,000 updates, 51.7 and 49.5. Seeds 1 and 2 then scored 66.0 and 42.6, so that one trial says nothing about the
width: the smaller network is as good, a quarter as large and sooner trained.
"""

from __future__ import annotations

from agentzoo.models.dtma import DTMAConfig
from agentzoo.recipe import Recipe
from agentzoo.recipes._language import NO_DROPOUT, NO_TIMESTEPS, SCRATCH, SHORT_BUDGET, SHORT_CONTEXT, mini_maze
from agentzoo.recipes._tasks import MAZES, PAPER_SETS, locomotion

STEPS, CURVE_EVERY = 6_000, 3_000


def _locomotion(env: str, kind: str) -> Recipe:
    data, evaluation = locomotion(env, kind, SHORT_CONTEXT)
    return Recipe(
        agent_id=f"dtma-{env}-{kind}",
        model=DTMAConfig(**{**SCRATCH, **NO_DROPOUT, **NO_TIMESTEPS, "embed_dim": 128}),
        data=data,
        train=SHORT_BUDGET.model_copy(update={"steps": STEPS}),
        eval=evaluation.model_copy(update={"every": CURVE_EVERY}),
    )


RECIPES = {
    recipe.agent_id: recipe
    for recipe in (
        *(mini_maze("dtma", maze, DTMAConfig(**{**SCRATCH, **NO_DROPOUT})) for maze in MAZES),
        *(_locomotion(env, kind) for env, kind in PAPER_SETS),
    )
}
