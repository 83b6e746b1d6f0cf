"""Decision Transformer: predict each action from the last K (return-to-go, obs, action) triples.

Source: Chen et al. 2021, arXiv:2106.01345, Algorithm 1; kzl/decision-transformer@e2d82e6, gym/.
Differs: windows are padded on the right and normalized before padding (the reference pads on the left, and
normalizes first only when acting); the action token's heads for the next state and return, which the reference
never trains, are absent; a Discrete action is one-hot in and logits out. No effect on real steps of a Box agent:
tests/models/test_contract.py::test_hidden_steps_do_not_change_the_action, tests/models/test_parity.py.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from agentzoo.nn.attention import Activation, Backbone, HeadCount, LayerCount, with_whole_heads
from agentzoo.nn.base import ModelConfig, SequenceModel, action_loss
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.tokens import STATE_TOKENS, TOKENS_PER_STEP, interleave, newest_state_token, timestep_table
from agentzoo.papers import CHEN, Citation
from agentzoo.registry import register
from agentzoo.types import Batch, IOSpec, Losses, Probability


class DTConfig(ModelConfig):
    """Sizes of the published Gym agents."""

    title: ClassVar[str] = "Decision Transformer"
    paper: ClassVar[Citation | None] = CHEN

    family: Literal["dt"] = "dt"
    embed_dim: Annotated[int, Field(ge=1, le=8192)] = 128  # D; n_heads must divide it
    n_layers: LayerCount = 3
    n_heads: HeadCount = 1
    dropout: Probability = 0.1
    activation: Activation = "relu"  # of the feed-forward layers; CORL's networks have gelu
    use_returns: bool = True  # False: the return-to-go token stays but always holds 0
    use_actions: bool = True  # False: the action tokens stay but always hold 0, so that nothing can be copied from them
    timestep_init_std: Annotated[float, Field(gt=0.0, le=10.0)] = 1.0
    timestep_rank: Annotated[int, Field(ge=1, le=8192)] | None = None  # r: the table is (max_ep_len, r) · (r, D)

    def acts_on_target(self) -> bool:
        """True unless it clones behaviour."""
        return self.use_returns

    def inputs(self) -> tuple[str, ...]:
        """Without the parts that its tokens never hold."""
        return tuple(name for name in super().inputs() if self.use_actions or name != "action")

    _whole_heads = model_validator(mode="after")(with_whole_heads)


@register("dt", DTConfig)
class DecisionTransformer(SequenceModel):
    """A causal transformer over 3K tokens, read at the observation tokens."""

    config: DTConfig

    def __init__(self, config: DTConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        dim = config.embed_dim
        self.embed_return = nn.Linear(1, dim)
        self.embed_obs = nn.Linear(io.observation.size, dim)
        self.embed_action = nn.Linear(io.action.size, dim)
        self.embed_timestep = timestep_table(config.max_ep_len, dim, config.timestep_rank, config.timestep_init_std)
        self.embed_ln = nn.LayerNorm(dim)
        self.embed_dropout = Dropout(config.dropout)
        self.backbone = Backbone(dim, config.n_layers, config.n_heads, config.dropout, config.activation)
        self.predict_action = nn.Linear(dim, io.action.size)

    def forward(self, batch: Batch) -> Tensor:
        """Predicted action of every step, (B, K, A): encoded in [-1, 1] for a bounded Box, logits if discrete."""
        return self._head(self.backbone(self._tokens(batch), read=STATE_TOKENS))

    def loss(self, batch: Batch) -> Losses:
        """Error over all valid steps of the window, not only the last."""
        target = self.encode_actions(batch.actions)
        return action_loss(self(batch), target, batch.valid, self.io.action.kind == "discrete")

    def act(self, batch: Batch) -> Tensor:
        """(B, A) for the newest valid step, in env units, or logits."""
        hidden = self.backbone(self._tokens(batch), read=newest_state_token(batch.valid))  # (B, 1, D)
        return self.decode_actions(self._head(hidden).squeeze(1))

    def decays(self, name: str) -> bool:
        """Every parameter, biases and tables too, as the reference does."""
        return True

    def _head(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.predict_action(hidden)
        return torch.tanh(out) if self.bounded else out

    def _tokens(self, batch: Batch) -> Tensor:
        time = self.embed_timestep(batch.timesteps.clamp(max=self.config.max_ep_len - 1))  # (B, K, D)
        rtg = batch.returns_to_go.unsqueeze(-1)
        rtg = self.embed_return(rtg if self.config.use_returns else torch.zeros_like(rtg))
        obs = self.embed_obs(self.normalize_obs(batch.observations, batch.valid))
        actions = self.encode_actions(batch.actions)
        actions = self.embed_action(actions if self.config.use_actions else torch.zeros_like(actions))
        together = interleave(rtg, obs, actions).view(*batch.shape, TOKENS_PER_STEP, -1) + time.unsqueeze(2)
        tokens: Tensor = self.embed_dropout(self.embed_ln(together.flatten(1, 2)))  # (B, 3K, D)
        return tokens
