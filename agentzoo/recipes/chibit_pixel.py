"""ChibiT agents of Atari games: DT's size on the blocks of `lm-chibi`, and their twins from random blocks."""

from __future__ import annotations

from agentzoo.models.chibit_pixel import ChibiTPixelConfig
from agentzoo.recipes._game import BUDGET, GAMES, game_recipe
from agentzoo.recipes.gpt2_dt import CHIBIT, SCRATCH

FADED = BUDGET.steps // 20  # the language losses are gone after a twentieth of training, as in the paper
# A game has more timesteps than lm-chibi's position table has rows, so the timestep table is fresh, of rank 64.
PIXELS = {**CHIBIT, "positions": "fresh", "timestep_rank": 64, "max_ep_len": 2048, "dropout": 0.1}
PIXELS |= {"cosine_decay_steps": FADED, "lm_decay_steps": FADED}

RECIPES = {}
for _game in GAMES:
    _recipe = game_recipe("chibit", _game, ChibiTPixelConfig(**PIXELS))
    _twin = game_recipe("chibit", _game, ChibiTPixelConfig(**{**PIXELS, **SCRATCH}))
    RECIPES[_recipe.agent_id] = _recipe
    RECIPES[f"{_recipe.agent_id}-scratch"] = _twin.replace(agent_id=f"{_recipe.agent_id}-scratch")
