"""GPT2-DT and ChibiT agents, their twins from scratch, and the ablations of the paper.

ChibiT (`chibit-*`) is the `wikipedia` preset on `lm-chibi`, a language model of the Decision Transformer's own size.
GPT2-DT (`gpt2-dt-*`) is on `lm-mini`, with linear maps and a timestep table of rank 64 in place of LaMo's maps and a
full table: an agent takes 4.9 MB as float16, 2.5 as int8. A twin (`*-scratch`) has the same size and training, random
blocks and no language. ChibiT also has language losses. `*-no-language` has the language model's weights without
these losses, to show what the weights are worth. On hopper all train for 8,000 updates, sized for a CPU, instead of
100,000. So the learning rate falls to zero along a cosine and starts higher, at 3e-4, and ChibiT's language losses fade
within 2,000 updates instead of 5,000. `gpt2-dt-hopper-medium` and its twin train on windows of 5 steps, without dropout
and at 1e-3. The mazes have 11,000 updates (`mini_maze`).
"""

from __future__ import annotations

from typing import Any

from agentzoo.models._language_config import PRESETS
from agentzoo.models.gpt2_dt import GPT2DTConfig
from agentzoo.recipe import Recipe
from agentzoo.recipes._language import MINI, NO_DROPOUT, long_recipe, mini_maze, mini_recipe
from agentzoo.recipes._tasks import MAZES

NO_LANGUAGE: dict[str, Any] = {"cosine_weight": 0.0, "lm_weight": 0.0}
SCRATCH: dict[str, Any] = {"backbone": None, **NO_LANGUAGE}
ABLATIONS: dict[str, dict[str, Any]] = {
    "no-cosine": {"cosine_weight": 0.0},
    "no-lm": {"lm_weight": 0.0},
    "random-positions": {"positions": "fresh"},
    "frozen": {"adaptation": "frozen"},
}
CHIBIT: dict[str, Any] = {
    **PRESETS["wikipedia"],
    "backbone": "lm-chibi",
    "embed_dim": 128,
    "n_layers": 3,
    "n_heads": 1,
    "activation": "relu",
    "cosine_decay_steps": 2_000,
    "lm_decay_steps": 2_000,
}


def _recipe(name: str, kind: str, fields: dict[str, Any], change: str = "", **changes: Any) -> Recipe:
    fields = {**fields, **changes}
    of_mini = name == "gpt2-dt"
    recipe = (
        mini_recipe(name, kind, GPT2DTConfig, fields) if of_mini else long_recipe(name, kind, GPT2DTConfig(**fields))
    )
    return recipe.replace(agent_id=f"{recipe.agent_id}-{change}") if change else recipe


def _all() -> list[Recipe]:
    found = [mini_maze("gpt2-dt", maze, GPT2DTConfig(**{**MINI, **NO_DROPOUT})) for maze in MAZES]
    for kind in ("medium", "medium-replay"):
        for name, fields in (("chibit", CHIBIT), ("gpt2-dt", MINI)):
            found += [_recipe(name, kind, fields), _recipe(name, kind, fields, "scratch", **SCRATCH)]
        found.append(_recipe("chibit", kind, CHIBIT, "no-language", **NO_LANGUAGE))
    return found + [_recipe("chibit", "medium", CHIBIT, name, **changes) for name, changes in ABLATIONS.items()]


RECIPES = {recipe.agent_id: recipe for recipe in _all()}
