"""Decision Transformer: predict each action from the last K (return-to-go, obs, action) triples.

Source: Chen et al. 2021, arXiv:2106.01345, Algorithm 1; kzl/decision-transformer@e2d82e6, gym/.
Differs: windows are padded on the right and normalized before padding (the reference pads on the left, and
normalizes first only when acting); the action token's heads for the next state and return, which the reference
never trains, are absent; a Discrete action is one-hot in and logits out. No effect on real steps of a Box agent:
tests/models/test_contract.py::test_hidden_steps_do_not_change_the_action, tests/models/test_parity.py.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import embedding, layer_norm

from agentzoo.nn.attention import Backbone, Block, CausalAttention, HeadCount, LayerCount
from agentzoo.nn.base import ModelConfig, SequenceModel, action_loss
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.newest import NewestToken
from agentzoo.nn.newest_compiled import CompiledNewest
from agentzoo.nn.prepared import Prepared, forget_prepared
from agentzoo.nn.tokens import STATE_TOKENS, TOKENS_PER_STEP, interleave, last_valid, timestep_table
from agentzoo.papers import CHEN, Citation
from agentzoo.registry import register
from agentzoo.types import Batch, IOSpec, Losses, Probability

# Layers whose weights say all that they do.
FOLDED = (nn.Linear, nn.LayerNorm, nn.Embedding, Dropout, nn.ModuleList, Backbone, Block, CausalAttention)


class DTConfig(ModelConfig):
    """Sizes of the published Gym agents."""

    title: ClassVar[str] = "Decision Transformer"
    paper: ClassVar[Citation | None] = CHEN

    family: Literal["dt"] = "dt"
    embed_dim: Annotated[int, Field(ge=1, le=8192)] = 128  # D; n_heads must divide it
    n_layers: LayerCount = 3
    n_heads: HeadCount = 1
    dropout: Probability = 0.1
    use_returns: bool = True  # False: the return-to-go token stays but always holds 0
    timestep_init_std: Annotated[float, Field(gt=0.0, le=10.0)] = 1.0
    timestep_rank: Annotated[int, Field(ge=1, le=8192)] | None = None  # r: the table is (max_ep_len, r) · (r, D)

    def acts_on_target(self) -> bool:
        """Unless it is a cloner."""
        return self.use_returns

    @model_validator(mode="after")
    def _heads_divide(self) -> DTConfig:
        if self.embed_dim % self.n_heads:
            raise ValueError(f"n_heads {self.n_heads} must divide embed_dim {self.embed_dim}")
        return self


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
        self.backbone = Backbone(dim, config.n_layers, config.n_heads, config.dropout)
        self.predict_action = nn.Linear(dim, io.action.size)
        self._folded = Prepared(self._fold)
        self.register_load_state_dict_post_hook(forget_prepared)  # type: ignore[no-untyped-call]

    def forward(self, batch: Batch) -> Tensor:
        """Predicted action of every step, (B, K, A): encoded in [-1, 1] for a bounded Box, logits if discrete."""
        return self._head(self.backbone(self._tokens(batch), read=STATE_TOKENS))

    def loss(self, batch: Batch) -> Losses:
        """Error over all valid steps of the window, not only the last."""
        target = self.encode_actions(batch.actions)
        return action_loss(self(batch), target, batch.valid, self.io.action.kind == "discrete")

    def act(self, batch: Batch) -> Tensor:
        """(B, A) for the newest valid step, in env units, or logits."""
        newest = batch.shape[1]
        equal = bool(batch.valid.all())  # full windows, the common case, need no counting
        if not equal:
            lengths = batch.valid.sum(dim=1)
            newest = int(lengths.max())
            equal = bool((lengths == newest).all())
            batch = batch.map(lambda part: part[:, :newest])
        # where histories are all as long, only one token has to be read
        encoded = self._head(self._newest(batch)) if equal else last_valid(self(batch), batch.valid)
        return self.decode_actions(encoded)

    def decays(self, name: str) -> bool:
        """Every parameter, biases and tables too, as the reference does."""
        return True

    def _head(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.predict_action(hidden)
        return torch.tanh(out) if self.bounded else out

    def _newest(self, batch: Batch) -> Tensor:
        """(B, D): the final hidden token of the newest step, all K being valid; its action is a placeholder."""
        if self.config.n_heads > 1 or torch.is_grad_enabled():
            return self._read_newest(batch)
        folded = self._folded.get(self)
        if folded is None:
            return self._read_newest(batch)
        tokens, newest = folded
        actions = self.encode_actions(batch.actions) if self.io.action.kind == "discrete" else batch.actions
        return newest(tokens(batch, actions))

    def _read_newest(self, batch: Batch) -> Tensor:
        hidden: Tensor = self.backbone(self._tokens(batch), read=slice(-2, -1))
        return hidden.squeeze(1)

    def _fold(self) -> tuple[FoldedTokens, NewestToken | CompiledNewest] | None:
        """None where somebody put other layers in place of ours or hooked one, which only running them does justice."""
        inside = [layer for layer in self.modules() if layer is not self]
        if any(type(layer) not in FOLDED or layer._forward_hooks or layer._forward_pre_hooks for layer in inside):
            return None
        newest = NewestToken.of(self.backbone)
        return FoldedTokens.of(self), CompiledNewest(newest) if CompiledNewest.serves(self.obs_mean) else newest

    def _tokens(self, batch: Batch) -> Tensor:
        if torch.is_grad_enabled():
            self._folded.drop()  # an update may follow
        time = self.embed_timestep(batch.timesteps.clamp(max=self.config.max_ep_len - 1))  # (B, K, D)
        rtg = batch.returns_to_go.unsqueeze(-1)
        rtg = self.embed_return(rtg if self.config.use_returns else torch.zeros_like(rtg))
        obs = self.embed_obs(self.normalize_obs(batch.observations, batch.valid))
        actions = self.embed_action(self.encode_actions(batch.actions))
        together = interleave(rtg, obs, actions).view(*batch.shape, TOKENS_PER_STEP, -1) + time.unsqueeze(2)
        tokens: Tensor = self.embed_dropout(self.embed_ln(together.flatten(1, 2)))  # (B, 3K, D)
        return tokens


class FoldedTokens(NamedTuple):
    """`DecisionTransformer._tokens` where all steps are valid: (R, s, a) side by side, one product for all three."""

    center: Tensor  # (1 + S + A,) what is subtracted from the inputs
    spread: Tensor  # (1 + S + A,) what they are divided by then
    embed: Tensor  # (1 + S + A, 3D), zero off its three blocks
    times: Tensor  # (max_ep_len, 3D), with the biases
    norm: tuple[Tensor, Tensor, float]  # `embed_ln`: weight, bias, eps

    @classmethod
    @torch.no_grad()
    def of(cls, model: DecisionTransformer) -> FoldedTokens:
        """From the weights of now."""
        layers = (model.embed_return, model.embed_obs, model.embed_action)
        embed = torch.block_diag(*(layer.weight for layer in layers)).t().contiguous()  # type: ignore[no-untyped-call]
        if not model.config.use_returns:
            embed[0] = 0.0
        center, half = model.action_center, model.action_half
        if model.io.action.kind == "discrete":
            center, half = torch.zeros_like(center), torch.ones_like(half)
        zero, one = center.new_zeros(1), center.new_ones(1)
        times = model.embed_timestep(torch.arange(model.config.max_ep_len, device=center.device))
        return cls(
            center=torch.cat((zero, model.obs_mean, center)),
            spread=torch.cat((one, model.obs_std, half)),
            embed=embed,
            times=times.repeat(1, TOKENS_PER_STEP) + torch.cat([layer.bias for layer in layers]),
            norm=(model.embed_ln.weight, model.embed_ln.bias, model.embed_ln.eps),
        )

    def __call__(self, batch: Batch, actions: Tensor) -> Tensor:
        """(B, 3K - 1, D), without the newest action; `actions` (B, K, A) in env units or one-hot."""
        windows, steps = batch.shape
        inputs = torch.cat((batch.returns_to_go.unsqueeze(-1), batch.observations, actions), dim=-1)
        inputs = inputs.sub_(self.center).div_(self.spread).flatten(0, 1)
        times = embedding(batch.timesteps.flatten().clamp(max=len(self.times) - 1), self.times)
        read = times.addmm_(inputs, self.embed).view(windows, TOKENS_PER_STEP * steps, -1)[:, :-1]
        return layer_norm(read, read.shape[-1:], *self.norm)
