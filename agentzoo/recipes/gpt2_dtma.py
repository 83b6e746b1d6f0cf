"""GPT2-DTMA agents, with the sizes, data and budget of the GPT2-DT agents.

In the mazes dt, gpt2-dt, dtma and gpt2-dtma share one budget, `maze_recipe`. The last three also have the same sizes:
they differ only in gates and in the initial blocks.
"""

from __future__ import annotations

from agentzoo.models.gpt2_dtma import GPT2DTMAConfig
from agentzoo.recipes._language import MINI, NO_DROPOUT, hopper_recipe
from agentzoo.recipes._tasks import MAZES, maze_recipe

RECIPES = {
    recipe.agent_id: recipe
    for recipe in (
        *(maze_recipe("gpt2-dtma", maze, GPT2DTMAConfig(**{**MINI, **NO_DROPOUT})) for maze in MAZES),
        *(hopper_recipe("gpt2-dtma", kind, GPT2DTMAConfig(**MINI)) for kind in ("medium", "medium-replay")),
    )
}
