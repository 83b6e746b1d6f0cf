"""GPT2-DTMA agents, and the variants its papers compare it with: GPT2-P and DTMA.

Hopper's have the sizes, data and budget of the GPT2-DT agents. In the mazes dt, gpt2-dt, dtma and gpt2-dtma have one
budget, `maze_recipe`. The last three have one shape, too: they differ in gates and in where their blocks come from.
"""

from __future__ import annotations

from typing import Any

from agentzoo.models.gpt2_dtma import DTMAConfig, GPT2DTMAConfig, GPT2PConfig
from agentzoo.nn.base import ModelConfig
from agentzoo.recipe import Recipe
from agentzoo.recipes._tasks import MAZES, locomotion, maze_recipe
from agentzoo.recipes.gpt2_dt import CPU_BUDGET, CURVE_EVERY, MINI, NO_DROPOUT

SCRATCH: dict[str, Any] = {**MINI, "backbone": None}
NEAREST = (1,)  # the first layer of lm-mini has no Markov head; of its heads this one is the nearest to one


def _hopper(name: str, kind: str, model: ModelConfig) -> Recipe:
    data, evaluation = locomotion("hopper", kind)
    evaluation = evaluation.model_copy(update={"every": CURVE_EVERY})
    return Recipe(agent_id=f"{name}-hopper-{kind}", model=model, data=data, train=CPU_BUDGET, eval=evaluation)


def _all() -> list[Recipe]:
    found = []
    for maze in MAZES:
        found += [
            maze_recipe("gpt2-dtma", maze, GPT2DTMAConfig(**{**MINI, **NO_DROPOUT})),
            maze_recipe("dtma", maze, DTMAConfig(**{**SCRATCH, **NO_DROPOUT})),
        ]
    for kind in ("medium", "medium-replay"):
        found += [
            _hopper("gpt2-dtma", kind, GPT2DTMAConfig(**MINI)),
            _hopper("gpt2-p", kind, GPT2PConfig(**MINI, markov_heads=NEAREST)),
            _hopper("dtma", kind, DTMAConfig(**SCRATCH)),
        ]
    return found


RECIPES = {recipe.agent_id: recipe for recipe in _all()}
