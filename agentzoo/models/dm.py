"""Decision Mamba: a state-space model over (return-to-go, observation, action) tokens at two grains.

Source: Lv et al. 2024, arXiv:2406.05427, Algorithm 1; aopolin-lv/DecisionMamba@d37dc82. A coarse branch scans all 3K
tokens, a fine branch scans features gathered inside each step; targets are blended with a past policy's predictions
(PSER); the action token also predicts the next observation and return-to-go (ILO).
Differs: the release shows many training tokens their own label through the fine branch and never switches PSER on.
Here every gather is causal (tests/models/test_dm.py::test_nothing_at_or_after_an_action_changes_it).
Windows are padded on the right, so causality alone keeps padding out and no masks are needed.

Symbols of the paper in this file: m is `mask`, u the normalized input of a layer, f is `gathered`, o^c and o^f are
`coarse` and `fine`, W_P is `project`, β the weight of the past policy. L = 3K tokens.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad, smooth_l1_loss

from agentzoo.errors import warn
from agentzoo.nn.attention import LayerCount
from agentzoo.nn.base import ActingMode, ModelConfig, SequenceModel, action_loss, mean_over_valid
from agentzoo.nn.gather import Gather
from agentzoo.nn.mamba import Mamba, RMSNorm, StateCount, advance
from agentzoo.nn.tokens import STATE_TOKENS, TOKENS_PER_STEP, ResidualMLP, interleave, last_valid
from agentzoo.papers import LV, Citation
from agentzoo.registry import register
from agentzoo.types import Average, Batch, IOSpec, Losses

ACTION_TOKENS = slice(2, None, TOKENS_PER_STEP)
Weight = Annotated[float, Field(ge=0.0, le=1.0)]
# `paper`: the release's sizes; the defaults are sized for a CPU.
PRESETS: dict[str, dict[str, Any]] = {"small": {}, "paper": {"embed_dim": 768, "n_layers": 24}}


class DMConfig(ModelConfig):
    """The small preset. Ablations: `use_fine=False`; `beta_final=0, beta_min=0`; `ilo_weights=None`."""

    title: ClassVar[str] = "Decision Mamba"
    paper: ClassVar[Citation | None] = LV

    family: Literal["dm"] = "dm"
    embed_dim: Annotated[int, Field(ge=1, le=8192)] = 128  # D
    n_layers: LayerCount = 3
    state_size: StateCount = 16
    expand: Annotated[int, Field(ge=1, le=8)] = 2
    conv_width: Annotated[int, Field(ge=1, le=64)] = 4
    use_fine: bool = True
    gather: Literal["step", "causal3", "summary"] = "step"
    fusion: Literal["paper", "release"] = "paper"
    input_map: Literal["residual_mlp", "linear"] = "residual_mlp"
    action_head: Literal["mlp", "tanh_linear"] = "mlp"
    beta_final: Weight = 0.9
    beta_min: Weight = 0.5
    teacher: Literal["snapshot", "ema", "previous_step"] = "snapshot"
    teacher_period: Annotated[int, Field(ge=1, le=100_000_000)] = 2_500  # updates; 40 periods in the published runs
    ema_decay: Weight = 0.999
    ilo_weights: tuple[Weight, Weight, Weight] | None = (0.9, 0.05, 0.05)  # action, next return-to-go, next obs
    acting: ActingMode = "window"  # the default of `predict`; both are always possible

    def deviations(self) -> tuple[str, ...]:
        """Differences from the paper and its release."""
        losses = "the next return-to-go and observation are not learned"
        if self.ilo_weights is not None:
            losses = "the next return-to-go and observation are learned by SmoothL1, in the paper by log-likelihood"
            losses += f"; {', '.join(f'{weight:g}' for weight in self.ilo_weights)} weigh the errors of action, "
            losses += "return-to-go and observation, as in the release; the paper gives no constants"
        return (
            *super().deviations(),
            "both gates read a layer's normalized input; in the paper's Algorithm 1 they read it before the norm",
            "timesteps are added after the LayerNorm, as in the release; the paper leaves the order open",
            losses,
            f"the past policy's weight ends at {self.beta_final:g}, as in other tasks of this kind; the paper chooses "
            "it by task: 0.9 for Hopper, 0.85 for HalfCheetah and Ant, 0.95 for Walker2d and AntMaze",
        )

    @classmethod
    def presets(cls) -> dict[str, dict[str, Any]]:
        """`small`, the defaults, and `paper`."""
        return PRESETS


class Memory(NamedTuple):
    """The state of recurrent acting; zeros before the first step. G branches: coarse, then fine."""

    conv: Tensor  # (N, W-1, layers·G·I) last inputs of the convolutions
    ssm: Tensor  # (N, layers·G, states, I)
    tokens: Tensor  # (N, layers·2, D) the last two u, which the gather reads; (N, 0, D) without a fine branch
    seen: Tensor  # (N,) int64 steps so far


class Layer(nn.Module):
    """Norm, both branches, fusion and the projected residual (Algorithm 1, lines 5-13)."""

    def __init__(self, config: DMConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.embed_dim
        sizes = (dim, config.state_size, config.expand, config.conv_width)
        self.norm = RMSNorm(dim)
        self.coarse = Mamba(*sizes)
        if config.use_fine:
            self.gather = Gather(dim, config.gather)
            self.fine = Mamba(*sizes)
        if config.fusion == "paper":
            self.project = nn.Linear(dim, dim)
            nn.init.zeros_(self.project.weight)
            self.project.weight.data.fill_diagonal_(1.0)  # not `eye_`, for the reason in `nn.sizes_only`
            nn.init.zeros_(self.project.bias)
        if config.fusion == "paper" or config.use_fine:
            self.fusion_norm = nn.LayerNorm(dim)

    def forward(self, h: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        u = self.norm(h)
        return self._fuse(h, self.coarse(u), self._fine(u) if self.config.use_fine else None)

    def advance(
        self, h: Tensor, mask: Tensor, conv: Tensor, ssm: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`forward` for the next three tokens (a, R, s), given this layer's part of `Memory`.

        Args:
            h: (N, 3, D). mask: (N, 3, 1), 0 at the action of envs that have seen nothing.
            conv: (N, W-1, G·I). ssm: (N, G, states, I). tokens: (N, 2, D).
        """
        u = self.norm(h) * mask
        if not self.config.use_fine:
            (coarse,), conv, ssm = advance([self.coarse], [u], u, mask, conv, ssm)
            return self._fuse(h, coarse, None), conv, ssm, tokens
        gathered = self.gather.advance(tokens, u)
        if self.config.gather != "summary":
            blocks, x = [self.coarse, self.fine], [u, gathered * mask]
            (coarse, fine), conv, ssm = advance(blocks, x, u, mask, conv, ssm)
            return self._fuse(h, coarse, fine), conv, ssm, u[:, 1:]
        shown = mask[:, :1]  # a summary is one token where the coarse branch reads three
        gathered, past = gathered * shown, conv.chunk(2, dim=-1)
        (coarse,), conv_coarse, ssm_coarse = advance([self.coarse], [u], u, mask, past[0], ssm[:, :1])
        (fine,), conv_fine, ssm_fine = advance([self.fine], [gathered], gathered, shown, past[1], ssm[:, 1:])
        conv, ssm = torch.cat((conv_coarse, conv_fine), dim=-1), torch.cat((ssm_coarse, ssm_fine), dim=1)
        return self._fuse(h, coarse, fine), conv, ssm, u[:, 1:]

    def _fine(self, u: Tensor) -> Tensor:
        gathered = self.gather(u)
        if self.config.gather != "summary":
            out: Tensor = self.fine(gathered, gate=u)
            return out
        own = self.fine(gathered)  # (B, K, D)
        before = pad(own[:, :-1], (0, 0, 1, 0))  # a summary holds its step's action, so only a_t may see it
        return interleave(before, before, own)

    def _fuse(self, h: Tensor, coarse: Tensor, fine: Tensor | None) -> Tensor:
        if self.config.fusion == "release":
            return h + coarse if fine is None else h + coarse + self.fusion_norm(fine)
        fused: Tensor = self.project(self.fusion_norm(coarse if fine is None else coarse + fine) + h)
        return fused


@register("dm", DMConfig)
class DecisionMamba(SequenceModel):
    """Both grains, PSER and ILO; acts from a window or, through `step`, from a memory of constant size."""

    averages: ClassVar[Mapping[str, Average]] = {"next_rtg": "pairs", "next_obs": "pairs"}
    config: DMConfig

    def __init__(self, config: DMConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        dim, obs, actions = config.embed_dim, io.observation.size, io.action.size
        make = ResidualMLP if config.input_map == "residual_mlp" else nn.Linear
        self.embed_return, self.embed_obs, self.embed_action = make(1, dim), make(obs, dim), make(actions, dim)
        self.embed_ln = nn.LayerNorm(dim)
        self.embed_timestep = nn.Embedding(config.max_ep_len, dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.norm_f = RMSNorm(dim)
        if config.action_head == "mlp":
            self.predict_action: nn.Module = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, actions))
        else:
            self.predict_action = nn.Linear(dim, actions)
        if config.ilo_weights is not None:
            self.predict_next_return = nn.Linear(dim, 1)
            self.predict_next_obs = nn.Linear(dim, obs)
        self.beta = 0.0  # of the current update; set by begin_step
        self._teacher: dict[str, Tensor] = {}
        self._renewals = 0  # of the past policy
        self._figures: Losses = {}

    def forward(self, batch: Batch) -> Tensor:
        """Predicted action of every step, (B, K, A): encoded for a Box, logits if discrete."""
        return self._head(self._hidden(batch)[:, STATE_TOKENS])

    def act(self, batch: Batch) -> Tensor:
        """(B, A) for the newest valid step, in env units, or logits; reads the last K steps."""
        return self.decode_actions(self._head(last_valid(self._hidden(batch)[:, STATE_TOKENS], batch.valid)))

    def loss(self, batch: Batch) -> Losses:
        """λ1 action error against the blended target, λ2 and λ3 SmoothL1 of the next return-to-go and observation."""
        hidden = self._hidden(batch)
        predicted = self._head(hidden[:, STATE_TOKENS])
        target = self._blended_target(batch, predicted)
        discrete = self.io.action.kind == "discrete"
        terms = action_loss(predicted, target, batch.valid, discrete)
        data = action_loss(predicted.detach(), self.encode_actions(batch.actions), batch.valid, discrete)
        self._figures = {"data_error": next(iter(data.values()))}
        weights = self.config.ilo_weights
        if weights is None:
            return terms
        terms = {name: weights[0] * value for name, value in terms.items()}
        after = hidden[:, ACTION_TOKENS][:, :-1]  # has seen a_t; the last step's successor is outside the window
        pairs = batch.valid[:, :-1] & batch.valid[:, 1:]
        rtg = self.predict_next_return(after).squeeze(-1)
        obs = self.predict_next_obs(after)
        next_obs = self.normalize_obs(batch.observations, batch.valid)[:, 1:]
        rtg_error = smooth_l1_loss(rtg, batch.returns_to_go[:, 1:], reduction="none")
        obs_error = smooth_l1_loss(obs, next_obs, reduction="none")
        terms["next_rtg"] = weights[1] * mean_over_valid(rtg_error, pairs)
        terms["next_obs"] = weights[2] * mean_over_valid(obs_error, pairs)
        return terms

    def figures(self) -> Losses:
        """The error of the last `loss` against the actions in the data, without the past policy."""
        return self._figures

    @property
    def acting(self) -> ActingMode:
        """The mode in the config."""
        return self.config.acting

    def begin_step(self, step: int, total: int) -> None:
        """Sets β and renews the past policy: at the start of a period, or at every step with `teacher="ema"`.

        The first period has no past policy, so its β is 0.
        """
        config, blends = self.config, max(self.config.beta_final, self.config.beta_min) > 0.0
        period, periods = step // config.teacher_period + 1, math.ceil(total / config.teacher_period)
        self.beta = 0.0 if period == 1 else blend_weight(period, periods, config.beta_final, config.beta_min)
        if step == 0 and periods == 1 and blends:
            warn(f"no past policy is used: {total} updates are no more than one model.teacher_period. Lower it.", 3)
        live = {name: p.detach() for name, p in self.named_parameters()}
        if config.teacher == "previous_step" or not blends:
            return
        if config.teacher == "ema" and self._teacher:
            torch._foreach_lerp_(list(self._teacher.values()), list(live.values()), 1.0 - config.ema_decay)
        elif config.teacher == "ema" or (period > 1 and (step % config.teacher_period == 0 or not self._teacher)):
            self._teacher = {name: p.clone() for name, p in live.items()}
            self._renewals += 1

    def loss_settings(self) -> Hashable:
        """β and how often the past policy was renewed, which change once in a period."""
        return self.beta, self._renewals

    def training_state(self) -> dict[str, Tensor]:
        """The past policy's weights."""
        return {f"teacher/{name}": value for name, value in self._teacher.items()}

    def load_training_state(self, tensors: dict[str, Tensor]) -> None:
        """Inverse of `training_state`."""
        found = {name.removeprefix("teacher/"): value for name, value in tensors.items()}
        self._teacher = {name: found[name].to(p.device) for name, p in self.named_parameters()} if found else {}
        self._renewals += 1

    def decays(self, name: str) -> bool:
        """Matrices and convolutions; not A_log, the timestep table, norms, biases or the skip weights."""
        return super().decays(name) and not name.endswith(("A_log", "embed_timestep.weight"))

    def initial_state(self, n: int, device: torch.device | None = None, dtype: torch.dtype | None = None) -> Memory:
        """The memory of `n` envs that have seen nothing."""
        like, config = self.obs_mean, self.config
        device, dtype = device or like.device, dtype or like.dtype
        branches = config.n_layers * (2 if config.use_fine else 1)
        inner, tokens = config.expand * config.embed_dim, 2 * config.n_layers if config.use_fine else 0
        return Memory(
            conv=torch.zeros(n, config.conv_width - 1, branches * inner, device=device, dtype=dtype),
            ssm=torch.zeros(n, branches, config.state_size, inner, device=device, dtype=dtype),
            tokens=torch.zeros(n, tokens, config.embed_dim, device=device, dtype=dtype),
            seen=torch.zeros(n, dtype=torch.int64, device=device),
        )

    @torch.no_grad()
    def step(
        self, state: Memory, rtg: Tensor, obs: Tensor, previous_action: Tensor, timestep: Tensor
    ) -> tuple[Tensor, Memory]:
        """`nn.recurrent.RecurrentModel.step`: equal to `act` on a window that holds the whole episode."""
        seen = (state.seen > 0).view(-1, 1, 1)  # before the first step there is no last action
        mask = torch.cat((seen, torch.ones_like(seen), torch.ones_like(seen)), dim=1).to(obs.dtype)
        tokens = torch.stack(
            (
                self.embed_action(self.encode_actions(previous_action).masked_fill(~seen[:, 0], 0.0)),
                self.embed_return(rtg.unsqueeze(-1)),
                self.embed_obs((obs - self.obs_mean) / self.obs_std),
            ),
            dim=1,
        )
        h = self.embed_ln(tokens) + self._time(torch.stack((timestep - 1, timestep, timestep), dim=1))
        axes, layers = (-1, 1, 1), len(self.layers)  # the axis of each tensor of `Memory` that holds the layers
        past = [
            torch.split(part, [part.shape[axis] // layers] * layers, axis)
            for part, axis in zip((state.conv, state.ssm, state.tokens), axes, strict=True)
        ]
        after = []
        for layer, *own in zip(self.layers, *past, strict=True):
            h, *now = layer.advance(h, mask, *own)
            after.append(now)
        conv, ssm, newest = (torch.cat(parts, axis) for *parts, axis in zip(*after, axes, strict=True))
        return self.decode_actions(self._head(self.norm_f(h[:, -1]))), Memory(conv, ssm, newest, state.seen + 1)

    def _blended_target(self, batch: Batch, predicted: Tensor) -> Tensor:
        """(1 - β) a + β â_old, without gradient."""
        target = self.encode_actions(batch.actions)
        if self.beta == 0.0 or not self.training:
            return target
        with torch.no_grad():
            if self.config.teacher == "previous_step":
                past = predicted.detach()
            else:
                past = torch.func.functional_call(self, self._teacher, (batch,))
            if self.io.action.kind == "discrete":
                past = past.softmax(dim=-1)
            return torch.lerp(target, past.to(target.dtype), self.beta)

    def _hidden(self, batch: Batch) -> Tensor:
        """(B, 3K, D) after the last norm."""
        hole = ~batch.valid.unsqueeze(-1)  # whatever padding holds, even NaN, is zero from here on
        rtg = batch.returns_to_go.unsqueeze(-1).masked_fill(hole, 0.0)
        obs = self.normalize_obs(batch.observations.masked_fill(hole, 0.0), batch.valid)
        actions = self.encode_actions(batch.actions).masked_fill(hole, 0.0)
        tokens = interleave(self.embed_return(rtg), self.embed_obs(obs), self.embed_action(actions))
        time = self._time(batch.timesteps).repeat_interleave(TOKENS_PER_STEP, dim=1)
        h = self.embed_ln(tokens) + time
        for layer in self.layers:
            h = layer(h)
        out: Tensor = self.norm_f(h)
        return out

    def _time(self, timesteps: Tensor) -> Tensor:
        table: Tensor = self.embed_timestep(timesteps.clamp(0, self.config.max_ep_len - 1))
        return table

    def _head(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.predict_action(hidden)
        return torch.tanh(out) if self.config.action_head == "tanh_linear" and self.bounded else out


def blend_weight(period: int, periods: int, final: float, minimum: float) -> float:
    """β of period 1 … `periods`: linear to `final`, never below `minimum` (arXiv:2406.05427, the schedule of PSER)."""
    return max(final * period / periods, minimum)
