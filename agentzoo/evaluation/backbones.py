"""What the networks that language agents start from know of language: `hub_cards/backbones.json`.

The results of an agent hold a copy of what is known of its own backbone, so that a card needs nothing but its folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from agentzoo.record import Config, read_record

BACKBONES = "backbones.json"
Words = Annotated[str, Field(max_length=300)]
Bits = Annotated[float, Field(gt=0.0, le=100.0)]


class Backbone(Config):
    """Bits a byte of the text that all are measured on; of a network that is no model of prose, what it was taught."""

    bits_per_byte: Bits | None = None
    taught: Words | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Backbone:
        if (self.bits_per_byte is None) == (self.taught is None):
            raise ValueError("name either bits_per_byte or what it was taught")
        return self


class Knowledge(Backbone):
    """That of one backbone, beside a real language model, the yardstick."""

    backbone: Words
    text: Words
    yardstick: Words
    yardstick_bits_per_byte: Bits


class Backbones(Config):
    """`backbones.json`."""

    text: Words  # that was measured on
    command: Words  # that measured
    yardstick: Words
    yardstick_bits_per_byte: Bits
    backbones: dict[str, Backbone]

    def of(self, name: str | None) -> Knowledge | None:
        """What is known of a backbone; None of one that is not listed."""
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
    """The record at `path`; None where there is no file.

    Raises:
        ConfigError: it cannot be used.
    """
    return read_record(Backbones, path) if path.is_file() else None
