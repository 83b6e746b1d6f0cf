"""A stranger's `config.json` of a language model, read by an allow-list. No other library ever sees the file.

A new architecture is one class here, with the keys that decide its numbers, and one row of `KINDS`. A key belongs to
one of three groups:

- *read*: a field of the class; it has a type and bounds, and the sizes are compared with the file of tensors next;
- *neutral*: a field that takes only the value that agentzoo's blocks have (`add_cross_attention: false`);
- *idle*: in `IDLE`; it decides nothing about the blocks (dropout, generation, labels), so its value is not looked at.

Any other key is refused: it may change what the network computes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn

from pydantic import Field, ValidationError, model_validator

from agentzoo.config import read_text
from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.language.gpt2 import Activation, Architecture, HeadCount, LayerCount, Sizes, Width
from agentzoo.types import Config, explain

Rows = Annotated[int, Field(ge=1, le=2**22)]  # of a table; how many there are is compared with the file
Inner = Annotated[int, Field(ge=1, le=32_768)]
Epsilon = Annotated[float, Field(gt=0.0, le=0.1)]
TokenId = Annotated[int, Field(ge=0, le=2**22)]

_GENERATION = """bad_words_ids begin_suppress_tokens decoder_start_token_id diversity_penalty do_sample early_stopping
encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty
max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores
remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens temperature top_k top_p typical_p"""
_TRAINING = """attention_dropout attn_pdrop dropout embd_pdrop gradient_checkpointing initializer_factor
initializer_range resid_pdrop tie_encoder_decoder"""
_HEADS = """finetuning_task id2label label2id logit_scale_init_value num_labels _num_labels predict_special_tokens
problem_type projection_dim summary_activation summary_first_dropout summary_proj_to_labels summary_type
summary_use_proj task_specific_params vision_config vision_config_dict"""
_LIBRARY = """architectures _attn_implementation_autoset auto_map bos_token_id chunk_size_feed_forward _commit_hash
cross_attention_hidden_size dtype is_decoder is_encoder_decoder n_ctx _name_or_path name_or_path output_attentions
output_hidden_states output_past pad_token_id prefix reorder_and_upcast_attn return_dict sep_token_id tf_legacy_loss
tokenizer_class torch_dtype torchscript transformers_version use_bfloat16 use_cache"""
IDLE = frozenset(" ".join((_GENERATION, _TRAINING, _HEADS, _LIBRARY)).split())


class Described(NamedTuple):
    """What a checkpoint says of itself. Nothing of it is believed before the tensors are seen to be of these sizes."""

    sizes: Sizes
    vocab_size: int
    positions: int | None  # rows of its position table; None: it has none
    speaks_by_table: bool  # its next-token head is the token table
    end_of_text: int | None  # id of the token that ends a document, where it says so


class ForeignConfig(Config):
    """What all architectures have."""

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
        """What the blocks are built from."""
        raise NotImplementedError

    def end_of_text(self) -> int | None:
        """Configs name one token, several or none."""
        said = self.eos_token_id
        return (said[0] if said else None) if isinstance(said, list) else said

    def described(self) -> Described:
        """In our terms."""
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
    n_inner: Inner | None = None  # None: 4 n_embd
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
    """`ImageGPTConfig`: its words are colours."""

    architecture: ClassVar[Architecture] = "imagegpt"

    vocab_size: Rows = 513
    n_embd: Width = 512
    n_layer: LayerCount = 24
    n_head: HeadCount = 8
    activation_function: Activation = "quick_gelu"
    tie_word_embeddings: bool = False

    def described(self) -> Described:
        """See `ForeignConfig`."""
        return super().described()._replace(speaks_by_table=False)


class GPTJForeign(GPT2Foreign):
    """`GPTJConfig`: no position table, but a rotation."""

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
    intermediate_size: Inner = 2048
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


# model_type -> its class; `clip` holds a text tower's config inside
KINDS: dict[str, type[ForeignConfig]] = {
    "gpt2": GPT2Foreign,
    "imagegpt": ImageGPTForeign,
    "gptj": GPTJForeign,
    "clip": CLIPTextForeign,
    "clip_text_model": CLIPTextForeign,
}
# of a `clip`, around its text tower's config
_TOWERS = ("text_config", "text_config_dict")
_NEUTRAL = ("add_cross_attention", "attn_implementation", "pruned_heads", "quantization_config")
_OUTER = (*_TOWERS, *_NEUTRAL, "model_type", "eos_token_id", "tie_word_embeddings")


def read_foreign_config(name: str, path: Path) -> Described:
    """What the `config.json` of a language model says. Nothing is built, imported or fetched.

    Args:
        name: of the backbone, for messages.

    Raises:
        ConfigError: not an architecture, key or value that agentzoo knows. CheckpointError: missing, or no JSON object.
    """
    if not path.exists():
        raise CheckpointError(f"backbone {name!r} has no {path.name}, which says what network it is.")
    tree = _parse(name, path)
    config_class = KINDS[_model_type(name, tree)]
    if tree["model_type"] == "clip":
        tree = _text_tower(name, tree)
    _require_known(name, tree, config_class.model_fields)
    try:
        return config_class.model_validate({k: v for k, v in tree.items() if k not in IDLE}).described()
    except ValidationError as error:
        raise ConfigError(f"config.json of backbone {name!r} cannot be used: {explain(error)}") from None


def _parse(name: str, path: Path) -> dict[str, Any]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        tree = json.loads(read_text(path), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"config.json of backbone {name!r} is no JSON: {error}.") from None
    if not isinstance(tree, dict):
        raise CheckpointError(f"config.json of backbone {name!r} is no JSON object.")
    return tree


def _model_type(name: str, tree: dict[str, Any]) -> str:
    """What it says it is."""
    model_type = tree.get("model_type")
    if isinstance(model_type, str) and model_type in KINDS:
        return model_type
    if "agent_id" in tree:
        raise ConfigError(
            f"{name!r} is an agent, not the language model one starts from. `agentzoo list` names those that are here; "
            "`agentzoo finetune` goes on from an agent."
        )
    what = "has a config.json that names no model_type" if model_type is None else f"is of architecture {model_type!r}"
    raise ConfigError(
        f"backbone {name!r} {what[:200]}; the families gpt2-dt and clip-dt know gpt2, imagegpt, gptj and clip (its "
        "text tower)."
    )


def _text_tower(name: str, tree: dict[str, Any]) -> dict[str, Any]:
    """The config of the text tower of a `clip`; as transformers has it, `text_config_dict` goes before."""
    _require_known(name, tree, _OUTER)
    found: dict[str, Any] = {}
    for key in _TOWERS:
        part = tree.get(key)
        if part is not None and not isinstance(part, dict):
            raise ConfigError(f"config.json of backbone {name!r}: {key} is no JSON object.")
        found |= part or {}
    return {**found, **{key: tree[key] for key in _NEUTRAL if tree.get(key) is not None}}


def _require_known(name: str, tree: Mapping[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(set(tree) - set(known) - IDLE)
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        raise ConfigError(
            f"config.json of backbone {name!r} has {', '.join(repr(key[:60]) for key in unknown[:5])}{more}, which "
            "agentzoo does not know and which may change the network. Where it does not, take it out of a copy of the "
            "folder and name that."
        )
