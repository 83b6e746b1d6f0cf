"""The base of every record that is read from a file: configs, recipes, results."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from agentzoo.errors import ConfigError

M = TypeVar("M", bound="Config")


class Config(BaseModel):
    """A frozen, checked record: exact types, known keys only, no NaN, to JSON and back."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        """The record as indented JSON, keys in the order they are declared."""
        return self.model_dump_json(indent=2) + "\n"

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


def explain(error: ValidationError) -> str:
    """The first three complaints of pydantic as `field: what is wrong (got value)`."""
    lines = []
    for item in error.errors(include_url=False)[:3]:
        where = ".".join(str(part) for part in item["loc"])[:100] or "the file"
        got = repr(item.get("input"))
        got = got if len(got) <= 60 else got[:57] + "..."
        newer = ", or a newer agentzoo's" if item["type"] == "extra_forbidden" else ""
        lines.append(f"{where}: {item['msg'][:300]}{newer} (got {got})")
    return "; ".join(lines)
