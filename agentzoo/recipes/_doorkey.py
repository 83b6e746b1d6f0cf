"""Data, evaluation and budget of all networks in the paper's DoorKey heat-map.

They train for 2,000 epochs: a fifth of the published budget for random masks, and about the published budget for the
others. The updates of an epoch are as many as the batches that the data fills.
"""

from __future__ import annotations

from agentzoo.envs import DOORKEY, DOORKEY_STEPS
from agentzoo.nn.base import ModelConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig

EPOCHS = 2_000
RETURN_CLASSES = (-6, 10)
DOORKEY_EVAL = EvalConfig(env=DOORKEY, target_return=5.0, every=0)  # 5: the distance of the nearest start from the goal


def doorkey_budget(batch: int, episodes: int = 500, epochs: int = EPOCHS, lr: float = 1e-4) -> TrainConfig:
    """The published optimizer and the updates of `epochs` passes over `episodes` trajectories."""
    updates = max(1, episodes // batch)
    return TrainConfig(
        steps=epochs * updates, batch_size=batch, lr=lr, warmup_steps=0, weight_decay=1e-4, clip=0.5, log_every=100
    )


def doorkey_data(episodes: int = 500) -> DataConfig:
    """The first `episodes` trajectories; a window is a whole one."""
    return DataConfig(
        dataset=f"zoo/doorkey/train-{episodes}-v0",
        context=DOORKEY_STEPS,
        rtg_scale=1.0,
        drawn="full",
        normalization="none",
    )


def doorkey_recipe(name: str, model: ModelConfig, batch: int) -> Recipe:
    """An agent of the heat-map, trained on 500 trajectories in batches of `batch`."""
    train = doorkey_budget(batch)
    return Recipe(agent_id=name, model=model, data=doorkey_data(), train=train, eval=DOORKEY_EVAL)
