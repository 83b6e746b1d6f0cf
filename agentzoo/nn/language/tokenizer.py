"""A byte-pair tokenizer like GPT-2's: bytes as alphabet, so it takes any text, and one end-of-text token."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.extras import needed
from agentzoo.store.files import write_atomic

TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"  # what transformers' AutoTokenizer reads beside it
END_OF_TEXT = "<|endoftext|>"


def _library() -> Any:
    return needed("tokenizers", "language", "a tokenizer")


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """Train a tokenizer of at most `vocab_size` tokens on `texts`; deterministic.

    Raises:
        ConfigError: `vocab_size` leaves no room beside the 256 bytes and the end-of-text token.
    """
    if vocab_size < 257:
        raise ConfigError(f"a byte-pair vocabulary needs at least 257 tokens, got {vocab_size}.")
    lib = _library()
    tokenizer = lib.Tokenizer(lib.models.BPE())
    tokenizer.pre_tokenizer = lib.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = lib.decoders.ByteLevel()
    tokenizer.post_processor = lib.processors.ByteLevel(trim_offsets=False)
    trainer = lib.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=lib.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # by lines: a whole book at once takes several times the memory
    tokenizer.train_from_iterator((line for text in texts for line in text.splitlines(keepends=True)), trainer)
    return tokenizer


def save_tokenizer(tokenizer: Any, folder: Path, max_length: int) -> None:
    """Write `tokenizer.json` and the settings transformers reads beside it."""
    write_atomic(folder / TOKENIZER, tokenizer.to_str(pretty=False))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "unk_token": END_OF_TEXT,
        "model_max_length": max_length,
    }
    write_atomic(folder / SETTINGS, json.dumps(settings, indent=2) + "\n")


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a `tokenizer.json`.

    Raises:
        CheckpointError: missing or broken.
    """
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing: a language model needs its {TOKENIZER}, which turns text into tokens."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return parse_tokenizer(text, str(path))


def parse_tokenizer(text: str, what: str) -> Any:
    """The tokenizer of the content of a `tokenizer.json`; `what` names it in the error.

    Raises:
        CheckpointError: broken. ConfigError: the package `tokenizers` is not installed.
    """
    library = _library()
    try:
        return library.Tokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # it raises plain Exception; a panic of its Rust code is a BaseException
        raise CheckpointError(f"{what} cannot be read as a tokenizer: {error}") from None


def end_of_text(tokenizer: Any, otherwise: int | None = None) -> int:
    """Id of the token that ends a document: GPT-2's token, else `otherwise`, the id in the checkpoint's config.

    Raises:
        CheckpointError: there is none.
    """
    found = tokenizer.token_to_id(END_OF_TEXT)
    if found is None:
        found = otherwise
    if found is None:
        raise CheckpointError(f"the tokenizer has no {END_OF_TEXT!r} token, which separates documents.")
    return int(found)
