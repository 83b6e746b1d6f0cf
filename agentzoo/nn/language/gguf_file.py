"""GGUF files: a language model's sizes, tokenizer and weights in one file, as llama.cpp writes it.

The header is read here, with bounds on everything, and compared with the file's size before a number is decoded. Only
the decoding of blocks of 4 or 5 bits comes from the package `gguf`.

Source: github.com/ggml-org/ggml, docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from agentzoo.errors import CheckpointError, printable
from agentzoo.extras import needed
from agentzoo.store.tensors import MAX_NAME, memory

MAX_TENSORS = 10_000
MAX_ENTRIES = 10_000  # in the metadata
MAX_DIMENSIONS = 4
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOAT, _STRING, _ARRAY = 6, 8, 9


class Entry(NamedTuple):
    """One tensor of the header."""

    shape: tuple[int, ...]  # in PyTorch's order: the innermost dimension last
    kind: int  # GGUF's number of the type
    begin: int  # offset in the file, in bytes
    end: int


class GGUF:
    """A file with a valid header."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            CheckpointError: the file is missing, cut or too large for this machine, or its header does not fit it.
            ConfigError: the package `gguf` is not installed.
        """
        self.path = path
        self._package = needed("gguf", "language", "a GGUF file")
        self._content = _read(path)
        try:
            self.metadata, self.tensors = _Header(self._content, self._sizes()).read()
        except (ValueError, struct.error, RecursionError) as error:
            raise CheckpointError(f"{path} is not a usable GGUF file: {error}.") from None

    def sha256(self) -> str:
        """Hex digest of the file as it was read."""
        return hashlib.sha256(self._content).hexdigest()

    def tensor(self, name: str) -> Tensor:
        """The tensor `name`, decoded to float32.

        Raises:
            CheckpointError: it is missing, of a type that cannot be decoded, or not finite.
        """
        if name not in self.tensors:
            raise CheckpointError(f"{self.path} has no tensor {name!r}.")
        entry = self.tensors[name]
        kind = self._package.GGMLQuantizationType(entry.kind)
        rows = np.frombuffer(self._content, np.uint8, entry.end - entry.begin, entry.begin)
        rows = rows.reshape(*entry.shape[:-1], -1)
        try:
            with np.errstate(all="ignore"):  # overflow is found below
                found = self._package.quants.dequantize(rows, kind)
        except NotImplementedError:
            raise CheckpointError(
                f"{self.path}: tensor {name!r} is written as {kind.name}, which the package gguf cannot decode. Take a "
                "file of another type, for example Q4_1, Q8_0 or F16."
            ) from None
        decoded = torch.from_numpy(np.array(found, dtype=np.float32).reshape(entry.shape))
        if not decoded.isfinite().all():
            raise CheckpointError(f"{self.path} holds non-finite numbers in {name!r}.")
        return decoded

    def _sizes(self) -> dict[int, tuple[int, int]]:
        """Type -> numbers in a block, and bytes of a block."""
        return {int(kind): sizes for kind, sizes in self._package.GGML_QUANT_SIZES.items()}


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise CheckpointError(f"{path} is not a regular file.")
        size = path.stat().st_size
        if 2 * size > memory():
            raise CheckpointError(f"{path} holds {size:,} bytes, too many for this machine's memory.")
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from None


class _Header:
    """Reads a header from the start of a file; anything invalid raises ValueError or struct.error."""

    def __init__(self, content: bytes, sizes: dict[int, tuple[int, int]]) -> None:
        self.content, self.sizes = content, sizes
        self.at = 0

    def read(self) -> tuple[dict[str, Any], dict[str, Entry]]:
        """Metadata and tensors."""
        if self.content[:4] != b"GGUF":
            raise ValueError(f"it begins with {self.content[:4]!r}")
        self.at = 4
        version = self._number("I")
        if version not in (2, 3):
            raise ValueError(f"version {version}, 2 and 3 are known")
        tensors, entries = self._number("Q"), self._number("Q")
        if tensors > MAX_TENSORS or entries > MAX_ENTRIES:
            raise ValueError(f"{tensors:,} tensors and {entries:,} entries of metadata")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            self._once(metadata, self._name())
            metadata[self._last] = self._value(self._number("I"))
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment & alignment - 1:
            raise ValueError(f"alignment {printable(alignment)}")
        described: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(tensors):
            self._once(described, self._name())
            described[self._last] = self._described()
        begin = -(-self.at // alignment) * alignment
        found = {name: self._entry(name, begin, alignment, *one) for name, one in described.items()}
        spans = sorted((one.begin, one.end) for one in found.values())
        if any(after < before for (_, before), (after, _) in itertools.pairwise(spans)):
            raise ValueError("two tensors overlap")
        return metadata, found

    def _once(self, known: dict[str, Any], name: str) -> None:
        if name in known:
            raise ValueError(f"two entries are called {name!r}")
        self._last = name

    def _number(self, code: str) -> Any:
        (found,) = struct.unpack_from(f"<{code}", self.content, self.at)
        self.at += struct.calcsize(f"<{code}")
        return found

    def _string(self) -> str:
        length = self._number("Q")
        if length > len(self.content) - self.at:
            raise ValueError(f"a string of {length:,} bytes at byte {self.at}")
        self.at += length
        return self.content[self.at - length : self.at].decode()  # a UnicodeDecodeError is a ValueError

    def _name(self) -> str:
        name = self._string()
        if len(name) > MAX_NAME or not name.isprintable():
            raise ValueError(f"a name {printable(name)!r}")
        return name

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _NUMBERS:
            found = self._number(_NUMBERS[kind])
            return float(str(np.float32(found))) if kind == _FLOAT else found  # 1e-05, not 9.999999747378752e-06
        if kind != _ARRAY:
            raise ValueError(f"a value of type {kind} at byte {self.at}")
        inner, count = self._number("I"), self._number("Q")
        if inner != _STRING and inner not in _NUMBERS:
            raise ValueError(f"an array of type {inner} at byte {self.at}")
        least = 8 if inner == _STRING else struct.calcsize(f"<{_NUMBERS[inner]}")
        if count * least > len(self.content) - self.at:
            raise ValueError(f"an array of {count:,} values at byte {self.at}")
        if inner == _STRING:
            return [self._string() for _ in range(count)]
        found = struct.unpack_from(f"<{count}{_NUMBERS[inner]}", self.content, self.at)
        self.at += count * least
        return list(found)

    def _described(self) -> tuple[tuple[int, ...], int, int]:
        """Shape, type and offset of one tensor."""
        dimensions = self._number("I")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise ValueError(f"tensor {self._last!r} has {dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
        return shape, self._number("I"), self._number("Q")

    def _entry(self, name: str, begin: int, alignment: int, shape: tuple[int, ...], kind: int, offset: int) -> Entry:
        if kind not in self.sizes:
            raise ValueError(f"tensor {name!r} is of type {kind}, which the package gguf does not know")
        count, size = self.sizes[kind]
        if min(shape) < 1 or shape[-1] % count or offset % alignment:
            raise ValueError(f"tensor {name!r} of shape {shape}, type {kind}, offset {offset}")
        length = math.prod(shape) // count * size
        if begin + offset + length > len(self.content):
            raise ValueError(f"tensor {name!r} of shape {shape} ends beyond the file's {len(self.content):,} bytes")
        if 8 * math.prod(shape) > memory():
            raise ValueError(f"tensor {name!r} of shape {shape} is too large for this machine's memory")
        return Entry(shape, kind, begin + offset, begin + offset + length)
