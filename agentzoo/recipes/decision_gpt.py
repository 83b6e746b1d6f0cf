"""Decision-GPT agents: the causal baselines of Uni[MASK] on DoorKey, with their published size."""

from __future__ import annotations

from agentzoo.models.decision_gpt import DecisionGPTConfig
from agentzoo.recipes._doorkey import RETURN_CLASSES, doorkey_recipe

BATCH = 250

RECIPES = {
    recipe.agent_id: recipe
    for recipe in (
        doorkey_recipe(
            f"decision-gpt-doorkey-{task}",
            DecisionGPTConfig(return_classes=RETURN_CLASSES, use_returns=task == "rc"),
            BATCH,
        )
        for task in ("bc", "rc")
    )
}
