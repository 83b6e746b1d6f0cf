"""CLIP-DT agents: the `markov` preset on the text tower of `clip-mini`, with ChibiT's windows and budget."""

from __future__ import annotations

from agentzoo.models._language_config import PRESETS
from agentzoo.models.clip_dt import CLIPDTConfig
from agentzoo.recipes._language import long_recipe

MODEL = CLIPDTConfig(**PRESETS["markov"], backbone="clip-mini", embed_dim=128, n_layers=3, n_heads=2)

RECIPES = {
    recipe.agent_id: recipe for recipe in (long_recipe("clip-dt", kind, MODEL) for kind in ("medium", "medium-replay"))
}
