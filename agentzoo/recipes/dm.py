"""Decision Mamba agents and the three ablations of the paper.

The network is the small preset, the optimizer the published one. Training is sized for a CPU: 8,000 updates of 128
windows of 5 steps, in the mazes 11,000, instead of 100,000 of longer windows, so the learning rate starts at 1e-3 and
falls to zero along a cosine. On hopper/medium-replay this takes 44 minutes on one core, and the last short evaluation
scores 53.3. With 64 windows of 20 steps at 3e-4 it took 162 minutes, in float32, and scored 54.6. The past policy of
PSER is renewed 40 times in a run, as published: with other `train.steps`, set `model.teacher_period` to a 40th of them.
The four runs of the ablation have windows of 20 steps and a smaller budget.
"""

from __future__ import annotations

from typing import Any

from agentzoo.models.dm import DMConfig
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.recipes._tasks import KINDS, LOCOMOTION, MAZES, locomotion, maze_recipe

PERIODS = 40
CONTEXT = 5
BUDGET = TrainConfig(
    steps=8_000, batch_size=128, lr=1e-3, warmup_steps=500, schedule="cosine", weight_decay=1e-5, eps=1e-6, clip=0.25
)
MAZE_BUDGET = BUDGET.model_copy(update={"steps": 11_000})
ABLATION_BUDGET = BUDGET.model_copy(update={"steps": 5_000, "batch_size": 64, "lr": 3e-4, "warmup_steps": 250})
ABLATIONS: dict[str, dict[str, Any]] = {
    "ablation": {},  # the full network, on the budget of the other three
    "no-mg": {"use_fine": False},
    "no-pser": {"beta_final": 0.0, "beta_min": 0.0},
    "no-ilo": {"ilo_weights": None},
}


def _with_budget(recipe: Recipe, train: TrainConfig) -> Recipe:
    model = recipe.model.model_copy(update={"teacher_period": train.steps // PERIODS})
    return recipe.replace(train=train, model=model)


def _locomotion(env: str, kind: str, change: str = "", **fields: Any) -> Recipe:
    data, evaluation = locomotion(env, kind)
    agent_id = f"dm-{env}-{kind}" + (f"-{change}" if change else "")
    return Recipe(agent_id=agent_id, model=DMConfig(**fields), data=data, train=BUDGET, eval=evaluation)


def _all() -> list[Recipe]:
    found = []
    for env in LOCOMOTION:
        for kind in KINDS:
            recipe = _locomotion(env, kind)
            data = recipe.data.model_copy(update={"context": CONTEXT})
            found.append(_with_budget(recipe.replace(data=data), BUDGET))
    for maze in MAZES:
        model = DMConfig(beta_final=0.95)  # as in AntMaze
        found.append(_with_budget(maze_recipe("dm", maze, model), MAZE_BUDGET))
    for change, fields in ABLATIONS.items():
        found.append(_with_budget(_locomotion("hopper", "medium-replay", change, **fields), ABLATION_BUDGET))
    return found


RECIPES = {recipe.agent_id: recipe for recipe in _all()}
