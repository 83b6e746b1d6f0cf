"""A Llama in a GGUF file, such as SmolLM2, in the terms of `nn.language`.

llama.cpp rotates neighbouring numbers of a head, Llama pairs its halves, so the converter of llama.cpp reorders the
rows of queries and keys. Reading restores Llama's order (tests/nn/test_llama_parity.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from agentzoo.errors import ConfigError, printable
from agentzoo.nn.language.foreign_config import checked
from agentzoo.nn.language.foreign_kinds import Described, LlamaForeign
from agentzoo.nn.language.gguf_file import GGUF
from agentzoo.nn.language.layouts import Layout, Opened

_LAYOUT = Layout(
    "token_embd",
    None,
    "blk",
    "output_norm",
    {
        "ln_1": "attn_norm",
        "attn.qkv": ("attn_q", "attn_k", "attn_v"),
        "attn.proj": "attn_output",
        "ln_2": "ffn_norm",
        "up": ("ffn_gate", "ffn_up"),
        "down": "ffn_down",
    },
)
_READ = {  # entry of metadata, after `llama.` -> key of a Llama's config.json
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "rope.dimension_count": "head_dim",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "vocab_size": "vocab_size",
}
_IDLE = ("context_length",)
_CONTROL = 3  # a `tokenizer.ggml.token_type`: a token without text
_SPLITS: dict[str, list[dict[str, Any]]] = {  # how each `tokenizer.ggml.pre` splits text before tokens are looked up
    "gpt-2": [],
    "smollm": [{"type": "Digits", "individual_digits": True}],
}


_TOP = ("token_embd.", "output_norm.", "output.")


def open_gguf(name: str, path: Path) -> Opened:
    """Open the GGUF file of a Llama. `name` is for messages.

    Raises:
        CheckpointError: missing, cut, or a header that does not describe the file. ConfigError: no Llama, something
            that agentzoo's blocks do not have, or the package `gguf` is not installed.
    """
    file = GGUF(path)
    described = _described(name, file.metadata, "output.weight" not in file.tensors)
    spare = sorted(one for one in file.tensors if not one.startswith(("blk.", *_TOP)))
    if spare:
        raise ConfigError(f"backbone {name!r} has {printable(spare[0])}, which agentzoo's blocks do not have.")
    rows = {"attn_q": described.sizes.n_heads, "attn_k": described.sizes.n_kv_heads or described.sizes.n_heads}

    def read(tensor: str) -> Tensor:
        found = file.tensor(tensor)
        heads = rows.get(tensor.split(".")[-2])
        return found if heads is None else by_halves(found, heads)

    header = {one: ("F32", entry.shape) for one, entry in file.tensors.items()}  # the decoded type
    return Opened(described, _LAYOUT, header, read, file.sha256(), _tokenizer(file.metadata))


def by_halves(rows: Tensor, n_heads: int) -> Tensor:
    """(H h, D): rows 0, 2, 4, ... of each head, then 1, 3, 5, ...: undoes the order of llama.cpp's converter."""
    return rows.view(n_heads, -1, 2, rows.shape[1]).transpose(1, 2).reshape(rows.shape)


def _described(name: str, metadata: dict[str, Any], tied: bool) -> Described:
    """The sizes by the metadata, checked like a Llama's `config.json`."""
    kind = metadata.get("general.architecture")
    if kind != "llama":
        raise ConfigError(f"backbone {name!r} is a GGUF file of architecture {printable(kind)!r}; known: llama.")
    tree: dict[str, Any] = {"model_type": "llama", "tie_word_embeddings": tied}
    for key, value in metadata.items():
        if not key.startswith("llama.") or key.removeprefix("llama.") in _IDLE:
            continue
        ours = _READ.get(key.removeprefix("llama."))
        if ours is None or tree.get(ours, value) != value:
            raise ConfigError(
                f"backbone {name!r} has {printable(key)} = {printable(value, 60)}, which agentzoo's blocks do not have."
            )
        tree[ours] = value
    words = metadata.get("tokenizer.ggml.tokens")
    if "vocab_size" not in tree and isinstance(words, list):
        tree["vocab_size"] = len(words)
    tree["eos_token_id"] = metadata.get("tokenizer.ggml.eos_token_id")
    return checked(f"the metadata of backbone {name!r}", LlamaForeign, tree)


def _tokenizer(metadata: dict[str, Any]) -> str | None:
    """A `tokenizer.json` made from the file's tokens; None for a way to split text that is not known here."""
    pre = metadata.get("tokenizer.ggml.pre")
    words, merges, kinds = (_listed(metadata, key) for key in ("tokens", "merges", "token_type"))
    if metadata.get("tokenizer.ggml.model") != "gpt2" or not words or len(words) != len(kinds):
        return None
    if not isinstance(pre, str) or pre not in _SPLITS:
        return None
    if not all(isinstance(word, str) for word in (*words, *merges)) or len(set(words)) != len(words):
        return None
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {word: i for i, word in enumerate(words)}, "merges": merges}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": words[i], **special} for i, kind in enumerate(kinds) if kind == _CONTROL]
    tree = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*_SPLITS[pre], level]},
        "decoder": level,
        "model": model,
    }
    return json.dumps(tree)


def _listed(metadata: dict[str, Any], key: str) -> list[Any]:
    found = metadata.get(f"tokenizer.ggml.{key}")
    return found if isinstance(found, list) else []
