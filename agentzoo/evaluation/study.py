"""The record of an experiment that a card shows: a table, a figure and a note."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from agentzoo.errors import CheckpointError
from agentzoo.record import read_record
from agentzoo.store.files import write_atomic
from agentzoo.types import Config

STUDY = "study.json"
MAX_CELL, MAX_NOTE = 190, 1_000  # characters
MAX_COLUMNS = 20
Text = Annotated[str, Field(max_length=200)]


class Study(Config):
    """A finding, ready to print. `picture` is a file in the same folder."""

    title: Text
    columns: Annotated[tuple[Text, ...], Field(max_length=MAX_COLUMNS)] = ()
    rows: Annotated[tuple[tuple[Text, ...], ...], Field(max_length=100)] = ()
    picture: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,60}\.png$")] | None = None
    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""

    @model_validator(mode="after")
    def _rows_fit(self) -> Study:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"every row needs {len(self.columns)} cells, one per column")
        return self


def cell(text: str) -> str:
    """The text, cut to the maximum length of a study's cell or title."""
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def filled(note: str, sentences: Sequence[str]) -> str:
    """The note of a study, followed by the sentences that fit."""
    for sentence in sentences:
        if len(note) + 1 + len(sentence) <= MAX_NOTE:
            note += f" {sentence}"
    return note


def write_study(study: Study, folder: Path) -> Path:
    """Write the record into `folder`, beside its figure."""
    path = folder / STUDY
    write_atomic(path, study.to_json())
    return path


def read_study(path: Path) -> Study:
    """Read the record at `path`, a file or its folder.

    Raises:
        CheckpointError: no such file. ConfigError: its content cannot be used.
    """
    path = path / STUDY if path.is_dir() else path
    if not path.is_file():
        raise CheckpointError(f"no study at {path}; pass a {STUDY} or its folder.")
    return read_record(Study, path)
