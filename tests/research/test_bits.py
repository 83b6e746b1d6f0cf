"""How much of a language a model knows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from agentzoo.errors import ConfigError, DataError
from agentzoo.nn.language.pretrained import load_backbone
from agentzoo.research.analysis.bits import bits_per_byte
from agentzoo.research.tiny_gguf import write_tiny_gguf

TEXT = "a dog saw the cat that sat there too\n"


def test_bits_are_what_transformers_loses_a_byte(zoo: Path) -> None:
    from transformers import GPT2LMHeadModel

    found = load_backbone("lm-tiny")
    ids = torch.tensor([found.tokenizer().encode(TEXT).ids])
    peer = GPT2LMHeadModel.from_pretrained(zoo / "zoo" / "lm-tiny").eval()
    with torch.no_grad():
        nats = float(peer(input_ids=ids, labels=ids).loss)  # the mean over predicted tokens
    one = bits_per_byte(found, TEXT)
    assert one.tokens == ids.shape[1] <= one.window == 32
    assert one.bits_per_byte == pytest.approx(nats * one.tokens / len(TEXT) / math.log(2), rel=1e-5)


def test_text_is_read_in_windows_and_a_rest_of_one_token_says_nothing(zoo: Path) -> None:
    found = load_backbone("lm-tiny")
    count = len(found.tokenizer().encode(TEXT).ids)
    whole, cut = bits_per_byte(found, TEXT), bits_per_byte(found, TEXT, count - 1)
    assert cut.window == count - 1
    assert cut.bits_per_byte != whole.bits_per_byte
    assert cut.bits_per_byte == pytest.approx(whole.bits_per_byte, rel=0.2)


def test_empty_text_and_a_network_without_a_tied_head_are_refused(zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the text has 0 tokens"):
        bits_per_byte(load_backbone("lm-tiny"), "")
    write_tiny_gguf(tmp_path / "a.gguf")
    assert bits_per_byte(load_backbone(str(tmp_path / "a.gguf")), "abcd a").tokens == 3
    mute = load_backbone("lm-tiny")._replace(has_tied_head=False)
    with pytest.raises(ConfigError, match="its output head is not its token table"):
        bits_per_byte(mute, TEXT)
