"""The base of every record that is read from a file: configs, recipes, results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from agentzoo.errors import AgentzooError, CheckpointError, ConfigError
from agentzoo.store.files import CONFIG, RECIPE, is_backbone, read_text

M = TypeVar("M", bound="Config")
PYTHON = {"None": "null", "True": "true", "False": "false"}  # its literals in JSON
NUMBERS = re.compile(r'\[\n[^"\[\]{}]*\]')  # a list without texts, lists or objects; no JSON text holds a line break


class Config(BaseModel):
    """A frozen, checked record: exact types, known keys only, no NaN, to JSON and back."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        """The record as indented JSON, keys in the order they are declared, a list of numbers on one line."""
        return NUMBERS.sub(_one_line, self.model_dump_json(indent=2)) + "\n"

    @classmethod
    def from_json(cls: type[M], text: str | bytes, source: str) -> M:
        """Parse and check `text`; `source` names the file in the error.

        Raises:
            ConfigError: not JSON, an unknown or missing key, a wrong type or a value out of range.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ConfigError(f"{source} cannot be used: {explain(error)}") from None


def read_record(kind: type[M], path: Path) -> M:
    """A record from its small JSON file.

    Raises:
        CheckpointError: missing, unreadable, not text or far too large, or a backbone's. ConfigError: its content
            cannot be used.
    """
    try:
        return kind.from_json(read_text(path), str(path))
    except AgentzooError:
        if path.name in (CONFIG, RECIPE) and is_backbone(path.parent):
            raise CheckpointError(
                f"{path.parent} holds a network of transformers, such as a backbone from which agents start, not an "
                "agent of agentzoo. Name an agent's folder; `agentzoo hub import` imports a Decision Transformer."
            ) from None
        raise


def parsed_setting(text: str) -> Any:
    """The value of a setting `name=value`: JSON, Python's None, True or False, or else the text itself."""
    try:
        return json.loads(PYTHON.get(text, text))
    except ValueError:  # also a number of more digits than Python reads
        return text


def checked(kind: type[M], what: str, **fields: Any) -> M:
    """A record with these fields; `what` names it in the error.

    Raises:
        ConfigError: a wrong type or a value out of range.
    """
    try:
        return kind(**fields)
    except ValidationError as error:
        raise ConfigError(f"{what} cannot be used: {explain(error)}") from None


def explain(error: ValidationError) -> str:
    """The first three errors that pydantic found, as `field: what is wrong (got value)`."""
    return "; ".join(map(_complaint, error.errors(include_url=False)[:3]))


def _one_line(found: re.Match[str]) -> str:
    return f"[{' '.join(found[0][1:-1].split())}]"


def _complaint(item: ErrorDetails) -> str:
    where = ".".join(str(part) for part in item["loc"])[:100]
    problem = item["msg"].removeprefix("Value error, ")[:300]
    if item["type"] == "extra_forbidden":
        problem += ", or written by a newer agentzoo"
    value = item.get("input")
    if item["type"] == "value_error" and isinstance(value, dict):  # our own message about several fields
        return f"{where}: {problem}" if where else problem
    got = repr(value)
    return f"{where or 'the file'}: {problem} (got {got if len(got) <= 60 else got[:57] + '...'})"
