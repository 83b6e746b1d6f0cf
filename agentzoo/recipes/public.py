"""Decision Transformers on Minari's own public datasets. We publish no weights of these.

`agentzoo train dt-mujoco-hopper-medium` fetches `mujoco/hopper/medium-v0` from Minari's remote on first use. Targets
are D4RL's constants, the goal's reward, or the expert's return that D4RL scores as 100; `--target max` asks for the
best return in the data instead. References are D4RL's (Farama-Foundation/D4RL, d4rl/infos.py). Network, windows and
training are those of `recipes.dt`, as for `agentzoo train dt --dataset mujoco/hopper/medium-v0`.
"""

from __future__ import annotations

from agentzoo.data.references import D4RL_REFERENCES
from agentzoo.data.targets import CONSTANTS
from agentzoo.models.dt import DTConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe
from agentzoo.recipes._tasks import LOCOMOTION
from agentzoo.recipes.dt import CONTEXT, CPU_BUDGET

LEVELS = ("simple", "medium", "expert")
# D4RL/antmaze -> the environment it was recorded in; v5 has other observations
ANT_MAZES = {
    "umaze": "AntMaze_UMaze-v4",
    "umaze-diverse": "AntMaze_UMaze-v4",
    "medium-play": "AntMaze_Medium-v4",
    "medium-diverse": "AntMaze_Medium_Diverse_GR-v4",
    "large-play": "AntMaze_Large-v4",
    "large-diverse": "AntMaze_Large_Diverse_GR-v4",
}
PEN = (96.262799, 3076.8331017826877)
KITCHEN = (0.0, 4.0)  # tasks of four
GOAL = (0.0, 1.0)


def _recipe(
    name: str, dataset: str, evaluation: EvalConfig, scale: float, keys: tuple[str, ...] | None = None
) -> Recipe:
    data = DataConfig(dataset=dataset, context=CONTEXT, rtg_scale=scale, obs_keys=keys)
    return Recipe(agent_id=f"dt-{name}", model=DTConfig(dropout=0.0), data=data, train=CPU_BUDGET, eval=evaluation)


def _recipes() -> list[Recipe]:
    found = []
    for robot, name in LOCOMOTION.items():
        target = CONSTANTS.get(name, D4RL_REFERENCES[name].expert)
        evaluation = EvalConfig(env=f"{name}-v5", target_return=target)
        for level in LEVELS:
            found.append(_recipe(f"mujoco-{robot}-{level}", f"mujoco/{robot}/{level}-v0", evaluation, 1000.0))
    for maze, env in ANT_MAZES.items():
        evaluation = EvalConfig(env=env, env_options={"continuing_task": False}, target_return=1.0, reference=GOAL)
        keys = ("observation", "desired_goal")
        found.append(_recipe(f"antmaze-{maze}", f"D4RL/antmaze/{maze}-v1", evaluation, 1.0, keys))
    for kind in ("human", "cloned", "expert"):
        evaluation = EvalConfig(env="AdroitHandPen-v1", target_return=PEN[1], reference=PEN)
        found.append(_recipe(f"pen-{kind}", f"D4RL/pen/{kind}-v2", evaluation, 1000.0))
    for kind in ("complete", "partial", "mixed"):
        # a recipe cannot hold its task options, so it is not evaluated during training
        evaluation = EvalConfig(env="FrankaKitchen-v1", target_return=4.0, every=0, reference=KITCHEN)
        found.append(_recipe(f"kitchen-{kind}", f"D4RL/kitchen/{kind}-v2", evaluation, 1.0, ("observation",)))
    return found


RECIPES = {recipe.agent_id: recipe for recipe in _recipes()}
