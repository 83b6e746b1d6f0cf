"""A Decision Transformer whose blocks come from a language model: the base of `gpt2_dt` and others.

Unlike in plain DT the timestep embedding is added after the LayerNorm, and the three tokens of a step get the same one:
`rtg, obs, action -> input maps -> LayerNorm (u) -> + E[t] -> blocks, final norm -> action head on observation tokens`.

Differs: windows are padded on the right; language losses are means over real tokens; text chunks are drawn with
replacement; a backbone's own learning rate is a factor of the main one (`backbone_lr`).
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, ClassVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.models._language_config import Adaptation, LanguageDTConfig
from agentzoo.nn.base import SequenceModel, action_loss
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.block_sizes import LoRASizes, Sizes
from agentzoo.nn.language.cotraining import Language, make_centroids, read_token_chunks
from agentzoo.nn.language.kmeans import decay
from agentzoo.nn.language.lora import load_lora_state, lora_state
from agentzoo.nn.tokens import (
    STATE_TOKENS,
    TOKENS_PER_STEP,
    Read,
    ResidualMLP,
    interleave,
    newest_state_token,
    timestep_table,
)
from agentzoo.types import Average, Batch, IOSpec, Losses

if TYPE_CHECKING:
    from agentzoo.nn.language.pretrained import Pretrained

MAX_TOKENS = 1024  # in a window of GPT-2


class LanguageDT(SequenceModel):
    """The blocks of a language model over 3K tokens, read at the observation tokens."""

    averages: ClassVar[Mapping[str, Average]] = {"language": "windows"}  # every process reads as much text
    config: LanguageDTConfig
    language: Language | None

    def __init__(self, config: LanguageDTConfig, io: IOSpec) -> None:
        super().__init__(config, io)
        dim, size = config.embed_dim, io.action.size
        self.embed_return, self.embed_obs, self.embed_action = self._map(1), self.make_obs_map(), self._map(size)
        self.embed_ln = nn.LayerNorm(dim)
        std = 0.02 if config.positions == "own" else 1.0  # the backbone's will replace them
        self.embed_timestep = timestep_table(config.max_ep_len, dim, config.timestep_rank, std)
        self.embed_dropout = Dropout(config.embed_dropout)
        lora = LoRASizes(config.lora_rank, config.lora_alpha, config.lora_dropout)
        self.backbone = LanguageBackbone(
            config.sizes(), config.dropout, config.attention_dropout, lora if config.adaptation == "lora" else None
        )
        if not config.tie_action_head:
            plain = nn.Linear(dim, size)
            self.predict_action: nn.Module = (
                nn.Sequential(nn.Linear(dim, dim), nn.GELU(), plain) if config.head == "mlp" else plain
            )
        self.language = None
        self._step = 0
        for name, parameter in self.backbone.named_parameters():
            parameter.requires_grad_(_is_trained(name, config.adaptation))

    def forward(self, batch: Batch) -> Tensor:
        """Predicted action of every step, (B, K, A): encoded for a Box (only a linear head ends in tanh), or logits."""
        return self._read(self._inputs(batch), batch, STATE_TOKENS)

    def loss(self, batch: Batch) -> Losses:
        """Action error over all valid steps, and the weighted language losses if there are any."""
        inputs = self._inputs(batch)
        target = self.encode_actions(batch.actions)
        predicted = self._read(inputs, batch, STATE_TOKENS)
        terms = action_loss(predicted, target, batch.valid, self.io.action.kind == "discrete")
        return terms if self.language is None else {**terms, **self._language_terms(self.language, inputs, batch)}

    def act(self, batch: Batch) -> Tensor:
        """(B, A) for the newest valid step, in env units, or logits."""
        encoded = self._read(self._inputs(batch), batch, newest_state_token(batch.valid))
        return self.decode_actions(encoded.squeeze(1))

    # -- training ----------------------------------------------------------------------------------------------------

    def begin_training(self, fresh: bool) -> None:
        """Load the backbone's weights, and the tables and text of the language losses. A fine-tune has no such loss."""
        config, tokens = self.config, TOKENS_PER_STEP * self.io.context
        if tokens > MAX_TOKENS:
            warnings.warn(
                f"data.context={self.io.context} makes windows of {tokens} tokens; most language models were trained "
                f"on {MAX_TOKENS} or fewer, and the cost of attention grows with the square of this number.",
                UserWarning,
                stacklevel=2,
            )
        if not fresh or config.backbone is None:
            return
        found = config.read_backbone()
        if config.backbone_sha256 is not None and (there := found.sha256()) != config.backbone_sha256:
            raise ConfigError(
                f"backbone {config.backbone!r} has sha256 {there[:12]}…, but the recipe was made with "
                f"{config.backbone_sha256[:12]}…. Restore that file, or train with the present one: "
                "--set model.backbone_sha256=null."
            )
        _require_sizes(found.sizes, config, config.backbone)
        self.backbone.load_state_dict(found.blocks)
        if config.positions == "own":
            if found.positions is None:
                raise CheckpointError(f"backbone {config.backbone!r} has no position table.")
            with torch.no_grad():
                self.embed_timestep.get_parameter("weight").copy_(stretch(found.positions, config.max_ep_len))
        centroids = make_centroids(found, config.centroids) if config.cosine_weight else None
        if config.lm_weight:
            self.language = self._make_language(found, centroids)
        elif centroids is not None:
            self.language = Language(centroids)

    def _make_language(self, found: Pretrained, centroids: Tensor | None) -> Language:
        """The parts of the backbone that co-training needs: token table, text, and positions if timesteps are fresh.

        Raises:
            ConfigError, CheckpointError, DataError: the backbone cannot be co-trained; the message says why.
        """
        config, own = self.config, self.config.positions == "own"
        if not found.has_tied_head:
            raise ConfigError(
                f"co-training predicts tokens with the token table, but backbone {config.backbone!r} has a separate "
                "output head (tie_word_embeddings is false). Switch it off with --set model.lm_weight=0."
            )
        if not own and found.positions is not None and config.lm_chunk - 1 > len(found.positions):
            raise ConfigError(
                f"lm_chunk {config.lm_chunk} is longer than the {len(found.positions)} positions of backbone "
                f"{config.backbone!r}: --set model.lm_chunk={len(found.positions)}."
            )
        text = read_token_chunks(found, config.lm_chunk)
        return Language(centroids, found.tokens, None if own else found.positions, text)

    def begin_step(self, step: int, total: int) -> None:
        """Sets the weight of the language losses, which falls with the updates."""
        self._step = step

    def loss_settings(self) -> Hashable:
        """The update, while it sets the weight of a language loss."""
        return None if self.language is None else self._step

    def training_state(self) -> dict[str, Tensor]:
        """Token table, centroids, and low-rank updates before they are merged."""
        found = {f"lora/{name}": value for name, value in lora_state(self.backbone).items()}
        return found if self.language is None else {**found, **self.language.tensors()}

    def load_training_state(self, tensors: dict[str, Tensor]) -> None:
        """Inverse of `training_state`."""
        own = {name.removeprefix("lora/"): t for name, t in tensors.items() if name.startswith("lora/")}
        load_lora_state(self.backbone, own)
        if self.language is not None:
            self.language.load_tensors(tensors)

    def decays(self, name: str) -> bool:
        """Every parameter, as the reference does; the backbone's only if `backbone_decays` is set."""
        return self.config.backbone_decays or not self._is_from_backbone(name)

    def lr_scale(self, name: str) -> float:
        """`backbone_lr` for the backbone's parameters."""
        return self.config.backbone_lr if self._is_from_backbone(name) else 1.0

    def _is_from_backbone(self, name: str) -> bool:
        """True for the blocks, the token table and a position table that serves as timestep table."""
        own = self.config.positions == "own" and name.startswith("embed_timestep.")
        return own or name.startswith(("backbone.", "language."))

    # -- parts -------------------------------------------------------------------------------------------------------

    def make_obs_map(self) -> nn.Module:
        """The map from an observation to its token."""
        return self._map(self.io.observation.size)

    def encoded(self, batch: Batch) -> Tensor:
        """(B, K, D): the observations' tokens."""
        tokens: Tensor = self.embed_obs(self.normalize_obs(batch.observations, batch.valid))
        return tokens

    def _map(self, size: int) -> nn.Module:
        make = ResidualMLP if self.config.input_maps == "mlp" else nn.Linear
        return make(size, self.config.embed_dim)

    def _inputs(self, batch: Batch) -> Tensor:
        """(B, 3K, D): the LayerNormed tokens, timestep not yet added."""
        rtg, actions = batch.returns_to_go.unsqueeze(-1), self.encode_actions(batch.actions)
        steps = interleave(self.embed_return(rtg), self.encoded(batch), self.embed_action(actions))
        tokens: Tensor = self.embed_ln(steps)
        return tokens

    def _read(self, inputs: Tensor, batch: Batch, read: Read) -> Tensor:
        """(B, Lq, A): the head's output at the tokens `read`."""
        time = self.embed_timestep(batch.timesteps.clamp(max=self.config.max_ep_len - 1))  # (B, K, D)
        hidden = self.backbone(self.embed_dropout(inputs + time.repeat_interleave(TOKENS_PER_STEP, dim=1)), read)
        tied = self.config.tie_action_head
        weight = self.embed_action.get_parameter("weight").T if tied else None
        out: Tensor = self.predict_action(hidden) if weight is None else linear(hidden, weight)
        return torch.tanh(out) if self.bounded and self.config.head == "linear" else out

    def _language_terms(self, language: Language, inputs: Tensor, batch: Batch) -> Losses:
        config, terms = self.config, {}
        nothing = inputs.new_zeros(())
        if config.cosine_weight:
            weight = config.cosine_weight * decay(self._step, config.cosine_decay_steps)
            valid = batch.valid.repeat_interleave(TOKENS_PER_STEP, dim=1)
            terms["cosine"] = weight * language.cosine(inputs, valid) if weight else nothing
        if config.lm_weight:
            weight = config.lm_weight * decay(self._step, config.lm_decay_steps)
            table = self.embed_timestep.get_parameter("weight") if config.positions == "own" else None
            if weight:
                terms["language"] = weight * language.next_token(
                    self.backbone, table, self.embed_dropout, config.lm_chunks
                )
            else:  # several processes wait for every parameter's gradient
                terms["language"] = nothing + sum(0.0 * part.sum() for part in language.parameters())
        return terms


def _is_trained(name: str, adaptation: Adaptation) -> bool:
    """Whether parameter `name` of the blocks is trained."""
    if adaptation == "lora":
        return ".lora_" in name or name.endswith("qkv.bias")
    if adaptation == "part":
        return ".up." in name or ".down." in name
    if adaptation == "ln_only":
        return "ln_" in name
    return adaptation == "full"


def _require_sizes(found: Sizes, config: LanguageDTConfig, name: str) -> None:
    asked = config.sizes()
    if found.architecture not in get_args(type(config).model_fields["architecture"].annotation):
        other = config.counterparts.get(found.architecture)
        hint = f"train an agent of family {other}, for example {other}-hopper-medium --set model.backbone={name}."
        raise ConfigError(
            f"backbone {name!r} is of architecture {found.architecture!r}; "
            f"{hint if other else f'no family like {config.family} supports it.'}"
        )
    pairs = zip(Sizes._fields, found, asked, strict=True)
    wrong = [(field, there, here) for field, there, here in pairs if there != here]
    if wrong:
        sizes = ", ".join(f"{field} {there!r} (the recipe says {here!r})" for field, there, here in wrong)
        settings = " ".join(f"--set model.{field}={there}" for field, there, _ in wrong)
        raise ConfigError(f"backbone {name!r} has {sizes}. Change the recipe: {settings}")


def stretch(table: Tensor, rows: int) -> Tensor:
    """(P, D) -> (rows, D): the first rows; if P is smaller than `rows`, rows 2 to P-1 repeat.

    The first two rows of such tables differ from the others. Source: machelreid/can-wikipedia-help-offline-rl@e1060f0.
    """
    count = len(table)
    index = torch.arange(rows)
    if rows > count:
        if count < 3:
            raise ConfigError(f"a position table of {count} rows cannot count {rows} timesteps.")
        index = torch.where(index < count, index, 2 + (index - count) % (count - 2))
    return table[index]
