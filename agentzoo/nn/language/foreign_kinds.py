"""The configs of language models that agentzoo knows, with the names, bounds and defaults that transformers has.

A class has the keys that change what a network computes, and the keys that must have the value of agentzoo's blocks;
see `foreign_config`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from agentzoo.nn.language.block_sizes import Activation, Architecture, HeadCount, InnerWidth, LayerCount, Sizes, Width
from agentzoo.nn.language.rotary import THETA
from agentzoo.types import Config

Rows = Annotated[int, Field(ge=1, le=2**22)]  # of a table; compared with the file
Epsilon = Annotated[float, Field(gt=0.0, le=0.1)]
Theta = Annotated[float, Field(gt=1.0, le=1e9)]
TokenId = Annotated[int, Field(ge=0, le=2**22)]


class RopeParameters(Config):
    """Settings of rotary positions, as transformers 5 writes them."""

    rope_theta: Theta
    rope_type: Literal["default"] = "default"


class Described(NamedTuple):
    """A checkpoint's sizes, by its config. They are compared with the tensors before anything is read."""

    sizes: Sizes
    vocab_size: int
    positions: int | None  # rows of its position table; None: it has none
    has_tied_head: bool  # its next-token head is its token table
    end_of_text: int | None  # id of the token that ends a document, if the config has it


class ForeignConfig(Config):
    """Keys of all architectures."""

    architecture: ClassVar[Architecture]

    model_type: str
    vocab_size: Rows
    eos_token_id: TokenId | Annotated[list[TokenId], Field(max_length=64)] | None = None
    tie_word_embeddings: bool = True
    # neutral
    add_cross_attention: Literal[False] = False
    attn_implementation: Literal["eager", "sdpa"] | None = None  # both give the same numbers
    pruned_heads: Annotated[dict[str, Any], Field(max_length=0)] = Field(default_factory=dict)
    quantization_config: None = None

    def sizes(self) -> Sizes:
        """The sizes of the blocks."""
        raise NotImplementedError

    def end_of_text(self) -> int | None:
        """Configs name one token, several or none."""
        ids = self.eos_token_id
        return (ids[0] if ids else None) if isinstance(ids, list) else ids

    def described(self) -> Described:
        """The sizes in our terms."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _heads_fit(self) -> ForeignConfig:
        sizes = self.sizes()
        if sizes.embed_dim % sizes.n_heads:
            raise ValueError(f"{sizes.n_heads} heads do not divide a width of {sizes.embed_dim}")
        if sizes.rotary_dim % 2 or sizes.rotary_dim > sizes.embed_dim // sizes.n_heads:
            raise ValueError(f"rotary_dim must be even and at most a head's size, {sizes.embed_dim // sizes.n_heads}")
        return self


class GPT2Foreign(ForeignConfig):
    """`GPT2Config` of transformers 5.23, with its defaults."""

    architecture: ClassVar[Architecture] = "gpt2"

    vocab_size: Rows = 50_257
    n_positions: Rows = 1024
    n_embd: Width = 768
    n_layer: LayerCount = 12
    n_head: HeadCount = 12
    n_inner: InnerWidth | None = None  # None: 4 n_embd
    activation_function: Activation = "gelu_new"
    layer_norm_epsilon: Epsilon = 1e-5
    # neutral
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False

    def sizes(self) -> Sizes:
        """See `ForeignConfig`."""
        return Sizes(
            architecture=self.architecture,
            embed_dim=self.n_embd,
            n_layers=self.n_layer,
            n_heads=self.n_head,
            inner_dim=self.n_inner or 4 * self.n_embd,
            activation=self.activation_function,
            norm_eps=self.layer_norm_epsilon,
        )

    def described(self) -> Described:
        """See `ForeignConfig`."""
        tied = self.tie_word_embeddings
        return Described(self.sizes(), self.vocab_size, self.n_positions, tied, self.end_of_text())


class ImageGPTForeign(GPT2Foreign):
    """`ImageGPTConfig`, whose tokens are colours."""

    architecture: ClassVar[Architecture] = "imagegpt"

    vocab_size: Rows = 513
    n_embd: Width = 512
    n_layer: LayerCount = 24
    n_head: HeadCount = 8
    activation_function: Activation = "quick_gelu"
    tie_word_embeddings: bool = False

    def described(self) -> Described:
        """See `ForeignConfig`."""
        return super().described()._replace(has_tied_head=False)


class GPTJForeign(GPT2Foreign):
    """`GPTJConfig`, with rotary positions and no position table."""

    architecture: ClassVar[Architecture] = "gptj"

    vocab_size: Rows = 50_400
    n_positions: Rows = 2048
    n_embd: Width = 4096
    n_layer: LayerCount = 28
    n_head: HeadCount = 16
    rotary_dim: Annotated[int, Field(ge=2, le=1024)] = 64
    tie_word_embeddings: bool = False
    # neutral
    rotary: Literal[True] = True

    def sizes(self) -> Sizes:
        """See `ForeignConfig`."""
        return super().sizes()._replace(rotary_dim=self.rotary_dim)

    def described(self) -> Described:
        """See `ForeignConfig`."""
        return super().described()._replace(positions=None)


class CLIPTextForeign(ForeignConfig):
    """`CLIPTextConfig`."""

    architecture: ClassVar[Architecture] = "clip"

    model_type: Literal["clip_text_model"] = "clip_text_model"
    vocab_size: Rows = 49_408
    hidden_size: Width = 512
    intermediate_size: InnerWidth = 2048
    num_hidden_layers: LayerCount = 12
    num_attention_heads: HeadCount = 8
    max_position_embeddings: Rows = 77
    hidden_act: Activation = "quick_gelu"
    layer_norm_eps: Epsilon = 1e-5

    def sizes(self) -> Sizes:
        """See `ForeignConfig`."""
        return Sizes(
            architecture=self.architecture,
            embed_dim=self.hidden_size,
            n_layers=self.num_hidden_layers,
            n_heads=self.num_attention_heads,
            inner_dim=self.intermediate_size,
            activation=self.hidden_act,
            norm_eps=self.layer_norm_eps,
        )

    def described(self) -> Described:
        """See `ForeignConfig`."""
        return Described(self.sizes(), self.vocab_size, self.max_position_embeddings, False, self.end_of_text())


class LlamaForeign(ForeignConfig):
    """`LlamaConfig`, which SmolLM2 has."""

    architecture: ClassVar[Architecture] = "llama"

    vocab_size: Rows = 32_000
    hidden_size: Width = 4096
    intermediate_size: InnerWidth = 11_008
    num_hidden_layers: LayerCount = 32
    num_attention_heads: HeadCount = 32
    num_key_value_heads: HeadCount | None = None  # None: as many as queries have
    head_dim: Annotated[int, Field(ge=2, le=8192)] | None = None  # None: hidden_size / num_attention_heads
    max_position_embeddings: Rows = 2048
    rms_norm_eps: Epsilon = 1e-6
    rope_theta: Theta | None = None
    rope_parameters: RopeParameters | None = None  # where transformers 5 has rope_theta
    tie_word_embeddings: bool = False
    # neutral
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False
    rope_scaling: None = None
    rope_interleaved: Literal[False] = False
    is_llama_config: Literal[True] = True
    pretraining_tp: Literal[1] = 1

    def sizes(self) -> Sizes:
        """See `ForeignConfig`."""
        later = None if self.rope_parameters is None else self.rope_parameters.rope_theta
        return Sizes(
            architecture=self.architecture,
            embed_dim=self.hidden_size,
            n_layers=self.num_hidden_layers,
            n_heads=self.num_attention_heads,
            inner_dim=self.intermediate_size,
            activation=self.hidden_act,
            norm_eps=self.rms_norm_eps,
            n_kv_heads=self.num_key_value_heads or self.num_attention_heads,
            rotary_theta=later or self.rope_theta or THETA,
        )

    def described(self) -> Described:
        """See `ForeignConfig`."""
        return Described(self.sizes(), self.vocab_size, None, self.tie_word_embeddings, self.end_of_text())

    @model_validator(mode="after")
    def _heads_share(self) -> LlamaForeign:
        size = self.hidden_size // self.num_attention_heads
        if self.head_dim not in (None, size) or size % 2:
            raise ValueError(f"heads of {self.head_dim or size} numbers; supported are those of {size}, if even")
        shared = self.num_key_value_heads or self.num_attention_heads
        if self.num_attention_heads % shared:
            raise ValueError(f"{self.num_attention_heads} heads cannot share {shared} of keys and values")
        return self


# model_type -> its class; `clip` holds a text tower's config inside
KINDS: dict[str, type[ForeignConfig]] = {
    "gpt2": GPT2Foreign,
    "imagegpt": ImageGPTForeign,
    "gptj": GPTJForeign,
    "clip": CLIPTextForeign,
    "clip_text_model": CLIPTextForeign,
    "llama": LlamaForeign,
}
