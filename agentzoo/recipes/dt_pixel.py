"""DT agents of Atari games."""

from __future__ import annotations

from agentzoo.models.dt_pixel import DTPixelConfig
from agentzoo.recipes._game import GAMES, game_recipe

RECIPES = {
    recipe.agent_id: recipe for recipe in (game_recipe("dt", game, DTPixelConfig(max_ep_len=4096)) for game in GAMES)
}
