"""Behaviour cloning on pixels: convolutions and one hidden layer from the newest observation to the next action.

Source: the convolutions of Mnih et al. 2015, doi:10.1038/nature14236, in front of MLP-BC of arXiv:2106.01345.
Differs: it reads one observation, which is a stack of frames in Atari. The paper's Atari clone is a Decision
Transformer without returns: `dt-pixel` with `use_returns=false`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from agentzoo.nn.base import AVERAGES_OF_NEWEST, ActingMode, newest_action_loss
from agentzoo.nn.pixels import PixelConfig, PixelModel
from agentzoo.nn.tokens import last_valid
from agentzoo.papers import CHEN, Citation
from agentzoo.registry import register
from agentzoo.types import Batch, IOSpec, Losses, Probability


class BCPixelConfig(PixelConfig):
    """The convolutions of the published Atari agents, and a hidden layer."""

    title: ClassVar[str] = "behaviour cloning on pixels"
    has_timestep_table: ClassVar[bool] = False
    paper: ClassVar[Citation | None] = CHEN

    family: Literal["bc-pixel"] = "bc-pixel"
    hidden_dim: Annotated[int, Field(ge=1, le=8192)] = 256
    dropout: Probability = 0.1

    def acts_on_target(self) -> bool:
        """It reads no return."""
        return False

    def inputs(self) -> tuple[str, ...]:
        """Observations alone."""
        return ("observation",)


@register("bc-pixel", BCPixelConfig)
class PixelBehaviourCloning(PixelModel):
    """The newest observation alone. It reads no returns and no actions."""

    averages = AVERAGES_OF_NEWEST
    config: BCPixelConfig

    def __init__(self, config: BCPixelConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        self.embed_obs = self.make_encoder()
        layers = [nn.Linear(config.embed_dim, config.hidden_dim), nn.ReLU(), nn.Dropout(config.dropout)]
        self.net = nn.Sequential(*layers, nn.Linear(config.hidden_dim, io.action.size))

    @property
    def acting(self) -> ActingMode:
        """From the window: the network has no memory."""
        return "window"

    def forward(self, batch: Batch) -> Tensor:
        """(B, A): the encoded action (or logits) of each window's newest valid step."""
        newest = last_valid(batch.observations, batch.valid)
        if not newest.is_floating_point():
            newest = self.embed_obs(newest, self.obs_mean, self.obs_std)
        out: Tensor = self.net(newest)
        return torch.tanh(out) if self.bounded else out

    def loss(self, batch: Batch) -> Losses:
        """Error of the newest step only."""
        return newest_action_loss(self, self(batch), batch)

    def act(self, batch: Batch) -> Tensor:
        """(B, A) for the newest valid step: logits, or actions in env units."""
        return self.decode_actions(self(batch))
