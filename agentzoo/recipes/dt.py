"""Decision Transformer agents.

The network, data and optimizer are the published ones. Training is sized for a CPU: 20,000 updates instead of
100,000, so the learning rate is three times as high, warms up over 1,000 updates and falls to zero along a cosine.
"""

from __future__ import annotations

from agentzoo.models.dt import DTConfig
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.recipes._tasks import CLASSIC, HISTORY, LOCOMOTION, MAZES, classic, locomotion, maze_recipe

CPU_BUDGET = TrainConfig(steps=20_000, lr=3e-4, warmup_steps=1_000, schedule="cosine")
SMALL_BUDGET = TrainConfig(steps=3_000, batch_size=128, lr=1e-3, warmup_steps=200, schedule="cosine")


def _recipe(env: str, kind: str) -> Recipe:
    data, evaluation = locomotion(env, kind)
    recipe = Recipe(agent_id=f"dt-{env}-{kind}", model=DTConfig(), data=data, train=CPU_BUDGET, eval=evaluation)
    return recipe.reading(HISTORY.get(kind))


RECIPES = {
    recipe.agent_id: recipe
    for recipe in (_recipe(env, kind) for env in LOCOMOTION for kind in ("medium", "medium-replay"))
}
for _maze in MAZES:
    _recipe_there = maze_recipe("dt", _maze, DTConfig(dropout=0.0))
    RECIPES[_recipe_there.agent_id] = _recipe_there
for _env in CLASSIC:  # tiny networks, a minute or two of training
    _data, _evaluation = classic(_env)
    _small = DTConfig(embed_dim=64, n_layers=2, dropout=0.0)
    RECIPES[f"dt-{_env}-mixed"] = Recipe(
        agent_id=f"dt-{_env}-mixed", model=_small, data=_data, train=SMALL_BUDGET, eval=_evaluation
    )
