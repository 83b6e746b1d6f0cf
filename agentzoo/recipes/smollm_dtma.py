"""SmolLM-DTMA agents and their twins from scratch, with the sizes, data and budget of the SmolLM-DT agents."""

from __future__ import annotations

from agentzoo.models.smollm_dtma import SmolLMDTMAConfig
from agentzoo.recipes._smollm import pairs

RECIPES = {recipe.agent_id: recipe for recipe in pairs("smollm-dtma", SmolLMDTMAConfig)}
