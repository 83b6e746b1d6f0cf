"""Plain text files as chunks of tokens, for training and for validation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from agentzoo.errors import DataError
from agentzoo.types import Config

CORPUS = "corpus.json"  # beside the weights of our own backbones: the text they were trained on
MAX_TEXT = 2 * 1024**3  # bytes of one file


class TextFile(Config):
    """One file of a corpus, as the record of a run names it."""

    name: str
    bytes: Annotated[int, Field(ge=0)]
    sha256: str


class CorpusRecord(Config):
    """The text of a run: files to train on (their ends are held out) and files to validate on."""

    training: tuple[TextFile, ...]
    validation: tuple[TextFile, ...]
    held_out: Annotated[float, Field(ge=0.0, lt=1.0)]


class Document(NamedTuple):
    """A file's text in two parts, split at the start of a line."""

    record: TextFile
    text: str  # to train on
    held_out: str  # its end, to validate on; may be empty


def text_files(paths: Sequence[Path], without: Sequence[Path] = ()) -> list[Path]:
    """The files in `paths`, and the `.txt` files of the folders in it, by name, except those in `without`.

    Raises:
        DataError: a path does not exist, or no text file is found.
    """
    left_out = {path.resolve() for path in without}
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise DataError(f"{path} does not exist; name text files, or folders of .txt files.")
        found += sorted(path.glob("*.txt")) if path.is_dir() else [path]
    chosen = [path for path in dict.fromkeys(found) if path.resolve() not in left_out]
    if not chosen:
        raise DataError(f"no .txt file in {', '.join(str(path) for path in paths)}.")
    return chosen


def read_document(path: Path, held_out: float = 0.0) -> Document:
    """Read a text file; its last share `held_out` is for validation.

    Raises:
        DataError: the file cannot be read, is not UTF-8 text, or is empty.
    """
    try:
        if path.stat().st_size > MAX_TEXT:
            raise DataError(f"{path} holds {path.stat().st_size:,} bytes, more than {MAX_TEXT:,}: split it.")
        data = path.read_bytes()
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from error
    if not text.strip():
        raise DataError(f"{path} holds no text.")
    record = TextFile(name=path.name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    cut = len(text)
    if held_out > 0.0:
        near = int(len(text) * (1.0 - held_out))
        line = text.find("\n", near, len(text) - 1)  # not the last line break: no text follows it
        cut = line + 1 if line >= 0 else near
    return Document(record, text[:cut], text[cut:])


class Tokens(NamedTuple):
    """Documents in a row, each followed by the end-of-text token."""

    ids: Tensor  # (T,) int32
    bytes: int  # size of the text

    def chunks(self, length: int) -> Tensor:
        """(n, length): consecutive pieces, the remainder dropped.

        Raises:
            DataError: there are fewer tokens than one piece holds.
        """
        count = len(self.ids) // length
        if count == 0:
            raise DataError(f"{len(self.ids)} tokens of text do not fill one window of {length}; give more text.")
        return self.ids[: count * length].view(count, length)


def tokenize(texts: Sequence[str], tokenizer: Any, end_of_text: int) -> Tokens:
    """All texts as one row of tokens."""
    pieces: list[Any] = []
    for text in texts:
        pieces += [np.asarray(tokenizer.encode(text).ids, dtype=np.int32), np.asarray([end_of_text], dtype=np.int32)]
    size = sum(len(text.encode()) for text in texts)
    return Tokens(torch.from_numpy(np.concatenate(pieces)) if pieces else torch.zeros(0, dtype=torch.int32), size)
