"""Decision Transformer agents.

The network is the published one. Training is sized for a CPU: many short windows instead of few long ones, 12,000
updates of 128 windows of 5 steps without dropout, at a learning rate that falls to zero along a cosine. The paper has
100,000 updates of 64 windows of 20 steps. With timesteps, on 20 validation episodes of hopper/medium-replay, an agent
of one training seed returns 2,465 after 27 minutes on one core; after 20,000 updates of long windows, in 96 minutes,
2,007 when it acts on 5 steps and 1,181 when it acts on 20. Without timesteps three training seeds score 70.8 there,
with them 53.0; on halfcheetah/medium-replay 39.3 and 31.9. The paper's training is `--set model.dropout=0.1 --set
model.max_ep_len=1000 --set data.context=20 --set train.steps=100000 --set train.batch_size=64 --set train.lr=1e-4
--set train.warmup_steps=10000 --set train.schedule=constant`.
"""

from __future__ import annotations

from typing import Any

from agentzoo.models.dt import DTConfig
from agentzoo.recipe import Recipe, TrainConfig
from agentzoo.recipes._tasks import CLASSIC, LEGGED, MAZES, classic, locomotion, maze_recipe, windows_of_two

CONTEXT = 5
CPU_BUDGET = TrainConfig(steps=12_000, batch_size=128, lr=1e-3, warmup_steps=500, schedule="cosine")
SMALL_BUDGET = TrainConfig(steps=3_000, batch_size=128, lr=1e-3, warmup_steps=200, schedule="cosine")


# These act better without timesteps on validation episodes, on walker2d/medium and cartpole/mixed equally well
# (`agentzoo/training/what_fits.md`). In Pendulum timesteps help. In Ant they were not tried.
WITHOUT_TIMESTEPS = {
    *("halfcheetah/medium-replay", "halfcheetah/medium-expert", "hopper/medium-replay", "hopper/medium-expert"),
    *("ant/medium", "ant/medium-replay"),
    *("walker2d/medium", "walker2d/medium-expert", "pointmaze/medium", "pointmaze/large", "cartpole/mixed"),
}


def _network(data: str, **fields: Any) -> DTConfig:
    return DTConfig(dropout=0.0, max_ep_len=1 if data in WITHOUT_TIMESTEPS else 1000, **fields)


def _recipe(env: str, kind: str) -> Recipe:
    data, evaluation = locomotion(env, kind, CONTEXT)
    return Recipe(
        agent_id=f"dt-{env}-{kind}",
        model=_network(f"{env}/{kind}"),
        data=data,
        train=CPU_BUDGET,
        eval=evaluation.model_copy(update={"every": 6_000, "every_episodes": 20}),
    )


def _maze(maze: str) -> Recipe:
    recipe = maze_recipe("dt", maze, _network(f"pointmaze/{maze}"))
    return windows_of_two(recipe, batch_size=640, lr=4e-3, steps=11_000) if maze in ("umaze", "large") else recipe


RECIPES = {recipe.agent_id: recipe for recipe in (*(_recipe(env, kind) for env, kind in LEGGED), *map(_maze, MAZES))}
for _env in CLASSIC:  # tiny networks, a minute or two of training
    _data, _evaluation = classic(_env)
    _small = _network(f"{_env}/mixed", embed_dim=64, n_layers=2)
    RECIPES[f"dt-{_env}-mixed"] = Recipe(
        agent_id=f"dt-{_env}-mixed", model=_small, data=_data, train=SMALL_BUDGET, eval=_evaluation
    )
