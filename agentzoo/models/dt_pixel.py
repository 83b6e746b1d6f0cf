"""DT on pixels: the Decision Transformer of Atari, with convolutions in front.

Source: Chen et al. 2021, arXiv:2106.01345, section 4.1 and appendix A; kzl/decision-transformer@e2d82e6,
atari/mingpt/model_atari.py. Each step has three tokens, which go through tanh. The learned position of the token in its
window and the learned timestep of the window's first step are added to each.
Differs: the reference reads the timestep of the newest step in acting and of the first step in training; here it is the
first step in both. The recipes train on full windows of K steps only. A Discrete action is one-hot in; actions may also
be a Box. No effect on real steps of a Discrete agent: tests/parity/test_originals.py.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from agentzoo.nn.attention import Backbone, HeadCount, LayerCount, with_whole_heads
from agentzoo.nn.base import action_loss
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.pixels import PixelConfig, PixelModel
from agentzoo.nn.tokens import STATE_TOKENS, TOKENS_PER_STEP, interleave, newest_state_token
from agentzoo.papers import CHEN, Citation
from agentzoo.registry import register
from agentzoo.types import Batch, IOSpec, Losses, Probability

PUBLISHED_LAYERS = 6


class DTPixelConfig(PixelConfig):
    """Sizes of the published Atari agents."""

    title: ClassVar[str] = "Decision Transformer on pixels"
    paper: ClassVar[Citation | None] = CHEN

    family: Literal["dt-pixel"] = "dt-pixel"
    max_ep_len: Annotated[int, Field(ge=1, le=100_000)] = 4096
    n_layers: LayerCount = PUBLISHED_LAYERS
    n_heads: HeadCount = 8
    dropout: Probability = 0.1
    use_returns: bool = True  # False: the return-to-go token stays but always holds 0

    def acts_on_target(self) -> bool:
        """True unless it clones behaviour."""
        return self.use_returns

    def deviations(self) -> tuple[str, ...]:
        """Differences from the published agents and their code."""
        layers = () if self.n_layers == PUBLISHED_LAYERS else (f"it has {self.n_layers} layers; the paper has 6",)
        return (
            *super().deviations(),
            *layers,
            "where windows, updates and batches are smaller than the paper's (30 steps, 50 in Pong; 20,000 updates of "
            "128 windows), they are chosen for a CPU's budget",
            "when it acts, it reads the timestep of its window's first step, as in training; the release reads that of "
            "the newest",
        )

    _whole_heads = model_validator(mode="after")(with_whole_heads)


@register("dt-pixel", DTPixelConfig)
class PixelDecisionTransformer(PixelModel):
    """Convolutions and a causal transformer over 3K tokens, read at the observation tokens."""

    config: DTPixelConfig

    def __init__(self, config: DTPixelConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        dim, discrete = config.embed_dim, io.action.kind == "discrete"
        self.embed_return = nn.Linear(1, dim)
        self.embed_obs = self.make_encoder()
        self.embed_action = nn.Linear(io.action.size, dim, bias=not discrete)
        nn.init.normal_(self.embed_action.weight, std=0.02)
        self.embed_position = nn.Embedding(TOKENS_PER_STEP * io.context, dim)
        self.embed_timestep = nn.Embedding(config.max_ep_len, dim)
        nn.init.zeros_(self.embed_position.weight)
        nn.init.zeros_(self.embed_timestep.weight)
        self.embed_dropout = Dropout(config.dropout)
        self.backbone = Backbone(dim, config.n_layers, config.n_heads, config.dropout, "gelu")
        self.predict_action = nn.Linear(dim, io.action.size, bias=False)
        nn.init.normal_(self.predict_action.weight, std=0.02)

    def forward(self, batch: Batch) -> Tensor:
        """Predicted action of every step, (B, K, A): logits, or encoded in [-1, 1] for a bounded Box."""
        return self._head(self.backbone(self._tokens(batch), read=STATE_TOKENS))

    def loss(self, batch: Batch) -> Losses:
        """Error over all valid steps of the window, not only the last."""
        target = self.encode_actions(batch.actions)
        return action_loss(self(batch), target, batch.valid, self.io.action.kind == "discrete")

    def act(self, batch: Batch) -> Tensor:
        """(B, A) for the newest valid step: logits, or actions in env units."""
        hidden = self.backbone(self._tokens(batch), read=newest_state_token(batch.valid))  # (B, 1, D)
        return self.decode_actions(self._head(hidden).squeeze(1))

    def decays(self, name: str) -> bool:
        """Matrices and convolutions; not the tables of actions, positions and timesteps."""
        tables = ("embed_position.", "embed_timestep.")
        table_of_actions = name == "embed_action.weight" and self.io.action.kind == "discrete"
        return super().decays(name) and not name.startswith(tables) and not table_of_actions

    def _head(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.predict_action(hidden)
        return torch.tanh(out) if self.bounded else out

    def _tokens(self, batch: Batch) -> Tensor:
        """(B, 3K, D)."""
        rtg = batch.returns_to_go.unsqueeze(-1)
        returns = torch.tanh(self.embed_return(rtg if self.config.use_returns else torch.zeros_like(rtg)))
        actions = torch.tanh(self.embed_action(self.encode_actions(batch.actions)))
        tokens = interleave(returns, self.encoded(batch), actions)
        began = self.embed_timestep(batch.timesteps[:, :1].clamp(max=self.config.max_ep_len - 1))  # (B, 1, D)
        embedded: Tensor = self.embed_dropout(tokens + began + self.embed_position.weight[: tokens.shape[1]])
        return embedded
