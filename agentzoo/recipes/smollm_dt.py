"""SmolLM-DT agents, their twins from scratch, and two ablations of the language.

`*-shuffled` starts from the same weights in random order, which keeps their scale and removes the language. `*-frozen`
trains only the maps around the blocks.
"""

from __future__ import annotations

from agentzoo.models.smollm_dt import SmolLMDTConfig
from agentzoo.recipes._smollm import pairs
from agentzoo.recipes._tasks import variant

RECIPES = {recipe.agent_id: recipe for recipe in pairs("smollm-dt", SmolLMDTConfig)}
_apart = RECIPES["smollm-dt-hopper-medium-replay"]  # where the paper claims most
for _made in (variant(_apart, "shuffled", start="shuffled"), variant(_apart, "frozen", adaptation="frozen")):
    RECIPES[_made.agent_id] = _made
