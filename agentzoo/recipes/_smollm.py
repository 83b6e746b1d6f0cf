"""Tasks and budget of the agents on SmolLM2, and their twins from random weights.

The blocks have 10.6 million parameters, those of other agents at most 2 million. So windows are short, 5 steps, and
without dropout. The learning rate falls to zero along a cosine. A twin (`*-scratch`) has the same size, data and
training, and random blocks.

Locomotion has few windows: 3,000 updates of 64, which take 17 to 40 minutes on one core with native bfloat16, or a
minute and a half on a GPU that trains 15 agents at once. After 1,500 updates at 3e-4 with dropout at the embedding an
agent of hopper/medium-replay was underfitted (error .150 on data it was trained on, here .101) and returned 963.

Mazes have 11,000 updates of 256 windows, as dt in the medium maze: four minutes on such a GPU, four hours on a core.
In the medium maze both agents and both twins were underfitted after 3,000 updates of 64 windows and reached the goal in
75 to 82 of 100 episodes; with the whole budget in 99 or 100.
"""

from __future__ import annotations

from typing import Any

from agentzoo.models._language_config import PRESETS
from agentzoo.models._llama_config import LlamaConfig
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.recipes._tasks import locomotion, maze_recipe, variant

BACKBONE = "smollm2-135m-instruct"
BUDGET = TrainConfig(steps=3_000, batch_size=64, lr=1e-3, warmup_steps=200, schedule="cosine", eps=1e-6)
CONTEXT = 5
CURVE_EVERY = 500  # six points of a learning curve
LOCOMOTION = (("hopper", "medium"), ("hopper", "medium-replay"), ("walker2d", "medium"))
MAZES = ("medium", "large")
MODEL: dict[str, Any] = {
    **PRESETS["markov"],
    "input_maps": "linear",
    "head": "linear",
    "timestep_rank": 64,
    "dropout": 0.0,  # Llama's blocks have none
    "embed_dropout": 0.0,
    "backbone": BACKBONE,
}


def pairs(name: str, kind: type[LlamaConfig]) -> list[Recipe]:
    """Every task, and the twin of each from random weights."""
    found = []
    for env, data in LOCOMOTION:
        found.append(_locomotion(name, env, data, kind(**MODEL)))
    for maze in MAZES:
        found.append(_maze(name, maze, kind(**MODEL)))
    return found + [variant(recipe, "scratch", backbone=None) for recipe in found]


def _locomotion(name: str, env: str, kind: str, model: LlamaConfig) -> Recipe:
    data, evaluation = locomotion(env, kind, CONTEXT)
    return Recipe(
        agent_id=f"{name}-{env}-{kind}",
        model=model,
        data=data,
        train=BUDGET,
        eval=evaluation.model_copy(update={"every": CURVE_EVERY}),
    )


def _maze(name: str, maze: str, model: LlamaConfig) -> Recipe:
    recipe = maze_recipe(name, maze, model)
    return recipe.replace(train=recipe.train.model_copy(update={"eps": BUDGET.eps}))
