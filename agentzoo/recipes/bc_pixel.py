"""Behaviour clones of Atari games. They read only the newest four frames; an update has 256 such stacks."""

from __future__ import annotations

from agentzoo.models.bc_pixel import BCPixelConfig
from agentzoo.recipes._game import BUDGET, GAMES, game_recipe

TRAIN = BUDGET.model_copy(update={"steps": 4_000, "batch_size": 256, "weight_decay": 1e-4})
RECIPES = {
    recipe.agent_id: recipe
    for recipe in (game_recipe("bc", game, BCPixelConfig(dropout=0.0), TRAIN, clone=True) for game in GAMES)
}
