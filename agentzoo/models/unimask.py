"""Uni[MASK]: one bidirectional network over trajectory snippets that predicts any part of them from the rest.

A window of K steps is K tokens; a token holds the step's action, the return-to-go (of the first step at most) and the
observation's factors side by side. Hidden numbers are zeros. The network predicts every part, hidden or not.

Symbols: F numbers in a token, R of them for the return-to-go; factor: the action, or one part of the observation.

Source: Carroll et al. 2022, arXiv:2211.10869, appendix; micahcarroll/uniMASK@e57ee48.
Differs: windows may be padded on the right, and padding is hidden; `mask_indicator` tells the network which zeros are
hidden values. In a continuous task the window's first timestep over `max_ep_len` stands beside the return-to-go, as
published; in a discrete task it is absent, as in the reference code.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from agentzoo.nn.attention import HeadCount, LayerCount, require_whole_heads
from agentzoo.nn.base import ModelConfig
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.encoder import EncoderLayer
from agentzoo.nn.masked_model import Known, MaskedModel, ReturnClasses, encode_returns, factor_error, return_size
from agentzoo.nn.masking import STEP_TASKS, Masking, Task, draw
from agentzoo.nn.tokens import last_valid
from agentzoo.papers import CARROLL, Citation
from agentzoo.registry import register
from agentzoo.types import Batch, IOSpec, Losses, Probability, SizeInt

Weight = Annotated[float, Field(ge=0.0, le=1000.0)]
INIT = 0.1  # input and output layers start uniform in ±0.1


class UniMaskConfig(ModelConfig):
    """Sizes of the published DoorKey network trained on random masks."""

    title: ClassVar[str] = "Uni[MASK]"
    has_timestep_table: ClassVar[bool] = False
    paper: ClassVar[Citation | None] = CARROLL

    family: Literal["unimask"] = "unimask"
    body: Literal["transformer", "mlp"] = "transformer"  # mlp: the published baseline on the flattened window
    embed_dim: SizeInt = 128  # D, of the transformer; n_heads must divide it
    ffn_dim: SizeInt = 128  # inside a transformer layer; of an MLP its width
    n_layers: LayerCount = 2
    n_heads: HeadCount = 8
    dropout: Probability = 0.1
    onehot_observations: bool = False  # every part of the observation is one choice, learned by cross-entropy
    return_classes: ReturnClasses | None = None  # None: the return-to-go is a number
    tasks: tuple[Task, ...] = ("rnd",)  # trained on; several take turns
    turns: Literal["batch", "window"] = "batch"  # a new task for each batch, or for each window
    action_weight: Weight = 1.0
    state_weight: Weight = 1.0  # of each factor of the observation
    mask_indicator: bool = False  # three more inputs a token: whether action, return and observation are shown
    acts_on_returns: bool = True  # False: plain behaviour cloning, the return-to-go is hidden

    @model_validator(mode="after")
    def _consistent(self) -> UniMaskConfig:
        if self.body == "transformer":
            require_whole_heads(self.embed_dim, self.n_heads)
        if not self.tasks:
            raise ValueError(f"tasks must name at least one of {', '.join(STEP_TASKS)}, rnd, rnd-bc, rnd-rc")
        return self

    def acts_on_target(self) -> bool:
        """True unless it clones behaviour."""
        return self.acts_on_returns

    def needs_raw_observations(self) -> bool:
        """True for one-hot observations, whose numbers are 0 or 1."""
        return self.onehot_observations

    def takes_questions(self) -> bool:
        """True if it trains on random masks or on several tasks; a single task prepares only for its own question."""
        return "rnd" in self.tasks or len(self.tasks) > 1

    def deviations(self) -> tuple[str, ...]:
        """Differences from the published training."""
        return (
            "the optimizer is AdamW, as in the published code; the paper says Adam",
            "the paper's learning rate is a constant 0.0001; a different one in Details is chosen for a CPU's budget",
        )


class _Transformer(nn.Module):
    """Bidirectional post-LayerNorm encoder over K tokens, with fixed sinusoids for positions."""

    places: Tensor

    def __init__(self, config: UniMaskConfig, context: int, size_in: int, size_out: int) -> None:
        super().__init__()
        dim = config.embed_dim
        self.embed = nn.Linear(size_in, dim)
        self.register_buffer("places", sinusoids(context, dim), persistent=False)
        self.dropout = Dropout(config.dropout)
        layers = [EncoderLayer(dim, config.n_heads, config.ffn_dim, config.dropout) for _ in range(config.n_layers)]
        self.encoder = nn.Sequential(*layers)
        self.predict = nn.Linear(dim, size_out)
        for ends in (self.embed, self.predict):
            nn.init.uniform_(ends.weight, -INIT, INIT)
            nn.init.zeros_(ends.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, K, F_in) -> (B, K, F_out)."""
        x = self.embed(tokens).relu() * math.sqrt(self.embed.out_features) + self.places
        out: Tensor = self.predict(self.encoder(self.dropout(x)))
        return out


class _MLP(nn.Module):
    """The published baseline: all K tokens side by side through a multi-layer perceptron."""

    def __init__(self, config: UniMaskConfig, context: int, size_in: int, size_out: int) -> None:
        super().__init__()
        width = config.ffn_dim
        layers: list[nn.Module] = [nn.Linear(context * size_in, width)]
        for _ in range(config.n_layers - 1):
            layers += [nn.ReLU(), Dropout(config.dropout), nn.Linear(width, width)]
        layers += [nn.ReLU(), Dropout(config.dropout), nn.Linear(width, context * size_out)]
        self.net = nn.Sequential(*layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, K, F_in) -> (B, K, F_out)."""
        out: Tensor = self.net(tokens.flatten(1)).unflatten(1, (tokens.shape[1], -1))
        return out


def sinusoids(length: int, dim: int) -> Tensor:
    """(length, dim): sine on even and cosine on odd channels, wavelengths from 2π to 10,000·2π."""
    table = torch.zeros(length, dim, dtype=torch.float64)
    if table.is_meta:  # only the size matters: see `nn.sizes_only`
        return table.float()
    channels = torch.arange(0, dim, 2, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * torch.exp(-math.log(10_000.0) * channels / dim)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()[:, : dim // 2]
    return table.float()


class Output(NamedTuple):
    """Predictions for every step: logits for a one-hot factor, numbers for any other.

    action: (B, K, A). observations: one (B, K, S_f) a factor.
    """

    action: Tensor
    observations: tuple[Tensor, ...]


@register("unimask", UniMaskConfig)
class UniMask(MaskedModel):
    """The masked network. It trains on `tasks` and predicts any hidden part of a window."""

    config: UniMaskConfig

    def __init__(self, config: UniMaskConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        self.return_size = return_size(config.return_classes)  # R
        size = io.action.size + self.return_size + io.observation.size
        body = {"transformer": _Transformer, "mlp": _MLP}[config.body]
        self.body = body(config, io.context, size + 3 * config.mask_indicator, size)
        self.acts_on_returns = config.acts_on_returns  # may be changed: the same weights can act both ways
        self._turn = 0

    @property
    def _factors(self) -> list[str]:
        """Names of the parts of the observation; a prefix keeps them apart from "action"."""
        keys = self.io.observation.keys
        return ["observation"] if keys is None else [f"obs/{key}" for key in keys]

    @property
    def factor_sizes(self) -> list[int]:
        """How many numbers each part of the observation has."""
        return [math.prod(shape) for shape in self.io.observation.shapes]

    def begin_step(self, step: int, total: int) -> None:
        """Tasks take turns by the update's number, so a resumed run continues with the right one."""
        self._turn = step

    def loss_settings(self) -> Hashable:
        """The task whose turn it is."""
        return self._turn % len(self.config.tasks) if self.config.turns == "batch" else None

    def draw_masking(self, batch: Batch) -> Masking:
        """Random masks of the tasks it is trained on, for these windows."""
        (count, context), tasks = batch.shape, self.config.tasks
        device = batch.valid.device
        if self.config.turns == "batch" or len(tasks) == 1:
            return draw(tasks[self._turn % len(tasks)], count, context, device=device)
        drawn = [draw(task, count, context, device=device) for task in tasks]
        whose = torch.randint(len(tasks), (count,), device=device)
        every = torch.arange(count, device=device)
        return Masking(*(torch.stack(masks)[whose, every] for masks in zip(*drawn, strict=True)))

    def forward(self, batch: Batch, masking: Masking) -> Output:
        """Predictions for every item of the windows, shown and hidden ones alike."""
        batch, shown = self._whole(batch, masking)
        action = self.encode_actions(batch.actions)
        parts = [
            torch.where(mask.unsqueeze(-1), values, 0.0)
            for mask, values in (
                (shown.actions, action),
                (shown.returns, encode_returns(batch, self.config.return_classes, self.config.max_ep_len)),
                (shown.observations, self.normalize_obs(batch.observations, batch.valid)),
            )
        ]
        if self.config.mask_indicator:
            parts.append(torch.stack([shown.actions, shown.returns, shown.observations], dim=-1).to(action.dtype))
        out = self.body(torch.cat(parts, dim=-1))
        sizes = [action.shape[-1], self.return_size, self.io.observation.size]
        action, _, observation = torch.split(out, sizes, dim=-1)
        return Output(action, torch.split(observation, self.factor_sizes, dim=-1))

    def factor_losses(self, batch: Batch, masking: Masking) -> Losses:
        """Unweighted error of each factor over all items asked for; 0 if there are none."""
        output = self(batch, masking)
        asked = masking.within(batch.valid)
        keep = batch.shape[1]
        discrete = self.io.action.kind == "discrete"
        actions = self.encode_actions(batch.actions)
        found = {"action": factor_error(output.action[:, :keep], actions, asked.ask_actions, discrete)}
        normalized = torch.split(self.normalize_obs(batch.observations, batch.valid), self.factor_sizes, dim=-1)
        for name, predicted, target in zip(self._factors, output.observations, normalized, strict=True):
            onehot = self.config.onehot_observations
            found[name] = factor_error(predicted[:, :keep], target, asked.ask_observations, onehot)
        return found

    def loss(self, batch: Batch) -> Losses:
        """Weighted errors under freshly drawn masks."""
        found = self.factor_losses(batch, self.draw_masking(batch).within(batch.valid))
        weights = dict.fromkeys(self._factors, self.config.state_weight) | {"action": self.config.action_weight}
        return {name: value * weights[name] for name, value in found.items()}

    def act(self, batch: Batch) -> Tensor:
        """(B, A) for the newest valid step, in env units, or logits. `acts_on_returns` shows the first return-to-go."""
        nothing = torch.zeros_like(batch.valid)
        return self.act_knowing(batch, Known(torch.zeros_like(batch.observations), nothing))

    def act_knowing(self, batch: Batch, known: Known) -> Tensor:
        """As `act`, with some observations of later steps shown."""
        lengths = batch.valid.sum(dim=1, keepdim=True)
        steps = torch.arange(batch.shape[1], device=lengths.device)
        ahead = known.shown & ~batch.valid
        seen = batch.valid | ahead
        observations = torch.where(ahead.unsqueeze(-1), known.observations, batch.observations)
        nothing = torch.zeros_like(seen)
        first = (steps == 0) & batch.valid if self.acts_on_returns else nothing
        masking = Masking(seen, steps < lengths - 1, first, nothing, nothing)
        encoded = last_valid(self(replace(batch, observations=observations, valid=seen), masking).action, batch.valid)
        return self.decode_actions(encoded)

    def answer(self, batch: Batch, masking: Masking) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Predictions in env units: actions (B, K, A) and one (B, K, S_f) per factor.

        A one-hot factor gives probabilities instead.
        """
        output = self(batch, masking)
        discrete = self.io.action.kind == "discrete"
        action = output.action.softmax(-1) if discrete else self.decode_actions(output.action)
        if self.config.onehot_observations:
            return action, tuple(part.softmax(-1) for part in output.observations)
        raw = torch.cat(output.observations, dim=-1) * self.obs_std + self.obs_mean
        return action, torch.split(raw, self.factor_sizes, dim=-1)

    def decays(self, name: str) -> bool:
        """Every parameter, as the reference does."""
        return True

    def _whole(self, batch: Batch, masking: Masking) -> tuple[Batch, Masking]:
        """The windows padded with hidden steps up to K."""
        missing = self.io.context - batch.shape[1]
        shown = masking.within(batch.valid)
        if missing <= 0:
            return batch, shown

        def pad(values: Tensor) -> Tensor:
            return F.pad(values, (0, 0) * (values.ndim - 2) + (0, missing))

        return batch.map(pad), Masking(*map(pad, shown))
