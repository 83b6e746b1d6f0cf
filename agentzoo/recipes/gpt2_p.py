"""GPT2-P agents: GPT2-DTMA's sizes, data and budget with a penalty on a Markov head."""

from __future__ import annotations

from agentzoo.models.gpt2_p import GPT2PConfig
from agentzoo.recipes._language import MINI, mini_recipe

NEAREST = (1,)  # the first layer of lm-mini has no Markov head; this head is the nearest

RECIPES = {
    recipe.agent_id: recipe
    for recipe in (
        mini_recipe("gpt2-p", kind, GPT2PConfig, {**MINI, "markov_heads": NEAREST})
        for kind in ("medium", "medium-replay")
    )
}
