"""Tensors in safetensors files, loaded strictly or not at all. No pickle."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from agentzoo.errors import CheckpointError
from agentzoo.store.files import CONFIG, write_atomic
from agentzoo.store.int8 import narrow_names, scale_of, widened

MAX_HEADER = 10 * 1024 * 1024  # bytes; safetensors itself allows 100 MB
MAX_NAME, MAX_DIMENSIONS = 200, 8  # of one tensor
DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write `tensors` as one safetensors file, atomically.

    Equal tensors give equal bytes, unless there are two entries of metadata, which the library writes in any order.
    """
    plain = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    write_atomic(path, to_bytes(plain, metadata=dict(metadata) if metadata else None))


def read_tensors(path: Path, sha256: str | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor of a safetensors file, and its metadata. The file is read once.

    Args:
        path: the file.
        sha256: the hex digest that its content must have.

    Raises:
        CheckpointError: the file is missing, truncated or has another hash, or its header does not fit it.
    """
    check_header(path)
    try:
        content = path.read_bytes()
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise CheckpointError(f"{path} is not the file {CONFIG} names (its sha256 differs). Fetch it again.")
        return from_bytes(content), _metadata(content)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{path} is broken: {error}. Fetch or train it again.") from error


def _metadata(content: bytes) -> dict[str, str]:
    """The `__metadata__` of a safetensors file with a valid header."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")].decode())
    return dict(header.get("__metadata__") or {})


def check_header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> (dtype, shape) of every tensor. No tensor is allocated.

    Raises:
        CheckpointError: as `read_tensors`.
    """
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise CheckpointError(f"{path} is not a regular file.")
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
                raise CheckpointError(
                    f"{path} is truncated or not a safetensors file: {size} bytes, header of {length}."
                )
            header = json.loads(file.read(length).decode())  # `json.loads` of bytes may guess UTF-16
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} has no readable header: {error}.") from None
    if 2 * size > memory():  # the file and its tensors
        raise CheckpointError(
            f"{path} holds {size:,} bytes, and reading it takes twice as many: this machine has {memory():,} of memory."
        )
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} has a header that is not a JSON object.")
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            shape = tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            plain = len(shape) <= MAX_DIMENSIONS and len(name) <= MAX_NAME and name.isprintable()
            whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
            if not plain or not whole or not begin <= end <= size - 8 - length:
                raise ValueError(f"shape {shape}, bytes {begin!r} to {end!r} of {size - 8 - length}")
            if entry["dtype"] not in DTYPES:
                raise ValueError(f"dtype {entry['dtype']!r}")
            found[name] = (entry["dtype"], shape)
            spans.append((begin, end))
        except (KeyError, TypeError, ValueError) as error:
            problem = str(error)[:200]
            raise CheckpointError(f"{path}: entry {name[:80]!r} of the header cannot be used: {problem}.") from None
    spans.sort()
    for (_, before), (after, _) in itertools.pairwise(spans):
        if after < before:
            raise CheckpointError(f"{path}: two tensors of the header overlap at byte {after}.")
    used = 8 + length + (spans[-1][1] if spans else 0)
    if used != size:
        raise CheckpointError(f"{path} holds {size:,} bytes, its header describes {used:,}.")
    return found


def fingerprint(module: torch.nn.Module) -> str:
    """Hex digest of a network's state dict, in its current precision."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def memory() -> float:
    """Bytes of this machine's memory; infinite if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def check_fits(module: torch.nn.Module, path: Path) -> None:
    """Compare the header at `path` with `module`, which may be on "meta": no tensor is read.

    An int8 matrix needs its scale (`store.int8`).

    Raises:
        CheckpointError: names the tensors that are missing, unknown, or of another shape or type.
    """
    header = check_header(path)
    expected = module.state_dict()
    scaled = narrow_names({name: kind for name, (kind, _) in header.items()}, "I8")
    scales = {name: header.pop(scale_of(name)) for name in scaled}
    both = sorted(set(expected) & set(header))
    problems = {
        "missing": sorted(set(expected) - set(header)),
        "not expected": sorted(set(header) - set(expected)),
        "of another shape": [
            f"{name} {header[name][1]} instead of {tuple(expected[name].shape)}"
            for name in both
            if header[name][1] != tuple(expected[name].shape)
        ]
        + [
            f"{scale_of(name)} {kind} {shape} instead of F32 {(*header[name][1][:1], 1)}"
            for name, (kind, shape) in scales.items()
            if len(header[name][1]) != 2 or (kind, shape) != ("F32", (header[name][1][0], 1))
        ],
    }
    misfit = "; ".join(f"{what} {first_names(names)}" for what, names in problems.items() if names)
    if misfit:
        raise CheckpointError(f"{path} does not fit its config: {misfit}.")
    kinds = sorted({header[n][0] for n in set(expected) - set(scaled)} - {"F32", "F16", "BF16"})
    if kinds:
        raise CheckpointError(
            f"{path} holds tensors of type {', '.join(kinds)}; weights are F32, F16, BF16, or I8 beside a scale."
        )


def load_strict(module: torch.nn.Module, path: Path, sha256: str | None = None) -> dict[str, torch.dtype]:
    """Fill `module` from `path`: every name and shape must match. 8-bit and 16-bit tensors are widened.

    Args:
        module: the network.
        path: the file.
        sha256: the hex digest that the file's content must have.

    Returns:
        The types of the tensors in the file, by name; those of scales are left out.

    Raises:
        CheckpointError: names the tensors that do not fit (see `check_fits`) or are not finite, or the hash differs.
    """
    check_fits(module, path)
    expected = module.state_dict()
    stored, _ = read_tensors(path, sha256)
    tensors = widened(stored)
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != {
        name: tuple(tensor.shape) for name, tensor in expected.items()
    }:
        raise CheckpointError(f"{path} changed while it was read. Load it again.")
    broken = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if broken:
        raise CheckpointError(f"{path} holds non-finite numbers in {first_names(broken)}.")
    module.load_state_dict({name: tensor.to(expected[name].dtype) for name, tensor in tensors.items()})
    return {name: stored[name].dtype for name in tensors}


def first_names(names: list[str], most: int = 5, between: str = ", ") -> str:
    """The first `most` names, and the number of the others."""
    return between.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
