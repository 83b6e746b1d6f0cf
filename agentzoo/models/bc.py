"""Behaviour cloning on the last K observations: the baseline a return-conditioned agent must beat.

Source: MLP-BC of arXiv:2106.01345; kzl/decision-transformer@e2d82e6, gym/decision_transformer/models/mlp_bc.py.
Differs: the window is the K steps that end at a training step, in right-padded windows whose newest step is the one
predicted (`data.drawn="last"`); missing earlier steps are zeros after normalization. %BC is a `data.best_fraction`
below 1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from agentzoo.nn.attention import LayerCount
from agentzoo.nn.base import AVERAGES_OF_NEWEST, ModelConfig, SequenceModel, newest_action_loss
from agentzoo.papers import CHEN, Citation
from agentzoo.registry import register
from agentzoo.types import Batch, IOSpec, Losses, Probability


class BCConfig(ModelConfig):
    """Sizes of the published baseline."""

    title: ClassVar[str] = "behaviour cloning"
    has_timestep_table: ClassVar[bool] = False
    paper: ClassVar[Citation | None] = CHEN

    family: Literal["bc"] = "bc"
    embed_dim: Annotated[int, Field(ge=1, le=8192)] = 128
    n_layers: LayerCount = 3
    dropout: Probability = 0.1

    def acts_on_target(self) -> bool:
        """It reads no return."""
        return False

    def inputs(self) -> tuple[str, ...]:
        """Observations alone."""
        return ("observation",)


@register("bc", BCConfig)
class BehaviourCloning(SequenceModel):
    """An MLP from the last K observations to the next action. It reads no returns and no actions."""

    averages = AVERAGES_OF_NEWEST
    config: BCConfig

    def __init__(self, config: BCConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        dim = config.embed_dim
        layers: list[nn.Module] = [nn.Linear(io.context * io.observation.size, dim)]
        for _ in range(config.n_layers - 1):
            layers += [nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(dim, dim)]
        layers += [nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(dim, io.action.size)]
        if self.bounded:
            layers.append(nn.Tanh())
        self.net = nn.Sequential(*layers)

    def forward(self, batch: Batch) -> Tensor:
        """(B, A): the encoded action (or logits) of each window's newest valid step."""
        obs = self.normalize_obs(batch.observations, batch.valid)
        steps = torch.arange(self.io.context, device=obs.device)
        # shifted right, so that the newest step is the last of the K, whatever the window's length
        source = steps[None, :] - (self.io.context - batch.valid.sum(dim=1))[:, None]  # (B, K)
        seen = source >= 0
        rows = torch.arange(obs.shape[0], device=obs.device)[:, None]
        out: Tensor = self.net((obs[rows, source.clamp(min=0)] * seen.unsqueeze(-1)).flatten(1))
        return out

    def loss(self, batch: Batch) -> Losses:
        """Error of the newest step only."""
        return newest_action_loss(self, self(batch), batch)

    def act(self, batch: Batch) -> Tensor:
        """(B, A) for the newest valid step, in env units, or logits."""
        return self.decode_actions(self(batch))

    def decays(self, name: str) -> bool:
        """Every parameter, as the reference does."""
        return True
