"""Read numbers and tensors of an untrusted checkpoint; wrong types raise errors of agentzoo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from agentzoo.errors import CheckpointError, ConfigError
from agentzoo.models.dt import DTConfig
from agentzoo.types import explain


def number(tree: Mapping[str, Any], name: str, default: float) -> float:
    """A number from untrusted settings.

    Raises:
        ConfigError: not a usable number.
    """
    value = tree.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e9:
        raise ConfigError(f"the checkpoint has {name}={str(value)[:60]!r}, which is not a usable number.")
    return value


def count(tree: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number from untrusted settings; raises as `number`."""
    value = number(tree, name, default)
    if value != int(value):
        raise ConfigError(f"the checkpoint has {name}={value}, which is not a whole number.")
    return int(value)


def shape(tensors: Mapping[str, Any], name: str, dimensions: int) -> tuple[int, ...]:
    """The shape of a required tensor.

    Raises:
        CheckpointError: it is missing or has another number of dimensions.
    """
    value = tensors.get(name)
    if value is None:
        raise CheckpointError(f"the checkpoint lacks {name}, a tensor with {dimensions} dimensions.")
    if not isinstance(value, Tensor) or value.dim() != dimensions:
        had = f"{value.dim()} dimensions" if isinstance(value, Tensor) else f"the type {type(value).__name__}"
        raise CheckpointError(f"{name} of the checkpoint must be a tensor with {dimensions} dimensions; it has {had}.")
    return tuple(value.shape)


def dt_config(**fields: Any) -> DTConfig:
    """The config of our network with these sizes.

    Raises:
        ConfigError: a size is not supported.
    """
    try:
        return DTConfig(**fields)
    except ValidationError as error:
        raise ConfigError(f"the checkpoint's sizes cannot be used: {explain(error)}") from None


def floats(found: Mapping[Any, Any]) -> dict[str, Tensor]:
    """All real-valued tensors, as float32."""
    return {
        name: value.float()
        for name, value in found.items()
        if isinstance(name, str) and isinstance(value, Tensor) and not value.is_complex()
    }
