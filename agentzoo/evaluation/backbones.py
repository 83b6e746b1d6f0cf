"""How well backbones, the networks that language agents start from, model language: `hub_cards/backbones.json`.

The results of an agent hold a copy of its own backbone's row, so that a card depends only on its own folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from agentzoo.record import Config, read_record

BACKBONES = "backbones.json"
Words = Annotated[str, Field(max_length=300)]
Bits = Annotated[float, Field(gt=0.0, le=100.0)]


class BackboneFacts(Config):
    """Bits per byte on the text that all are measured on; for a network that does not model prose, what it learned."""

    bits_per_byte: Bits | None = None
    taught: Words | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> BackboneFacts:
        if (self.bits_per_byte is None) == (self.taught is None):
            raise ValueError("set exactly one of bits_per_byte and taught")
        return self


class Knowledge(BackboneFacts):
    """The row of one backbone, with a real language model as yardstick."""

    backbone: Words
    text: Words
    yardstick: Words
    yardstick_bits_per_byte: Bits


class Backbones(Config):
    """`backbones.json`."""

    text: Words  # the text of the measurement
    command: Words  # the command of the measurement
    yardstick: Words
    yardstick_bits_per_byte: Bits
    backbones: dict[str, BackboneFacts]

    def of(self, name: str | None) -> Knowledge | None:
        """The row of a backbone; None if it is not listed."""
        found = None if name is None else self.backbones.get(name)
        if name is None or found is None:
            return None
        return Knowledge(
            backbone=name,
            text=self.text,
            yardstick=self.yardstick,
            yardstick_bits_per_byte=self.yardstick_bits_per_byte,
            bits_per_byte=found.bits_per_byte,
            taught=found.taught,
        )


def read_backbones(path: Path) -> Backbones | None:
    """The record at `path`; None if there is no file.

    Raises:
        ConfigError: it cannot be used.
    """
    return read_record(Backbones, path) if path.is_file() else None
