"""Settings of a pre-training: sizes of the network and how the optimizer runs."""

from __future__ import annotations

import json
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from agentzoo.errors import ConfigError, did_you_mean
from agentzoo.nn.attention import require_whole_heads
from agentzoo.record import parsed_setting
from agentzoo.types import Config

S = TypeVar("S", bound="PretrainSettings")


class PretrainSettings(Config):
    """How the optimizer runs."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
    steps: Annotated[int, Field(ge=1, le=100_000_000)]
    batch_size: Annotated[int, Field(ge=1, le=65_536)]
    lr: Annotated[float, Field(gt=0.0, le=1.0)]
    warmup_steps: Annotated[int, Field(ge=0)]
    weight_decay: Annotated[float, Field(ge=0.0, le=10.0)] = 0.1  # of matrices; norms and biases do not decay
    clip: Annotated[float, Field(gt=0.0)] = 1.0
    seed: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    log_every: Annotated[int, Field(ge=1)] = 50
    evaluate_every: Annotated[int, Field(ge=1)] = 500  # a multiple of log_every, as the next
    checkpoint_every: Annotated[int, Field(ge=1)] = 250

    def override(self: S, settings: list[str]) -> S:
        """A copy with `field=value` settings applied; `record.parsed_setting` reads a value.

        Raises:
            ConfigError: no such field, with the nearest name, or a value out of range.
        """
        tree = json.loads(self.model_dump_json())
        for setting in settings:
            name, found, text = setting.partition("=")
            if not found or name not in tree:
                raise ConfigError(f"--set takes field=value, got {setting!r}.{did_you_mean(name, tree)}")
            tree[name] = parsed_setting(text)
        return type(self).from_json(json.dumps(tree), "the settings with --set applied")


class LMSettings(PretrainSettings):
    """Sizes and training of a language model. `context` is both the training window and the position table's rows."""

    embed_dim: Annotated[int, Field(ge=1, le=8192)]
    n_layers: Annotated[int, Field(ge=1, le=128)]
    n_heads: Annotated[int, Field(ge=1, le=256)]
    activation: Literal["relu", "gelu_new", "gelu_pytorch_tanh", "gelu"]
    vocab_size: Annotated[int, Field(ge=257, le=65_536)] = 4_000
    context: Annotated[int, Field(ge=2, le=65_536)] = 1024
    held_out: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.02  # of each file of the corpus: its end
    watch_chunks: Annotated[int, Field(ge=1)] = 16  # of each validation text while training; all of it at the end

    @model_validator(mode="after")
    def _heads_fit(self) -> LMSettings:
        require_whole_heads(self.embed_dim, self.n_heads)
        return self


LM_SIZES = {
    "chibi": LMSettings(
        name="lm-chibi",
        embed_dim=128,
        n_layers=3,
        n_heads=1,
        activation="relu",
        steps=5_400,  # an hour and a half on one busy core
        batch_size=4,
        lr=2e-3,
        warmup_steps=200,
    ),
    "mini": LMSettings(
        name="lm-mini",
        embed_dim=256,
        n_layers=3,
        n_heads=4,
        activation="gelu_pytorch_tanh",  # GPT-2's own activation, in one kernel
        steps=2_400,  # as long
        batch_size=4,
        lr=1e-3,
        warmup_steps=200,
        evaluate_every=200,
    ),
}


class CLIPSettings(PretrainSettings):
    """Sizes and training of a small CLIP; both towers are as wide."""

    embed_dim: Annotated[int, Field(ge=1, le=8192)] = 128
    n_layers: Annotated[int, Field(ge=1, le=128)] = 3
    n_heads: Annotated[int, Field(ge=1, le=256)] = 2
    vision_layers: Annotated[int, Field(ge=1, le=128)] = 2
    projection_dim: Annotated[int, Field(ge=1, le=8192)] = 64
    context: Annotated[int, Field(ge=4, le=1024)] = 77
    vocab_size: Annotated[int, Field(ge=257, le=65_536)] = 400
    scenes: Annotated[int, Field(ge=1, le=10_000_000)] = 12_000
    held_out: Annotated[int, Field(ge=2, le=100_000)] = 500  # pairs; also the number of answers to choose from

    @model_validator(mode="after")
    def _heads_fit(self) -> CLIPSettings:
        require_whole_heads(self.embed_dim, self.n_heads)
        return self


CLIP_MINI = CLIPSettings(name="clip-mini", steps=3_000, batch_size=128, lr=5e-4, warmup_steps=200)
