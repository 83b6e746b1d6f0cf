"""Decision Mamba agents and the three ablations of the paper.

The network is the small preset, the optimizer the published one. Training is sized for a CPU: 8,000 updates instead of
100,000, so the learning rate is three times as high and falls to zero along a cosine. The past policy of PSER is
renewed 40 times in a run, as published: with other `train.steps`, set `model.teacher_period` to a 40th of them. The
four runs of the ablation share a smaller budget.

In the mazes windows are short, as those of dt, and half as many: 11,000 updates of 128 windows of 5 steps at a learning
rate of 1e-3. With 8,000 updates of 64 windows of 20 steps 88 of 100 episodes reached the goal. In Hopper it acts on its
whole window: with 5, 10 and 20 steps dm-hopper-medium-replay returns 1,362, 1,527 (20 validation episodes each) and
1,804.
"""

from __future__ import annotations

from typing import Any

from agentzoo.models.dm import DMConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.recipes._tasks import MAZES, locomotion, maze_recipe

PERIODS = 40
CPU_BUDGET = TrainConfig(
    steps=8_000, lr=3e-4, warmup_steps=400, schedule="cosine", weight_decay=1e-5, eps=1e-6, clip=0.25
)
MAZE_STEPS = 11_000
MAZE_TRAIN = CPU_BUDGET.model_copy(update={"steps": MAZE_STEPS, "batch_size": 128, "lr": 1e-3, "warmup_steps": 500})
ABLATION_BUDGET = CPU_BUDGET.model_copy(update={"steps": 5_000, "warmup_steps": 250})
ABLATIONS: dict[str, dict[str, Any]] = {
    "ablation": {},  # the full network, on the budget of the other three
    "no-mg": {"use_fine": False},
    "no-pser": {"beta_final": 0.0, "beta_min": 0.0},
    "no-ilo": {"ilo_weights": None},
}


def _recipe(agent_id: str, data: DataConfig, evaluation: EvalConfig, train: TrainConfig, model: DMConfig) -> Recipe:
    model = model.model_copy(update={"teacher_period": train.steps // PERIODS})
    return Recipe(agent_id=agent_id, model=model, data=data, train=train, eval=evaluation)


def _all() -> list[Recipe]:
    staged = {f"hopper-{kind}": locomotion("hopper", kind) for kind in ("medium", "medium-replay")}
    found = [_recipe(f"dm-{name}", *task, CPU_BUDGET, DMConfig()) for name, task in staged.items()]
    for maze in MAZES:
        model = DMConfig(beta_final=0.95, teacher_period=MAZE_STEPS // PERIODS)  # beta as in AntMaze
        found.append(maze_recipe("dm", maze, model).replace(train=MAZE_TRAIN))
    for name, changes in ABLATIONS.items():
        model = DMConfig().model_copy(update=changes)
        task = staged["hopper-medium-replay"]
        found.append(_recipe(f"dm-hopper-medium-replay-{name}", *task, ABLATION_BUDGET, model))
    return found


RECIPES = {recipe.agent_id: recipe for recipe in _all()}
