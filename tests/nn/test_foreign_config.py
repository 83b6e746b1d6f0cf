"""A stranger's `config.json` of a language model: every key is known, every value checked, nothing is built first."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.nn.language.foreign_config import IDLE
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.language.tokenizer import parse_tokenizer
from nn.test_language_parity import peer as gpt2_or_clip
from nn.test_llama_parity import peer as llama

ODD = (-1, 0, 2**31, 10**30, 1e9, 0.5, math.inf, "x", "", True, [8], {"a": 1}, [[[]]], "\x1b[2J")
SIZES = {
    "gpt2": ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner", "layer_norm_epsilon"),
    "llama": ("vocab_size", "hidden_size", "num_hidden_layers", "num_key_value_heads", "head_dim", "rms_norm_eps"),
    "clip": ("vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers", "intermediate_size"),
}
TOO_LARGE = {"vocab_size": 2**22, "n_positions": 2**22, "n_embd": 8192, "n_layer": 128, "n_inner": 32_768}
TOO_LARGE_TOWER = {"vocab_size": 2**22, "hidden_size": 8192, "num_hidden_layers": 128, "intermediate_size": 32_768}
OF_A_LIBRARY: dict[str, tuple[Any, ...]] = {  # what other libraries would act on
    "attn_implementation": ("evil-org/attention", "flash_attention_3", {"": "evil-org/attention"}, 3),
    "_attn_implementation": ("evil-org/attention",),
    "experts_implementation": ("evil-org/experts",),
    "quantization_config": ({"quant_method": "gptq"}, {}, "awq", {"quant_method": "evil", "modules": ["os"]}),
    "per_layer_config": ({"0": {}},),
    "rope_scaling": ({"type": "linear", "factor": 8.0},),
    "sliding_window": (8,),
    "trust_remote_code": (True,),
    "use_kernels": (True,),
    "device_map": ("auto",),
    "\x1b]0;owned\x07": (1,),
    "k" * 5000: (1,),
    "add_cross_attention": (True, 1, "false"),
    "pruned_heads": ({"0": [0]}, [0]),
    "scale_attn_weights": (False, 0),
    "scale_attn_by_inverse_layer_idx": (True,),
    "activation_function": ("swish", "evil:function", None, 3, ["gelu"], "gelu_new\n"),
    "tie_word_embeddings": (1, "yes", None),
    "eos_token_id": (-1, "x", [0] * 100, 2**40, [None], 0.5),
    "model_type": ("evil", None, 3, ["gpt2"], "llava", {}),
}
WHOLE = (
    *("[" * 5000, "{}", "[]", "null", "", '{"model_type": "gpt2"', '{"model_type": "gpt2", "n_embd": NaN}', "\x00"),
    "9" * 5000,
)
WIDE = 100_000 * [0]


def peer(kind: str) -> Any:
    """A small model of transformers."""
    return llama("grouped") if kind == "llama" else gpt2_or_clip(kind)


def cases(kind: str) -> Iterator[dict[str, Any] | str]:
    """Changes to a config that must be refused, and whole contents."""
    tower = kind == "clip"
    for key in SIZES[kind if kind in SIZES else "gpt2"]:
        fits = (0.5,) if key.endswith(("epsilon", "eps")) else ()  # even that is too large
        yield from ({key: value} for value in (*ODD, *fits, WIDE))
    for key, value in (TOO_LARGE_TOWER if kind in ("clip", "llama") else TOO_LARGE).items():
        if (kind, key) != ("gptj", "n_positions"):  # it has no such table, so nothing is as large
            yield {key: value}
    for key, values in OF_A_LIBRARY.items():
        yield from ({key: value} for value in values)
    if tower:
        yield {"text_config": {"hidden_size": 2**20}}
        yield {"text_config": {"quantization_config": {"quant_method": "gptq"}}, "quantization_config": None}
        yield {"model_type": "clip", "text_config": [1]}
        yield {"model_type": "clip", "text_config_dict": {"num_hidden_layers": 10**9}}
    yield from WHOLE


def peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return max(int(line.split()[1]) for line in status.splitlines() if line.startswith(("VmHWM", "VmRSS"))) / 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory as Linux does")
@pytest.mark.parametrize("kind", ["gpt2", "imagegpt", "gptj", "clip", "llama"])
def test_a_hostile_config_is_refused_before_anything_is_built(kind: str, tmp_path: Path) -> None:
    peer(kind).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    good = json.loads(path.read_text())
    load_backbone(str(tmp_path))
    count = 0
    for case in cases(kind):
        path.write_text(case if isinstance(case, str) else json.dumps({**good, **case}))
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before, began = peak_megabytes(), time.process_time()
        with pytest.raises((ConfigError, CheckpointError)) as caught:
            load_backbone(str(tmp_path))
        said = str(caught.value)
        assert len(said) < 4100, case
        assert said.isprintable(), case
        assert peak_megabytes() - before < 100, case
        assert time.process_time() - began < 2.0, case
        count += 1
    assert count > 100  # of each kind


@pytest.mark.parametrize("kind", ["gpt2", "gptj", "clip", "llama"])
def test_config_fields_that_do_not_affect_the_blocks_are_ignored(kind: str, tmp_path: Path) -> None:
    peer(kind).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    good, expected = json.loads(path.read_text()), load_backbone(str(tmp_path)).sha256()
    for value in ODD[:4]:
        idle = dict.fromkeys(IDLE, value)
        path.write_text(json.dumps({**good, **idle}).replace("Infinity", "null"))
        assert load_backbone(str(tmp_path)).sha256() == expected


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    peer("gpt2").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_scaling": 1, "logit_cap": 2}))
    with pytest.raises(ConfigError, match="has 'logit_cap', 'rope_scaling', which agentzoo does not know"):
        load_backbone(str(tmp_path))


def test_sizes_are_compared_with_the_file_before_it_is_read(tmp_path: Path) -> None:
    """The numbers are junk: only a header that fits makes anybody look at them."""
    peer("gpt2").save_pretrained(tmp_path)
    path, config = tmp_path / "model.safetensors", json.loads((tmp_path / "config.json").read_text())
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    path.write_bytes(content[:end] + b"\xff" * (len(content) - end))
    with pytest.raises(CheckpointError, match="not finite"):
        load_backbone(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 61}))
    with pytest.raises(CheckpointError, match=r"1 tensor: wte\.weight \(60, 32\), not \(61, 32\)"):
        load_backbone(str(tmp_path))


def test_weights_that_are_no_floats_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    peer("gpt2").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["h.0.mlp.c_fc.weight"] = torch.ones(32, 128, dtype=torch.int8)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="weights of type I8; supported are F64, F32, F16, BF16"):
        load_backbone(str(tmp_path))


def test_weights_split_into_several_files_are_refused(tmp_path: Path) -> None:
    peer("gpt2").save_pretrained(tmp_path, max_shard_size="20KB")
    with pytest.raises(CheckpointError, match="split into several files"):
        load_backbone(str(tmp_path))


def test_no_other_library_sees_a_backbone(tmp_path: Path) -> None:
    """Neither transformers nor tokenizers is imported, so nothing of theirs can be asked for by a config."""
    peer("clip").save_pretrained(tmp_path)
    code = (
        "import sys; from agentzoo.nn.language.pretrained import load_backbone; "
        f"load_backbone({str(tmp_path)!r}).sha256(); "
        "print([m for m in ('transformers', 'tokenizers', 'kernels', 'peft') if m in sys.modules])"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"


def test_a_tokenizer_that_makes_its_library_panic_is_refused() -> None:
    """A merge whose result is no word: the library's Rust gives up, with what is no Exception of Python."""
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"], "continuing_subword_prefix": "####"}
    with pytest.raises(CheckpointError, match="the tokenizer cannot be read as a tokenizer"):
        parse_tokenizer(json.dumps({"version": "1.0", "added_tokens": [], "model": model}), "the tokenizer")
