"""Atari games: their data, evaluation and budget.

Chen et al. 2021 (arXiv:2106.01345) train on 500,000 steps of DQN's replay data: about 20,000 updates of 128 windows of
30 steps (50 in Pong). Our agents train on PPO's replay data: 3,000 updates of 64 windows of 10 steps, half an hour on
one core. Learning rate, decay, betas and clipping are the paper's. The paper's sizes are
`--set model.n_layers=6 --set data.context=30 --set train.batch_size=128 --set train.steps=20000`.

The target return is the best one in the data; the paper's 90 for Breakout is not in it. The paper does not scale
returns-to-go; ours are divided, so that the tanh of their token does not saturate.
"""

from __future__ import annotations

from typing import NamedTuple

from agentzoo.nn.base import ModelConfig
from agentzoo.recipe import DataConfig, EvalConfig, Recipe, TrainConfig


class Game(NamedTuple):
    """A game: its name in ale-py, the best return in its data, and the scale of returns-to-go."""

    name: str
    best: float
    scale: float


GAMES = {"breakout": Game("Breakout", 19.0, 10.0), "seaquest": Game("Seaquest", 780.0, 200.0)}
CONTEXT = 10
BUDGET = TrainConfig(
    steps=3_000,
    batch_size=64,
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
            context=1 if clone else CONTEXT,
            rtg_scale=chosen.scale,
            drawn="last" if clone else "full",
        ),
        train=train,
        eval=EvalConfig(
            env=f"agentzoo/{chosen.name}-v5",
            target_return=chosen.best,
            target_rule="max",
            sampled=True,
            every=train.steps // 4,
            every_episodes=5,
        ),
    )
