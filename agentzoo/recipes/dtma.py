"""DTMA agents: GPT2-DTMA's sizes, data and budget from random weights."""

from __future__ import annotations

from agentzoo.models.dtma import DTMAConfig
from agentzoo.recipes._language import SCRATCH, short_recipe
from agentzoo.recipes._tasks import MAZES, maze_recipe

RECIPES = {
    recipe.agent_id: recipe
    for recipe in (
        *(maze_recipe("dtma", maze, DTMAConfig(**SCRATCH)) for maze in MAZES),
        *(short_recipe("dtma", kind, DTMAConfig(**SCRATCH)) for kind in ("medium", "medium-replay")),
    )
}
