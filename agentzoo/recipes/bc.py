"""Behaviour clones: the memoryless baseline of every agent.

A clone sees one observation and nothing else: no return, no action, no history. A sequence model has to beat its score.
The network (three layers of 256), 12,000 updates of 1,024 steps and no dropout fit every dataset here in a few minutes
on one core. The published clone, which reads 20 observations, is `--set data.context=20 --set model.embed_dim=128 --set
model.dropout=0.1`.
"""

from __future__ import annotations

from agentzoo.models.bc import BCConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.recipes._doorkey import DOORKEY_EVAL, doorkey_data
from agentzoo.recipes._tasks import CLASSIC, LEGGED, MAZES, classic, locomotion, maze2d_dense, pointmaze

BUDGET = TrainConfig(steps=12_000, batch_size=1_024, lr=1e-3, warmup_steps=500, schedule="cosine", clip=None)
SMALL_BUDGET = BUDGET.model_copy(update={"steps": 3_000})


def _recipe(task: str, data: DataConfig, evaluation: EvalConfig, train: TrainConfig = BUDGET, dim: int = 256) -> Recipe:
    # windows are drawn by their last step, at K = 1 the only one, so every step is drawn equally often
    data = data.model_copy(update={"drawn": "last", "context": 1})
    evaluation = evaluation.model_copy(update={"every": train.steps // 3})
    model = BCConfig(embed_dim=dim, dropout=0.0)
    return Recipe(agent_id=f"bc-{task}", model=model, data=data, train=train, eval=evaluation)


RECIPES = {
    recipe.agent_id: recipe
    for recipe in (
        *(_recipe(f"{env}-{kind}", *locomotion(env, kind)) for env, kind in LEGGED),
        *(_recipe(f"pointmaze-{maze}", *pointmaze(maze)) for maze in MAZES),
        *(_recipe(f"{env}-mixed", *classic(env), SMALL_BUDGET, dim=64) for env in CLASSIC),
        _recipe("doorkey", doorkey_data(), DOORKEY_EVAL, SMALL_BUDGET, dim=64),
        _recipe("maze2d-dense", *maze2d_dense()),
    )
}
