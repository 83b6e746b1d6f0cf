"""DT agents of Atari games: half of the published layers, as many as ChibiT has, so that an agent has under 3 MB."""

from __future__ import annotations

from agentzoo.models.dt_pixel import DTPixelConfig
from agentzoo.recipes._game import GAMES, game_recipe

CONFIG = DTPixelConfig(n_layers=3, max_ep_len=2048)
RECIPES = {recipe.agent_id: recipe for recipe in (game_recipe("dt", game, CONFIG) for game in GAMES)}
