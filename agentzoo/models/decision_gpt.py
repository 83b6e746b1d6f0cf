"""Decision-GPT: a causal transformer that sees a return-to-go at the first step of its window only.

The causal twin of Uni[MASK], and its baseline: K triples (return-to-go, observation, action), each through a Linear
of its own, a LayerNorm and a learned position in the window; no timestep embedding. It predicts every action.

Source: Carroll et al. 2022, arXiv:2211.10869, appendix; micahcarroll/uniMASK@e57ee48.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from agentzoo.nn.attention import Backbone, HeadCount, LayerCount, with_whole_heads
from agentzoo.nn.base import ModelConfig, SequenceModel
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.masked_model import ReturnClasses, encode_returns, factor_error, return_size
from agentzoo.nn.masking import Masking
from agentzoo.nn.tokens import STATE_TOKENS, TOKENS_PER_STEP, Read, interleave, newest_state_token
from agentzoo.papers import CARROLL, Citation
from agentzoo.registry import register
from agentzoo.types import Batch, IOSpec, Losses, Probability, SizeInt

PLACE_INIT_STD = 0.02  # as GPT-2's positions


class DecisionGPTConfig(ModelConfig):
    """Sizes of the published DoorKey baseline."""

    title: ClassVar[str] = "Decision-GPT"
    has_timestep_table: ClassVar[bool] = False
    paper: ClassVar[Citation | None] = CARROLL

    family: Literal["decision-gpt"] = "decision-gpt"
    embed_dim: SizeInt = 32  # D; n_heads must divide it
    n_layers: LayerCount = 3
    n_heads: HeadCount = 8
    dropout: Probability = 0.1
    return_classes: ReturnClasses | None = None  # None: the return-to-go is a number, with its timestep
    use_returns: bool = True  # False: the return-to-go token stays but always holds 0

    _whole_heads = model_validator(mode="after")(with_whole_heads)

    def acts_on_target(self) -> bool:
        """True unless it clones behaviour."""
        return self.use_returns


@register("decision-gpt", DecisionGPTConfig)
class DecisionGPT(SequenceModel):
    """A causal transformer over 3K tokens, read at the observation tokens."""

    config: DecisionGPTConfig

    def __init__(self, config: DecisionGPTConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        dim = config.embed_dim
        self.embed_return = nn.Linear(return_size(config.return_classes), dim)
        self.embed_obs = nn.Linear(io.observation.size, dim)
        self.embed_action = nn.Linear(io.action.size, dim)
        self.embed_ln = nn.LayerNorm(dim)
        self.places = nn.Parameter(nn.init.normal_(torch.empty(TOKENS_PER_STEP * io.context, dim), std=PLACE_INIT_STD))
        self.embed_dropout = Dropout(config.dropout)
        self.backbone = Backbone(dim, config.n_layers, config.n_heads, config.dropout)
        self.predict_action = nn.Linear(dim, io.action.size)

    def forward(self, batch: Batch, returns: Tensor, read: Read = STATE_TOKENS) -> Tensor:
        """The actions at the tokens `read`, by default those of all steps, (B, K, A): encoded, or logits.

        Args:
            returns: (B, K) bool, where a return-to-go is shown.
        """
        rtg = encode_returns(batch, self.config.return_classes, self.config.max_ep_len)
        rtg = self.embed_return(torch.where(returns.unsqueeze(-1), rtg, 0.0))
        obs = self.embed_obs(self.normalize_obs(batch.observations, batch.valid))
        actions = self.embed_action(self.encode_actions(batch.actions))
        tokens = self.embed_ln(interleave(rtg, obs, actions))
        tokens = self.embed_dropout(tokens + self.places[: tokens.shape[1]])
        out: Tensor = self.predict_action(self.backbone(tokens, read))
        return out

    def factor_losses(self, batch: Batch, masking: Masking) -> Losses:
        """The error of the actions that `masking` asks for.

        Each action is predicted from everything before it, and from the returns that `masking` shows if `use_returns`.
        """
        target = self.encode_actions(batch.actions)
        asked = masking.ask_actions & batch.valid
        discrete = self.io.action.kind == "discrete"
        shown = masking.returns & self.config.use_returns
        return {"action": factor_error(self(batch, shown), target, asked, discrete)}

    def loss(self, batch: Batch) -> Losses:
        """Error over all valid actions of the window."""
        nothing = torch.zeros_like(batch.valid)
        masking = Masking(batch.valid, batch.valid, self._shown(batch), nothing, batch.valid)
        return self.factor_losses(batch, masking)

    def act(self, batch: Batch) -> Tensor:
        """(B, A) for the newest valid step, in env units, or logits."""
        encoded = self(batch, self._shown(batch), newest_state_token(batch.valid))
        return self.decode_actions(encoded.squeeze(1))

    def decays(self, name: str) -> bool:
        """Every parameter, as the reference does."""
        return True

    def _shown(self, batch: Batch) -> Tensor:
        first = torch.arange(batch.shape[1], device=batch.valid.device) == 0
        return first & batch.valid & self.config.use_returns
