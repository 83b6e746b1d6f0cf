"""Atari games: their data, evaluation and budget.

Chen et al. 2021 (arXiv:2106.01345) train on 500,000 steps of DQN's replay data, 128 windows an update, about 20,000
updates. Ours are on PPO's replay data of a few hundred thousand steps, 32 windows an update, 4,000 updates: hours on
two cores. Context, targets, learning rate, decay, betas and clipping are the paper's.
"""

from __future__ import annotations

from typing import NamedTuple

from agentzoo.nn.base import ModelConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig


class Game(NamedTuple):
    """Its name in our ids, the target return and the context K of the paper."""

    name: str
    target: float
    context: int


GAMES = {"pong": Game("Pong", 20.0, 50), "breakout": Game("Breakout", 90.0, 30)}
BUDGET = TrainConfig(
    steps=4_000,
    batch_size=32,
    lr=6e-4,
    warmup_steps=100,
    schedule="cosine",
    weight_decay=0.1,
    betas=(0.9, 0.95),
    clip=1.0,
)


def game_recipe(prefix: str, game: str, model: ModelConfig, train: TrainConfig = BUDGET, clone: bool = False) -> Recipe:
    """An agent of a game; a clone sees one observation."""
    chosen = GAMES[game]
    return Recipe(
        agent_id=f"{prefix}-{game}-replay",
        model=model,
        data=DataConfig(
            dataset=f"zoo/{game}/replay-v0",
            context=1 if clone else chosen.context,
            rtg_scale=1.0,
            drawn="last" if clone else "full",
        ),
        train=train,
        eval=EvalConfig(
            env=f"agentzoo/{chosen.name}-v5",
            target_return=chosen.target,
            sampled=True,
            every=train.steps // 4,
            every_episodes=5,
        ),
    )
