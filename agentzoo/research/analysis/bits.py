"""Bits per byte of a language model on a text, which can be compared across vocabularies."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy

from agentzoo.errors import ConfigError, DataError
from agentzoo.nn.language.pretrained import Pretrained
from agentzoo.research.analysis.head_report import language_blocks

WINDOW = 1024  # tokens; fewer for models with fewer positions


class Bits(NamedTuple):
    """The result of one model on one text."""

    name: str
    bits_per_byte: float
    bytes: int  # of the text
    tokens: int  # of the text
    window: int  # tokens at a time


def bits_per_byte(found: Pretrained, text: str, window: int = WINDOW) -> Bits:
    """Read a text window by window; the first token of each window is given, not predicted.

    Args:
        found: a checkpoint with a tokenizer, whose next-token head is its token table.
        text: plain text.
        window: tokens at a time, at most the model's positions. Longer windows help models that can use them.

    Raises:
        ConfigError: the model lacks a tokenizer or such a head. DataError: the text has fewer than two tokens.
    """
    tokenizer = found.tokenizer()
    if tokenizer is None or not found.has_tied_head:
        raise ConfigError(f"backbone {found.name!r} has no tokenizer, or its output head is not its token table.")
    ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids)
    window = window if found.positions is None else min(window, len(found.positions))
    if len(ids) < 2:
        raise DataError(f"the text has {len(ids)} tokens, but at least 2 are needed.")
    blocks = language_blocks(found)
    nats, predicted = 0.0, 0
    with torch.inference_mode():
        for piece in torch.split(ids, window):
            if len(piece) < 2:
                continue
            x = found.tokens[piece]
            x = x if found.positions is None else x + found.positions[: len(piece)]
            logits = blocks(x[None])[0, :-1] @ found.tokens.T
            nats += float(cross_entropy(logits, piece[1:], reduction="sum"))
            predicted += len(piece) - 1
    size = len(text.encode())
    return Bits(found.name, nats / predicted * len(ids) / size / math.log(2), size, len(ids), window)
