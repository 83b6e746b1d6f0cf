"""Budget and sizes of the agents on the blocks of `lm-mini`."""

from __future__ import annotations

from typing import Any

from agentzoo.models._language_config import PRESETS
from agentzoo.nn.base import ModelConfig
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.recipes._tasks import locomotion, maze_recipe, windows_of_two

CPU_BUDGET = TrainConfig(steps=8_000, lr=3e-4, warmup_steps=400, schedule="cosine", eps=1e-6)
CURVE_EVERY = 800  # ten points of a learning curve
# Newest steps that agents with windows of 20 steps act on. Chosen on 20 validation episodes of each agent, among 5, 10
# and 20: five agents of hopper/medium-replay (mean returns 2,334, 2,315 and 1,292), three seeds of chibit-hopper-medium
# (mean scores 86.0, 70.2 and 63.6) and, for 5 and 20, clip-dt-hopper-medium (82.6 and 74.9).
HISTORY = 5
NO_DROPOUT: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "embed_dropout": 0.0}
# On hopper/medium the larger networks train on windows as short as in the mazes and as dt's, without dropout. On 20
# validation episodes gpt2-dt, its twin and gpt2-dtma score 95.8, 95.9 and 96.3; trained on 20 steps 93.6, 95.9 and
# 93.3. On medium-replay, with less than half the data, gpt2-dt and its twin then score 53.3 and 67.3, and the error on
# held-out data rises from 6,000 updates on; trained on 20 steps they score 55.1 and 96.9.
SHORT_CONTEXT = 5
SHORT_BUDGET = TrainConfig(steps=8_000, batch_size=128, lr=1e-3, warmup_steps=500, schedule="cosine", eps=1e-6)
SHORT_CURVE_EVERY = 2_000
MINI: dict[str, Any] = {
    **PRESETS["markov"],
    "input_maps": "linear",
    "head": "linear",
    "timestep_rank": 64,
    "backbone": "lm-mini",
    "embed_dim": 256,
    "n_layers": 3,
    "n_heads": 4,
    "activation": "gelu_pytorch_tanh",
}
SCRATCH: dict[str, Any] = {**MINI, "backbone": None}
# With timesteps dtma, gpt2-dt and gpt2-dtma reach the goal in 97, 98 and 95 of 100 validation episodes of the large
# maze at this learning rate, in 90, 98 and 98 at twice it. In the umaze they reach it in all.
SHORTEST: dict[str, Any] = {"batch_size": 640, "lr": 2e-3, "steps": 11_000}
# Agents of the large maze read no timesteps: gpt2-dt and gpt2-dtma then reach the goal in 100 and 100 of 100 validation
# episodes (`--seed` 5 and 6) in as many steps as bc or fewer, dtma in 99 and 98.
NO_TIMESTEPS: dict[str, Any] = {"max_ep_len": 1, "timestep_rank": None}


def long_recipe(name: str, kind: str, model: ModelConfig) -> Recipe:
    """The recipe of `<name>-hopper-<kind>` on windows of 20 steps."""
    data, evaluation = locomotion("hopper", kind)
    evaluation = evaluation.model_copy(update={"every": CURVE_EVERY})
    recipe = Recipe(agent_id=f"{name}-hopper-{kind}", model=model, data=data, train=CPU_BUDGET, eval=evaluation)
    return recipe.with_history(HISTORY)


def mini_recipe(name: str, kind: str, model: type[ModelConfig], fields: dict[str, Any]) -> Recipe:
    """The recipe of `<name>-hopper-<kind>` for a network of lm-mini's size: short windows, except on medium-replay."""
    if kind == "medium-replay":
        return long_recipe(name, kind, model(**fields))
    data, evaluation = locomotion("hopper", kind, SHORT_CONTEXT)
    return Recipe(
        agent_id=f"{name}-hopper-{kind}",
        model=model(**{**fields, **NO_DROPOUT}),
        data=data,
        train=SHORT_BUDGET,
        eval=evaluation.model_copy(update={"every": SHORT_CURVE_EVERY}),
    )


def mini_maze(name: str, maze: str, model: ModelConfig) -> Recipe:
    """The recipe of `<name>-pointmaze-<maze>` for a network of lm-mini's size.

    Windows have two steps, in medium five. In large it reads no timesteps.
    """
    if maze == "large":
        model = model.model_copy(update=NO_TIMESTEPS)
    recipe = maze_recipe(name, maze, model)
    return recipe if maze == "medium" else windows_of_two(recipe, **SHORTEST)
