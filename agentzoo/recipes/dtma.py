"""DTMA agents: GPT2-DTMA's sizes from random weights, in the mazes and on all locomotion data."""

from __future__ import annotations

from agentzoo.models.dtma import DTMAConfig
from agentzoo.recipes._language import NO_DROPOUT, SCRATCH, mini_maze, mini_recipe
from agentzoo.recipes._tasks import KINDS, LOCOMOTION, MAZES

RECIPES = {
    recipe.agent_id: recipe
    for recipe in (
        *(mini_maze("dtma", maze, DTMAConfig(**{**SCRATCH, **NO_DROPOUT})) for maze in MAZES),
        *(mini_recipe("dtma", kind, DTMAConfig, SCRATCH, env) for env in LOCOMOTION for kind in KINDS),
    )
}
