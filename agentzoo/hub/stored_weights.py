"""The types in which a staged agent's weights are stored: float16, or 8-bit integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from torch import Tensor

from agentzoo.config import AgentConfig
from agentzoo.errors import CheckpointError
from agentzoo.record import read_record
from agentzoo.store.files import CONFIG, WEIGHTS, sha256, write_atomic
from agentzoo.store.int8 import large, narrowed, widened
from agentzoo.store.tensors import read_tensors, save_tensors
from agentzoo.training.finetune import NORMALIZATION

Stored = Literal["float16", "int8"]


def store_weights(
    folder: Path, weights: Stored | None, max_bytes: int, on_progress: Callable[[str], None] = lambda _: None
) -> None:
    """Convert an agent's weights in place; observation mean and std keep their precision.

    Args:
        weights: "int8" stores large matrices as in `store.int8` and other tensors as float16. None is "float16", or
            "int8" if that is larger than `max_bytes`.
        max_bytes: the largest size of the file.

    Raises:
        CheckpointError: the file is still larger than `max_bytes`, or a number is too large for float16.
    """
    tensors = widened(read_tensors(folder / WEIGHTS)[0])
    for kind in (weights,) if weights else ("float16", "int8"):
        on_progress(f"storing weights as {kind}")
        size = _write(folder, tensors, kind)
        if size <= max_bytes:
            return
    raise CheckpointError(
        f"the weights take {size:,} bytes as {kind}, but the limit is {max_bytes:,}; `agentzoo hub stage --max-mb` "
        "raises it for your own zoo."
    )


def convert_weights(folder: Path, kind: Stored) -> None:
    """Convert an agent's weights in place, as `store_weights` does, whatever their size.

    Raises:
        CheckpointError: a number is too large for float16.
    """
    _write(folder, widened(read_tensors(folder / WEIGHTS)[0]), kind)


def _write(folder: Path, tensors: Mapping[str, Tensor], kind: Stored) -> int:
    """Write the file of weights, and its hash into the config; returns its size in bytes."""
    save_tensors(folder / WEIGHTS, _converted(tensors, kind, folder / WEIGHTS))
    config = read_record(AgentConfig, folder / CONFIG)
    config = config.model_copy(update={"weights_sha256": sha256(folder / WEIGHTS)})
    write_atomic(folder / CONFIG, config.to_json())
    return (folder / WEIGHTS).stat().st_size


def _converted(tensors: Mapping[str, Tensor], kind: str, path: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name in NORMALIZATION:
            found[name] = value
        elif kind == "int8" and large(value):
            found |= narrowed(name, value)
        else:
            found[name] = value.half()
            if not found[name].isfinite().all():
                raise CheckpointError(f"{path} holds numbers too large for float16, in {name}.")
    return found
