"""Decision Mamba agents, the three ablations of the paper and its sweep of the past policy's weight.

The network is the small preset, the optimizer the published one. Training is sized for a CPU: 8,000 updates of 128
windows of 5 steps, in the mazes 7,000 of 320 windows of 2 steps (14,000 in the large one), instead of 100,000 of longer
windows, so the learning rate starts at 1e-3 (mazes: 2e-3) and falls to zero along a cosine. The network has no
timesteps and half of these updates on the data of ant and on the medium-replay and medium-expert data of hopper and
halfcheetah; it has no timesteps in the medium and the large maze. The past policy of PSER is renewed 40 times in a run,
as published: with other `train.steps`, set `model.teacher_period` to a 40th of them. Its share ends at 0.9 in all
locomotion data, where the paper has 0.85 for HalfCheetah and Ant and 0.95 for Walker2d (`model.beta_final`).

Ablations and sweep change one thing of `dm-halfcheetah-medium-replay`, because no robot falls there: its three training
seeds score within a point, those of hopper/medium-replay within fifty.
"""

from __future__ import annotations

from typing import Any

from agentzoo.models.dm import DMConfig
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.recipes._tasks import LEGGED, MAZES, locomotion, maze_recipe, variant, windows_of_two

PERIODS = 40
CONTEXT = 5
# On validation episodes 4,000 updates without timesteps return more on hopper/medium-replay than 8,000 with them, and
# about as much as `dt` on the other three, where 8,000 were not tried (`agentzoo/training/what_fits.md`).
# Nor were they tried in Ant.
SHORT = {
    *(f"{env}/{kind}" for env in ("hopper", "halfcheetah") for kind in ("medium-replay", "medium-expert")),
    *("ant/medium", "ant/medium-replay"),
}
SHORT_STEPS = 4_000
# In the large maze 7,000 updates reach the goal in 86 of 100 validation episodes, these in 92, without timesteps in 99.
LARGE_MAZE_STEPS = 14_000
BUDGET = TrainConfig(
    steps=8_000, batch_size=128, lr=1e-3, warmup_steps=500, schedule="cosine", weight_decay=1e-5, eps=1e-6, clip=0.25
)
# name: what an ablation changes. The sweep has no lower bound of the weight, as published.
ABLATIONS: dict[str, dict[str, Any]] = {
    "no-mg": {"use_fine": False},
    "no-pser": {"beta_final": 0.0, "beta_min": 0.0},
    "no-ilo": {"ilo_weights": None},
    **{f"beta-{beta:g}": {"beta_final": beta, "beta_min": 0.0} for beta in (1.0, 0.75, 0.5, 0.25)},
}


def _renewing(recipe: Recipe) -> Recipe:
    """With its past policy renewed as often as published."""
    model = recipe.model.model_copy(update={"teacher_period": recipe.train.steps // PERIODS})
    return recipe.replace(model=model)


def _of_kind(env: str, kind: str) -> Recipe:
    data, evaluation = locomotion(env, kind, CONTEXT)
    recipe = Recipe(agent_id=f"dm-{env}-{kind}", model=DMConfig(), data=data, train=BUDGET, eval=evaluation)
    if f"{env}/{kind}" not in SHORT:
        return recipe
    train = BUDGET.model_copy(update={"steps": SHORT_STEPS})
    return _without_timesteps(recipe.replace(train=train))


def _without_timesteps(recipe: Recipe) -> Recipe:
    return recipe.replace(model=recipe.model.model_copy(update={"max_ep_len": 1}))


def _maze(maze: str) -> Recipe:
    recipe = maze_recipe("dm", maze, DMConfig(beta_final=0.95)).replace(train=BUDGET)  # beta as in AntMaze
    recipe = windows_of_two(recipe, batch_size=320, lr=2e-3, steps=7_000)
    if maze == "large":
        recipe = recipe.replace(train=recipe.train.model_copy(update={"steps": LARGE_MAZE_STEPS}))
    return recipe if maze == "umaze" else _without_timesteps(recipe)


_ABLATED = _of_kind("halfcheetah", "medium-replay")
RECIPES = {
    recipe.agent_id: recipe
    for recipe in map(
        _renewing,
        (
            *(_of_kind(env, kind) for env, kind in LEGGED),
            *(_maze(maze) for maze in MAZES),
            *(variant(_ABLATED, change, **fields) for change, fields in ABLATIONS.items()),
        ),
    )
}
