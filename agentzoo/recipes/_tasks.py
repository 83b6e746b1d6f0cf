"""Datasets and evaluation settings that several families share."""

from __future__ import annotations

from typing import Any

from agentzoo.data.targets import CONSTANTS, Target
from agentzoo.envs import MAZE2D_DENSE
from agentzoo.nn.base import ModelConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig

# In our ids, in Gymnasium's.
LOCOMOTION = {"hopper": "Hopper", "halfcheetah": "HalfCheetah", "walker2d": "Walker2d", "ant": "Ant"}
MAZES = {"umaze": "UMaze", "medium": "Medium", "large": "Large"}
KINDS = ("medium", "medium-replay", "medium-expert")
PAPER_SETS = tuple((env, kind) for env in ("hopper", "halfcheetah", "walker2d") for kind in KINDS)
LEGGED = (*PAPER_SETS, ("ant", "medium"), ("ant", "medium-replay"))
# The best return in the data, where it is below the constant or there is none.
BEST = {
    ("hopper", "medium"): 3332.259080321015,
    ("hopper", "medium-replay"): 3124.479416489601,
    ("halfcheetah", "medium"): 5067.735211601527,
    ("halfcheetah", "medium-replay"): 4865.273956358433,
    ("halfcheetah", "medium-expert"): 11981.697916690331,
    ("walker2d", "medium"): 3859.382959203833,
    ("walker2d", "medium-replay"): 3529.0445536002517,
    ("walker2d", "medium-expert"): 4645.925308981723,
    ("ant", "medium"): 3449.249318060453,
    ("ant", "medium-replay"): 3511.1684276969063,
}


def variant(recipe: Recipe, ending: str, **fields: Any) -> Recipe:
    """The same training with these fields of the model changed."""
    model = type(recipe.model).model_validate({**recipe.model.model_dump(), **fields})
    return recipe.replace(agent_id=f"{recipe.agent_id}-{ending}", model=model)


def locomotion(env: str, kind: str, context: int = 20) -> tuple[DataConfig, EvalConfig]:
    """Data, in windows of `context` steps, and evaluation of e.g. ("hopper", "medium-replay").

    The target return follows the rule `d4rl` of `data.targets`: the published constant where the data reaches it, else
    the best return in the data.
    """
    best = BEST.get((env, kind))
    target = Target(CONSTANTS[LOCOMOTION[env]], "d4rl") if best is None else Target(best, "max")
    data = DataConfig(dataset=f"zoo/{env}/{kind}-v0", context=context, rtg_scale=1000.0)
    return data, EvalConfig(env=f"{LOCOMOTION[env]}-v5", target_return=target.value, target_rule=target.rule)


def pointmaze(maze: str) -> tuple[DataConfig, EvalConfig]:
    """Data and evaluation of a maze. The reward is 1 at the goal, so the target is 1; slow agents do not reach it."""
    keys = ("observation", "desired_goal")
    data = DataConfig(dataset=f"zoo/pointmaze/{maze}-v0", context=20, rtg_scale=1.0, obs_keys=keys)
    # a continuing task would not end at its goal
    options: dict[str, bool | int | float | str] = {"continuing_task": False}
    return data, EvalConfig(env=f"PointMaze_{MAZES[maze]}-v3", env_options=options, target_return=1.0)


def maze2d_dense() -> tuple[DataConfig, EvalConfig]:
    """Data and evaluation of the dense maze, where the return is the progress towards a goal in metres.

    The target is a tenth above the mean of the data. `agentzoo research unimask maze2d` sets one for each start.
    """
    data = DataConfig(dataset="zoo/maze2d-dense/medium-v0", rtg_scale=1.0, normalization="none")
    return data, EvalConfig(env=MAZE2D_DENSE, target_return=3.3)


MAZE_CONTEXT = 5
MAZE_BUDGET = TrainConfig(steps=11_000, batch_size=256, lr=1e-3, warmup_steps=500, schedule="cosine")


def maze_recipe(name: str, maze: str, model: ModelConfig) -> Recipe:
    """An agent of a maze on windows of five steps, with a budget for a CPU; families change it for single mazes.

    The paper has 100,000 updates of 64 windows of 50 steps. The maze is nearly Markov and needs a close fit, so here
    windows are many and short: 11,000 updates of 256 windows of 5 steps, without dropout, at a learning rate that falls
    to zero along a cosine. With 6,000 updates of 32 long windows and dropout 0.1 every family lost to a memoryless
    clone.
    """
    data, evaluation = pointmaze(maze)
    data = data.model_copy(update={"context": MAZE_CONTEXT})
    evaluation = evaluation.model_copy(update={"every": 2_000})
    return Recipe(agent_id=f"{name}-pointmaze-{maze}", model=model, data=data, train=MAZE_BUDGET, eval=evaluation)


def windows_of_two(recipe: Recipe, batch_size: int, lr: float, steps: int) -> Recipe:
    """A maze recipe on windows of two steps.

    The first step of a window is the hardest, since no past action hints at the way, and every episode begins with it.
    With two steps a window half of the errors are a first step's, with five a fifth. The trials are in
    `agentzoo/training/what_fits.md`.
    """
    train = recipe.train.model_copy(update={"batch_size": batch_size, "lr": lr, "steps": steps})
    evaluation = recipe.eval.model_copy(update={"every": steps // 4, "every_episodes": 50})
    return recipe.replace(data=recipe.data.model_copy(update={"context": 2}), train=train, eval=evaluation)


CLASSIC = ("cartpole", "pendulum")
CLASSIC_CONTEXT = 10
PENDULUM_P90 = -121.18


def classic(env: str) -> tuple[DataConfig, EvalConfig]:
    """Data and evaluation of CartPole and Pendulum, targets chosen before any evaluation.

    The target of CartPole is the best return in the data. Pendulum's best episode starts upright, which is out of reach
    from other starts, so its target is the 90th percentile.
    """
    data = DataConfig(dataset=f"zoo/{env}/mixed-v0", context=CLASSIC_CONTEXT, rtg_scale=100.0)
    if env == "cartpole":
        return data, EvalConfig(env="CartPole-v1", target_return=500.0, target_rule="max", every=500)
    return data, EvalConfig(env="Pendulum-v1", target_return=PENDULUM_P90, target_rule="p90", every=500)
