"""Numbers and tensors of a stranger's checkpoint: what is not of the expected kind ends in one of our errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.models.dt import DTConfig
from agentzoo.types import explain


def number(tree: Mapping[str, Any], name: str, default: float) -> float:
    """A number of a stranger's settings.

    Raises:
        ConfigError: it is something else.
    """
    value = tree.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e9:
        raise ConfigError(f"the checkpoint has {name}={str(value)[:60]!r}, which is no usable number.")
    return value


def count(tree: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number of a stranger's settings; raises as `number`."""
    value = number(tree, name, default)
    if value != int(value):
        raise ConfigError(f"the checkpoint has {name}={value}, which is no whole number.")
    return int(value)


def shape(tensors: Mapping[str, Any], name: str, dimensions: int) -> tuple[int, ...]:
    """Of a tensor that must be there.

    Raises:
        CheckpointError: it is not, or has other dimensions.
    """
    value = tensors.get(name)
    if not isinstance(value, Tensor) or value.dim() != dimensions:
        had = "lacks it" if value is None else "has something else"
        raise CheckpointError(f"the checkpoint needs {name} with {dimensions} dimensions, and {had}.")
    return tuple(value.shape)


def dt_config(**fields: Any) -> DTConfig:
    """The sizes of our network.

    Raises:
        ConfigError: one that ours cannot have.
    """
    try:
        return DTConfig(**fields)
    except ValidationError as error:
        raise ConfigError(f"the checkpoint's sizes cannot be used: {explain(error)}") from None


def floats(found: Mapping[Any, Any]) -> dict[str, Tensor]:
    """The tensors that are numbers, as float32."""
    return {
        name: value.float()
        for name, value in found.items()
        if isinstance(name, str) and isinstance(value, Tensor) and not value.is_complex()
    }
