"""Uni[MASK] agents, and every network of the paper's DoorKey heat-map with its published size.

The budget of the DoorKey networks is in `_doorkey.py`. The continuous agents get a CPU's budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentzoo.models.unimask import UniMaskConfig
from agentzoo.nn.masking import STEP_TASKS, Task
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig
from agentzoo.recipes._doorkey import RETURN_CLASSES, doorkey_recipe
from agentzoo.recipes._tasks import MAZE_CONTEXT, MAZES, locomotion, maze2d_dense, pointmaze

# task: (batch, embed_dim, ffn_dim, n_layers, n_heads, state_weight), paper, table 2
PUBLISHED: dict[str, tuple[int, int, int, int, int, float]] = {
    "bc": (250, 32, 128, 2, 4, 0.1),
    "rc": (50, 32, 128, 3, 4, 1.0),
    "goal": (250, 128, 128, 3, 8, 1.0),
    "waypoint": (250, 128, 128, 3, 8, 1.0),
    "past": (250, 32, 128, 4, 4, 0.5),
    "future": (250, 128, 32, 2, 4, 0.5),
    "forward": (250, 128, 128, 3, 8, 1.0),
    "inverse": (50, 128, 128, 3, 8, 0.5),
    "all": (250, 32, 128, 3, 4, 1.0),
    "rnd": (100, 128, 128, 2, 8, 1.0),
    "mlp-bc": (100, 32, 128, 3, 4, 0.5),
    "mlp-rnd": (250, 32, 128, 3, 4, 0.5),
}


def _specialists() -> list[Recipe]:
    found = []
    for name, (batch, dim, ffn, layers, heads, weight) in PUBLISHED.items():
        body, _, task = name.rpartition("-")
        model = UniMaskConfig(
            body="mlp" if body else "transformer",
            embed_dim=dim,
            ffn_dim=ffn,
            n_layers=layers,
            n_heads=heads,
            onehot_observations=True,
            return_classes=RETURN_CLASSES,
            tasks=STEP_TASKS if task == "all" else (task,),  # type: ignore[arg-type]
            state_weight=weight,
            acts_on_returns=task in ("rc", "all", "rnd"),  # the others see no return in training
        )
        found.append(doorkey_recipe("unimask-doorkey" if name == "rnd" else f"unimask-doorkey-{name}", model, batch))
    return found


BUDGET = TrainConfig(
    steps=10_000, batch_size=100, lr=3e-4, warmup_steps=500, schedule="cosine", weight_decay=1e-4, clip=0.5
)


def _continuous(
    name: str,
    data: DataConfig,
    evaluation: EvalConfig,
    context: int = 10,
    tasks: tuple[Task, ...] = ("rnd",),
    history: int | None = None,
    fields: Mapping[str, Any] = MappingProxyType({}),
    **train: Any,
) -> Recipe:
    sizes = {"embed_dim": 128, "ffn_dim": 128, "n_layers": 4, "n_heads": 16, "dropout": 0.0}
    network = UniMaskConfig.model_validate({**sizes, "tasks": tasks, **fields})
    data = data.model_copy(update={"drawn": "full", "context": context})
    budget = BUDGET.model_copy(update=train)
    recipe = Recipe(agent_id=f"unimask-{name}", model=network, data=data, train=budget, eval=evaluation)
    return recipe.with_history(history)


def _hopper() -> Recipe:
    """Only one random mask in four hundred is the mask of acting, so every second update is return-conditioned.

    Such an update predicts one action per window, so it has many windows. Acting reads three steps. On 50 validation
    episodes the same weights return 2,922 with 3 steps, 2,742 with 4, 2,571 with 5; on 20 of them 1,187 with the full
    window of 10.
    """
    task = locomotion("hopper", "medium")
    return _continuous("hopper-medium", *task, tasks=("rnd", "rc"), history=3, batch_size=256)


def _maze(maze: str) -> Recipe:
    """Every episode begins without a history, and there the maze needs a close fit.

    So windows are many and have five steps, as those of the other families, and every second update asks for one action
    after a history of random length. With random masks alone and 10,000 updates of 100 windows of 10 steps, the agent
    reached the goal in 48 of 100 episodes.

    Acting reads three steps. On 100 validation episodes of the medium maze, the same weights reach the goal in 99, 100,
    100, 100 and 79 when they read 1 to 5 steps, so not a full window. The log of
    `unimask-pointmaze-medium` is older: its short evaluations read the full window.

    The large maze needs a closer fit: windows of two steps, of which acting reads the newest, a wider network that
    learns observations with less weight, and more updates. The trials are in `agentzoo/research/README.md`.
    """
    data, evaluation = pointmaze(maze)
    often = evaluation.model_copy(update={"every": 2_000, "every_episodes": 50})
    settings: dict[str, Any] = {"context": MAZE_CONTEXT, "history": 3, "steps": 12_000}
    if maze == "large":
        settings = {"context": 2, "history": 1, "steps": 18_000, "fields": {"ffn_dim": 512, "state_weight": 0.1}}
    return _continuous(f"pointmaze-{maze}", data, often, tasks=("rnd", "rc"), batch_size=512, lr=1e-3, **settings)


def _agents() -> list[Recipe]:
    return [
        # a ninth of the published updates; losses still fall. Short windows do not help: agentzoo/masked/README.md
        _continuous("maze2d-dense", *maze2d_dense(), steps=40_000),
        _hopper(),
        *map(_maze, MAZES),
    ]


RECIPES = {recipe.agent_id: recipe for recipe in (*_specialists(), *_agents())}
