"""Online Decision Transformer, its offline part: DT's actions become distributions with a minimum entropy.

Source: Zheng, Zhang and Grover 2022, arXiv:2202.05607, section 4; facebookresearch/online-dt. The loss is
-log π(a) - λ (H - β): λ is learned so that the mean entropy H of the policy stays at or above β, by default minus one
per number of the action.
Differs: the entropy of a squashed normal distribution is integrated with 16 Gauss-Hermite nodes instead of one random
sample; timesteps are embedded as in `dt`; λ learns at the rate of the network, with its optimizer.

Symbols: x the number before squashing, a = tanh(x); mean and log_std are those of x.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import softplus

from agentzoo.nn.attention import Backbone, HeadCount, LayerCount, with_whole_heads
from agentzoo.nn.base import ModelConfig, SequenceModel, mean_over_valid
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.tokens import (
    STATE_TOKENS,
    TOKENS_PER_STEP,
    Read,
    interleave,
    newest_state_token,
    timestep_table,
)
from agentzoo.papers import Citation
from agentzoo.registry import register
from agentzoo.types import Batch, IOSpec, Losses, Probability, SizeInt

ZHENG = Citation(
    "zheng2022online",
    "Online Decision Transformer",
    "Zheng, Qinqing and Zhang, Amy and Grover, Aditya",
    2022,
    "2202.05607",
)
LOG_STD = (-5.0, 2.0)  # range of log_std, as published
INSIDE = 1.0 - 1e-6  # actions of the data are moved this far into the bounds, where their density is finite
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(16)  # of an expectation over a standard normal number


class ODTConfig(ModelConfig):
    """Sizes for a CPU; the preset `paper` has the published ones."""

    title: ClassVar[str] = "Online Decision Transformer (offline part)"
    paper: ClassVar[Citation | None] = ZHENG

    family: Literal["odt"] = "odt"
    embed_dim: SizeInt = 128  # D; n_heads must divide it
    n_layers: LayerCount = 3
    n_heads: HeadCount = 1
    dropout: Probability = 0.1
    # β in nats, for each number of a Box action. The entropy of a Discrete action is never negative: only a positive
    # floor changes it
    entropy_floor: Annotated[float, Field(ge=-100.0, le=100.0)] = -1.0
    start_temperature: Annotated[float, Field(gt=0.0, le=100.0)] = 0.1  # λ when training begins

    _whole_heads = model_validator(mode="after")(with_whole_heads)

    @classmethod
    def presets(cls) -> dict[str, dict[str, Any]]:
        """Two sizes."""
        return {"small": {}, "paper": {"embed_dim": 512, "n_layers": 4, "n_heads": 4}}


class Normal(NamedTuple):
    """Independent normal distributions of x, squashed by tanh where the action is bounded; any leading axes."""

    mean: Tensor  # (..., A)
    log_std: Tensor  # (..., A)
    squashed: bool

    def encoded(self, x: Tensor) -> Tensor:
        """x -> the action as the network reads it, in [-1, 1] where it is bounded."""
        return torch.tanh(x) if self.squashed else x

    def log_prob(self, action: Tensor) -> Tensor:
        """(...) log density of encoded actions (..., A)."""
        x = torch.atanh(action.clamp(-INSIDE, INSIDE)) if self.squashed else action
        z = (x - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi) - self._stretch(x)).sum(-1)

    def entropy(self) -> Tensor:
        """(...) in nats: the entropy of x plus the mean of log |d action / dx|."""
        own = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
        if not self.squashed:
            return own
        nodes, weights = (torch.tensor(v, dtype=self.mean.dtype, device=self.mean.device) for v in (_NODES, _WEIGHTS))
        x = self.mean.unsqueeze(-1) + self.log_std.exp().unsqueeze(-1) * nodes  # (..., A, 16)
        return own + ((self._stretch(x) * weights).sum(-1) / weights.sum()).sum(-1)

    def _stretch(self, x: Tensor) -> Tensor:
        """log |d action / dx|."""
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x)) if self.squashed else torch.zeros_like(x)


class BoxActions:
    """What `act` returns for a Box: distributions of B encoded actions, and the way back to env units."""

    def __init__(self, normal: Normal, model: ODT) -> None:
        self._normal, self._model = normal, model

    def mode(self) -> Tensor:
        """(B, A) the squashed mean, as the reference acts when it is evaluated."""
        return self._model.decode_actions(self._normal.encoded(self._normal.mean))

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, A) one draw each."""
        mean = self._normal.mean
        noise = torch.randn(mean.shape, generator=generator).to(mean)
        return self._model.decode_actions(self._normal.encoded(mean + self._normal.log_std.exp() * noise))


@register("odt", ODTConfig)
class ODT(SequenceModel):
    """A causal transformer over 3K tokens that predicts a distribution of actions at each observation token."""

    config: ODTConfig

    def __init__(self, config: ODTConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        dim = config.embed_dim
        self.discrete = io.action.kind == "discrete"
        self.embed_return = nn.Linear(1, dim)
        self.embed_obs = nn.Linear(io.observation.size, dim)
        self.embed_action = nn.Linear(io.action.size, dim)
        self.embed_timestep = timestep_table(config.max_ep_len, dim, None, 1.0)
        self.embed_ln = nn.LayerNorm(dim)
        self.embed_dropout = Dropout(config.dropout)
        self.backbone = Backbone(dim, config.n_layers, config.n_heads, config.dropout)
        self.predict_action = nn.Linear(dim, io.action.size * (1 if self.discrete else 2))
        self.log_temperature = nn.Parameter(torch.tensor([math.log(config.start_temperature)]))

    def forward(self, batch: Batch) -> Tensor:
        """The squashed mean of every step, (B, K, A), encoded; or logits."""
        out = self._output(batch, STATE_TOKENS)
        if self.discrete:
            return out
        normal = self._normal(out)
        return normal.encoded(normal.mean)

    def loss(self, batch: Batch) -> Losses:
        """Negative log-likelihood, the entropy bonus, and the loss of λ."""
        out, target = self._output(batch, STATE_TOKENS), self.encode_actions(batch.actions)
        if self.discrete:
            log_p = out.log_softmax(-1)
            likelihood, entropy = (log_p * target).sum(-1), -(log_p.exp() * log_p).sum(-1)
        else:
            normal = self._normal(out)
            likelihood, entropy = normal.log_prob(target), normal.entropy()
        floor = self.config.entropy_floor * (1 if self.discrete else self.io.action.size)
        temperature = self.log_temperature.exp().squeeze(0)
        return {
            "action_nll": -mean_over_valid(likelihood, batch.valid),
            "entropy_bonus": -temperature.detach() * mean_over_valid(entropy, batch.valid),
            "temperature": temperature * mean_over_valid(entropy.detach() - floor, batch.valid),
        }

    def act(self, batch: Batch) -> Tensor | BoxActions:
        """For the newest valid step: distributions of B actions, or (B, A) logits."""
        out = self._output(batch, newest_state_token(batch.valid)).squeeze(1)
        return out if self.discrete else BoxActions(self._normal(out), self)

    def decays(self, name: str) -> bool:
        """True for the network's parameters, False for λ."""
        return name != "log_temperature"

    def _normal(self, out: Tensor) -> Normal:
        mean, raw = out.chunk(2, dim=-1)
        low, high = LOG_STD
        return Normal(mean, low + 0.5 * (high - low) * (torch.tanh(raw) + 1.0), self.bounded)

    def _output(self, batch: Batch, read: Read) -> Tensor:
        """(B, Lq, A) logits, or (B, Lq, 2A) mean and raw log_std, at the tokens `read`."""
        time = self.embed_timestep(batch.timesteps.clamp(max=self.config.max_ep_len - 1))  # (B, K, D)
        rtg = self.embed_return(batch.returns_to_go.unsqueeze(-1))
        obs = self.embed_obs(self.normalize_obs(batch.observations, batch.valid))
        tokens = interleave(rtg, obs, self.embed_action(self.encode_actions(batch.actions)))
        tokens = self.embed_ln(tokens + time.repeat_interleave(TOKENS_PER_STEP, dim=1))
        hidden = self.backbone(self.embed_dropout(tokens), read)
        with torch.autocast(hidden.device.type, enabled=False):  # bfloat16 is coarser than the smallest std
            out: Tensor = self.predict_action(hidden.to(self.predict_action.weight.dtype))
        return out
