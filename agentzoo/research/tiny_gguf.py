"""A tiny Llama as a GGUF file, as llama.cpp's converter writes it, for tests and fuzzing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentzoo.extras import needed
from agentzoo.nn.language.backbone import LanguageBackbone
from agentzoo.nn.language.block_sizes import Sizes

TINY = Sizes("llama", 32, 2, 4, 64, "silu", n_kv_heads=2, rotary_theta=1000.0)
WORDS = ["<|endoftext|>", "<|end|>", "a", "b", "c", "d", "ab", "cd", "\u0120", "\u0120a"]  # \u0120 stands for a space
MERGES = ["a b", "c d", "\u0120 a"]
_NAMES = {"attn.proj": "attn_output", "down": "ffn_down", "ln_1": "attn_norm", "ln_2": "ffn_norm"}
_PARTS = {"attn.qkv": ("attn_q", "attn_k", "attn_v"), "up": ("ffn_gate", "ffn_up")}


def write_tiny_gguf(
    path: Path, sizes: Sizes = TINY, seed: int = 0, quantized: Sequence[str] = ("ffn_up",)
) -> dict[str, Tensor]:
    """Write random weights; returns their state dict as a `LanguageBackbone`, with `tokens`.

    Args:
        path: the new file.
        sizes: sizes of a Llama; the width is a multiple of 32.
        seed: the seed of the weights.
        quantized: layers to write in blocks of 4 bits, by llama.cpp's names; the returned weights are not quantized.
    """
    package = needed("gguf", "language", "a GGUF file")
    generator = torch.Generator().manual_seed(seed)
    network = LanguageBackbone(sizes)
    state = {name: torch.randn(value.shape, generator=generator) for name, value in network.state_dict().items()}
    tokens = torch.randn(len(WORDS), sizes.embed_dim, generator=generator)
    writer = package.GGUFWriter(path, "llama")
    _describe(writer, sizes)
    writer.add_tensor("token_embd.weight", tokens.numpy())
    for name, value in state.items():
        for theirs, part in _theirs(name, value, network, sizes):
            if theirs.split(".")[-2] in quantized:
                kind = package.GGMLQuantizationType.Q4_1
                writer.add_tensor(theirs, package.quants.quantize(part, kind), raw_dtype=kind)
            else:
                writer.add_tensor(theirs, part)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {**state, "tokens": tokens}


def _describe(writer: Any, sizes: Sizes) -> None:
    writer.add_block_count(sizes.n_layers)
    writer.add_context_length(64)
    writer.add_embedding_length(sizes.embed_dim)
    writer.add_feed_forward_length(sizes.inner_dim)
    writer.add_head_count(sizes.n_heads)
    writer.add_head_count_kv(sizes.n_kv_heads)
    writer.add_layer_norm_rms_eps(sizes.norm_eps)
    writer.add_rope_freq_base(sizes.rotary_theta)
    writer.add_rope_dimension_count(sizes.embed_dim // sizes.n_heads)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3] + [1] * (len(WORDS) - 2))
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(1)


def _theirs(name: str, value: Tensor, network: LanguageBackbone, sizes: Sizes) -> list[tuple[str, np.ndarray]]:
    """The tensors of the file for one of our tensors."""
    layer = name.removesuffix(".weight")
    if layer == "ln_f":
        return [("output_norm.weight", value.numpy())]
    _, index, short = layer.split(".", 2)
    names = _PARTS.get(short) or (_NAMES[short],)
    rows = network.rows_of(layer) or (len(value),)
    heads = {"attn_q": sizes.n_heads, "attn_k": sizes.n_kv_heads or sizes.n_heads}
    return [
        (f"blk.{index}.{one}.weight", (by_neighbours(part, heads[one]) if one in heads else part).numpy())
        for one, part in zip(names, torch.split(value, list(rows)), strict=True)
    ]


def by_neighbours(rows: Tensor, n_heads: int) -> Tensor:
    """(H h, D): interleave the rows of each head's halves, as llama.cpp's converter does."""
    return rows.view(n_heads, 2, -1, rows.shape[1]).transpose(1, 2).reshape(rows.shape)
