"""Readers of networks from other libraries: language models, and Decision Transformers to import."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from agentzoo.hub.checkpoints import CORL_CONFIG, ImportOptions
from agentzoo.hub.importing import import_agent
from agentzoo.nn.language.corpus import CORPUS
from agentzoo.nn.language.cotraining import TEXT_VARIABLE, read_token_chunks
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.language.tokenizer import TOKENIZER, save_tokenizer, train_tokenizer
from agentzoo.research.fuzz_damage import Reader
from agentzoo.research.tiny_gguf import write_tiny_gguf
from agentzoo.store.files import CONFIG, WEIGHTS, sha256, write_atomic
from agentzoo.store.tensors import save_tensors

D, LAYERS, WORDS, ROWS = 8, 2, 300, 16  # width, blocks, words of the language models, positions
S, A = 3, 2  # observation and action of the Decision Transformers
TEXT = "the cat sat on a mat and saw another cat\n" * 40
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": WORDS,
    "n_positions": ROWS,
    "n_embd": D,
    "n_layer": LAYERS,
    "n_head": 2,
    "n_inner": None,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "eos_token_id": 0,
    "attn_pdrop": 0.1,
    "tie_word_embeddings": True,
    "add_cross_attention": False,
}
CLIP = {
    "model_type": "clip",
    "projection_dim": 4,
    "text_config": {
        "model_type": "clip_text_model",
        "vocab_size": WORDS,
        "hidden_size": D,
        "intermediate_size": 4 * D,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "max_position_embeddings": ROWS,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "eos_token_id": [0, 1],
    },
    "vision_config": {"hidden_size": 16},
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": WORDS,
    "hidden_size": D,
    "intermediate_size": 2 * D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": ROWS,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}
DECISION = {"model_type": "decision_transformer", "n_layer": LAYERS, "n_head": 1, "max_length": 4, "n_inner": None}
OPTIONS = ImportOptions(target_return=5.0, mean=(0.0,) * S, std=(1.0,) * S)


def checkpoint_readers(place: Path) -> list[Reader]:
    """The readers of networks from other libraries, with their files in `place`.

    Sets the environment variable that names the text for the language loss (`AGENTZOO_TEXT`).
    """
    gpt2, clip, llama, decision, corl = (place / name for name in ("lm", "clip", "llama", "decision", "corl"))
    tower = {"text_model.embeddings.token_embedding": (WORDS, D), "text_model.embeddings.position_embedding": (ROWS, D)}
    _write(gpt2, GPT2, {"wte": (WORDS, D), "wpe": (ROWS, D), "ln_f": (D,), **_blocks("h.{}", _GPT2)})
    _write(clip, CLIP, {**tower, "text_model.final_layer_norm": (D,), **_blocks("text_model.encoder.layers.{}", _CLIP)})
    _write(llama, LLAMA, {"embed_tokens": (WORDS, D), "norm": (D,), **_blocks("layers.{}", _LLAMA)}, biases=False)
    gguf = place / "llama.gguf"
    write_tiny_gguf(gguf)
    _write(decision, DECISION, {**_DECISION, **_blocks("encoder.h.{}", _GPT2)})
    text = place / "text.txt"
    write_atomic(text, TEXT)
    os.environ[TEXT_VARIABLE] = str(text)
    save_tokenizer(train_tokenizer([TEXT], WORDS), gpt2, ROWS)
    record = {"name": text.name, "bytes": len(TEXT), "sha256": sha256(text)}
    write_atomic(gpt2 / CORPUS, json.dumps({"training": [record], "validation": [], "held_out": 0.1}))
    pickled = _corl(corl)

    def words() -> object:
        return read_token_chunks(load_backbone(str(gpt2)), 4)

    def words_inside() -> object:
        return read_token_chunks(load_backbone(str(gguf), layers=1), 4)

    def imported() -> object:
        return import_agent(decision, OPTIONS)

    def imported_corl() -> object:
        return import_agent(pickled, replace(OPTIONS, heads=1))

    return [
        Reader("gpt2 config.json", "json", gpt2 / CONFIG, [lambda: load_backbone(str(gpt2))]),
        Reader("gpt2 model.safetensors", "safetensors", gpt2 / WEIGHTS, [lambda: load_backbone(str(gpt2)).sha256()]),
        Reader(TOKENIZER, "json", gpt2 / TOKENIZER, [words]),
        Reader(CORPUS, "json", gpt2 / CORPUS, [words]),
        Reader("clip config.json", "json", clip / CONFIG, [lambda: load_backbone(str(clip))]),
        Reader("llama config.json", "json", llama / CONFIG, [lambda: load_backbone(str(llama))]),
        Reader("llama model.safetensors", "safetensors", llama / WEIGHTS, [lambda: load_backbone(str(llama))]),
        Reader("gguf", "gguf", gguf, [lambda: load_backbone(str(gguf)), words_inside]),
        Reader("imported config.json", "json", decision / CONFIG, [imported]),
        Reader("imported model.safetensors", "safetensors", decision / WEIGHTS, [imported]),
        Reader("imported .pt", "text", pickled, [imported_corl]),
        Reader(CORL_CONFIG, "text", corl / CORL_CONFIG, [imported_corl]),
    ]


_GPT2: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("ln_1", "ln_2"), (D,)),
    "attn.c_attn": (D, 3 * D),
    "attn.c_proj": (D, D),
    "mlp.c_fc": (D, 4 * D),
    "mlp.c_proj": (4 * D, D),
}
_CLIP: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("layer_norm1", "layer_norm2"), (D,)),
    **{f"self_attn.{name}": (D, D) for name in ("q_proj", "k_proj", "v_proj", "out_proj")},
    "mlp.fc1": (4 * D, D),
    "mlp.fc2": (D, 4 * D),
}
_LLAMA: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (D,)),
    **{f"self_attn.{name}": (rows, D) for name, rows in (("q_proj", D), ("k_proj", D // 2), ("v_proj", D // 2))},
    "self_attn.o_proj": (D, D),
    "mlp.gate_proj": (2 * D, D),
    "mlp.up_proj": (2 * D, D),
    "mlp.down_proj": (D, 2 * D),
}
_DECISION: dict[str, tuple[int, ...]] = {
    "embed_return": (D, 1),
    "embed_state": (D, S),
    "embed_action": (D, A),
    "predict_action.0": (A, D),
    "embed_timestep": (ROWS, D),
    "encoder.wpe": (ROWS, D),
    "encoder.ln_f": (D,),
    "embed_ln": (D,),
}
_CORL: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("norm1", "norm2"), (D,)),
    "attention.out_proj": (D, D),
    "mlp.0": (4 * D, D),
    "mlp.2": (D, 4 * D),
}
_TABLES = ("wte", "wpe", "embedding", "timestep", "timestep_emb")  # have no bias
_TURNED = ("c_attn", "c_proj", "c_fc")  # of `Conv1D`: (in, out)


def _blocks(name: str, layers: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {f"{name.format(i)}.{layer}": size for i in range(LAYERS) for layer, size in layers.items()}


def _tensors(sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Weights of these shapes and the biases that belong to them."""
    found = {}
    for name, size in sizes.items():
        found[f"{name}.weight"] = torch.full(size, 0.01)
        if not name.endswith(_TABLES):
            found[f"{name}.bias"] = torch.zeros(size[-1] if name.endswith(_TURNED) else size[0])
    return found


def _write(
    folder: Path, config: Mapping[str, object], sizes: Mapping[str, tuple[int, ...]], biases: bool = True
) -> None:
    write_atomic(folder / CONFIG, json.dumps(config, indent=2))
    tensors = _tensors(sizes)
    save_tensors(folder / WEIGHTS, tensors if biases else {n: t for n, t in tensors.items() if n.endswith(".weight")})


def _corl(folder: Path) -> Path:
    """A checkpoint as CORL saves one, and its settings."""
    sizes: dict[str, tuple[int, ...]] = {"return_emb": (D, 1), "state_emb": (D, S), "action_emb": (D, A)}
    sizes |= {"action_head.0": (A, D), "timestep_emb": (ROWS, D), "emb_norm": (D,), "out_norm": (D,)}
    sizes |= _blocks("blocks.{}", _CORL)
    tensors = _tensors(sizes)
    for i in range(LAYERS):
        tensors[f"blocks.{i}.causal_mask"] = torch.ones(12, 12, dtype=torch.bool)
        tensors[f"blocks.{i}.attention.in_proj_weight"] = torch.full((3 * D, D), 0.01)
        tensors[f"blocks.{i}.attention.in_proj_bias"] = torch.zeros(3 * D)
    folder.mkdir(parents=True)
    torch.save({"model_state": tensors, "state_mean": torch.zeros(S), "state_std": torch.ones(S)}, folder / "dt.pt")
    write_atomic(folder / CORL_CONFIG, "num_heads: 1\nmax_action: 1.0\nreward_scale: 0.001\nresidual_dropout: 0.1\n")
    return folder / "dt.pt"
