"""Reads an untrusted `config.json` of a language model by an allow-list of keys. No other library reads the file.

A new architecture is one class in `foreign_kinds`, with the keys that decide its numbers, and one row of `KINDS`. A
key belongs to one of three groups:

- *read*: a field of the class; it has a type and bounds, and the sizes are compared with the file of tensors next;
- *neutral*: a field that takes only the value that agentzoo's blocks have (`add_cross_attention: false`);
- *idle*: in `IDLE`; it decides nothing about the blocks (dropout, generation, labels), so its value is not looked at.

Any other key is refused: it may change what the network computes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.language.foreign_kinds import KINDS, Described, ForeignConfig
from agentzoo.store.files import read_text
from agentzoo.types import explain

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
tokenizer_class torch_dtype torchscript transformers.js_config transformers_version use_bfloat16 use_cache"""
IDLE = frozenset(" ".join((_GENERATION, _TRAINING, _HEADS, _LIBRARY)).split())
# of a `clip`, around its text tower's config
_TOWERS = ("text_config", "text_config_dict")
_NEUTRAL = ("add_cross_attention", "attn_implementation", "pruned_heads", "quantization_config")
_OUTER = (*_TOWERS, *_NEUTRAL, "model_type", "eos_token_id", "tie_word_embeddings")


def read_foreign_config(name: str, path: Path) -> Described:
    """Read the `config.json` of a language model. Nothing is built, imported or fetched.

    Args:
        name: the backbone's name, for messages.

    Raises:
        ConfigError: not an architecture, key or value that agentzoo knows. CheckpointError: missing, or no JSON object.
    """
    if not path.exists():
        raise CheckpointError(f"backbone {name!r} has no {path.name}, which describes its network.")
    tree = _parse(name, path)
    config_class = KINDS[_model_type(name, tree)]
    if tree["model_type"] == "clip":
        tree = _text_tower(name, tree)
    _require_known(name, tree, config_class.model_fields)
    kept = {k: v for k, v in tree.items() if k not in IDLE}
    return checked(f"config.json of backbone {name!r}", config_class, kept)


def checked(what: str, kind: type[ForeignConfig], tree: dict[str, Any]) -> Described:
    """`tree` as a `kind`; `what` names the file in the error.

    Raises:
        ConfigError: a value of a wrong type or out of range.
    """
    try:
        return kind.model_validate(tree).described()
    except ValidationError as error:
        raise ConfigError(f"{what} cannot be used: {explain(error)}") from None


def _parse(name: str, path: Path) -> dict[str, Any]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a JSON number")

    try:
        tree = json.loads(read_text(path), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"config.json of backbone {name!r} is not JSON: {error}.") from None
    if not isinstance(tree, dict):
        raise CheckpointError(f"config.json of backbone {name!r} is not a JSON object.")
    return tree


def _model_type(name: str, tree: dict[str, Any]) -> str:
    """Its `model_type`."""
    model_type = tree.get("model_type")
    if isinstance(model_type, str) and model_type in KINDS:
        return model_type
    if "agent_id" in tree:
        raise ConfigError(
            f"{name!r} is an agent, not the language model one starts from. `agentzoo list` names those that are here; "
            "`agentzoo finetune` starts from an agent."
        )
    what = "has a config.json that names no model_type" if model_type is None else f"is of architecture {model_type!r}"
    raise ConfigError(
        f"backbone {name!r} {what[:200]}; the families gpt2-dt, clip-dt and smollm-dt know gpt2, imagegpt, gptj, clip "
        "(its text tower) and llama."
    )


def _text_tower(name: str, tree: dict[str, Any]) -> dict[str, Any]:
    """The config of the text tower of a `clip`. As in transformers, `text_config_dict` takes precedence."""
    _require_known(name, tree, _OUTER)
    found: dict[str, Any] = {}
    for key in _TOWERS:
        part = tree.get(key)
        if part is not None and not isinstance(part, dict):
            raise ConfigError(f"config.json of backbone {name!r}: {key} is not a JSON object.")
        found |= part or {}
    return {**found, **{key: tree[key] for key in _NEUTRAL if tree.get(key) is not None}}


def _require_known(name: str, tree: Mapping[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(set(tree) - set(known) - IDLE)
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        raise ConfigError(
            f"config.json of backbone {name!r} has {', '.join(repr(key[:60]) for key in unknown[:5])}{more}, which "
            "agentzoo does not know and which may change the network. If it does not, remove the key in a copy of the "
            "folder and pass the copy."
        )
