"""Ways to damage a file: bytes, values of JSON, cells of CSV, members of npz, arrays of HDF5, counts of GGUF."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["json", "safetensors", "csv", "text", "npz", "hdf5", "gguf"]
VALUE = re.compile(rb'(?<=[:\[,])\s*("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null)')
CELL = re.compile(rb"[^,\n]*")
TOKENS = (
    *(b"NaN", b"Infinity", b"-1e999", b"1e308", b"-1", b"0", b"0.5", b"1.0", b"8192", b"65536", b"100000", b"1000000"),
    *(b"2147483648", b"-9223372036854775809", b"18446744073709551616", b"9" * 400, b"9" * 5000, b"1e-320"),
    *(b"null", b"true", b"[]", b"{}", b"[[[[1]]]]", b"[-1]", b'{"a": 1}', b"[" * 3000, b'{"a":' * 3000),
    *(b'""', b'"x"', b'"../../etc"', b'"/dev/zero"', b'"evil:Env-v0"', b'"os.system"', b'"\\u0000"', b'"\\ud800"'),
    *(b'"[/red]\\u001b[2J"', b'"\xf0\x9f\x92\xa5"', b'"\xff\xfe"', b'"' + b"a" * 100_000 + b'"', b'"F16"', b'"I8"'),
    *(b'"dm"', b'"# x\\n- y"', b"1_000", b"\x00", b'"\\u202e"'),
)
COUNTS = (0, 1, 3, 8, 9, 31, 255, 65_536, 2**31 - 1, 2**32 - 1, 2**40, 2**61, 2**63 - 1, 2**63, 2**64 - 1)
CELLS = (
    *(
        b"",
        b"nan",
        b"inf",
        b"-inf",
        b"-1",
        b"1e400",
        b"9" * 400,
        b"9" * 5000,
        b"0x10",
        b"1_0",
        b"\xd9\xa3",
        b"\xc2\xb2",
    ),
    *(b"\x00", b'"', b'"\n"', b",", b",,,,", b"\r", b"\n", b"a" * 200_000, b"\xff", b" ", b"1.5", b"step", b"None"),
)


@dataclass(frozen=True)
class Reader:
    """A file, how it is damaged, and everything that reads it."""

    name: str
    kind: Kind
    path: Path
    reads: Sequence[Callable[[], object]]


def damaged(kind: Kind, good: bytes, seed: int, case: int) -> bytes:
    """`good` with one to three changes, drawn from `seed` and `case` alone."""
    rng = random.Random(f"{kind} {seed} {case}")
    content = good
    for _ in range(rng.randint(1, 3)):
        content = _change(kind, content, rng)
    return content


def _change(kind: Kind, content: bytes, rng: random.Random) -> bytes:
    if kind == "safetensors" and rng.random() < 0.7:  # in the header, with its length put right
        end = 8 + int.from_bytes(content[:8], "little")
        header = damage_bytes(content[8:end], rng) if end <= len(content) else b""
        return len(header).to_bytes(8, "little") + header + content[end:]
    if kind == "csv" and rng.random() < 0.6:
        return _replaced(CELL, content, rng, CELLS)
    if kind in ("npz", "hdf5") and rng.random() < 0.6:
        try:
            return (_other_npz if kind == "npz" else _other_hdf5)(content, rng)
        except Exception:  # an earlier change broke the file itself
            return damage_bytes(content, rng)
    if kind == "gguf" and content and rng.random() < 0.7:  # the first kilobytes are its header
        at, size = rng.randrange(min(len(content), 3_000)), rng.choice((1, 4, 8))
        return content[:at] + rng.choice(COUNTS).to_bytes(8, "little")[:size] + content[at + size :]
    return damage_bytes(content, rng)


def damage_bytes(content: bytes, rng: random.Random) -> bytes:
    """One change: a JSON value, a byte, a span, the end, or the whole content."""
    kind = rng.choice(("value", "value", "value", "set", "insert", "delete", "repeat", "cut", "other"))
    at, length = rng.randrange(len(content) + 1), rng.randrange(65)
    junk = rng.randbytes(rng.randint(1, 12))
    if kind == "value":
        return _replaced(VALUE, content, rng, TOKENS)
    return {
        "set": content[:at] + junk[:1] + content[at + 1 :],
        "insert": content[:at] + junk + content[at:],
        "delete": content[:at] + content[at + length :],
        "repeat": content[:at] + content[at : at + length] * 2 + content[at + length :],
        "cut": content[:at],
        "other": junk,
    }[kind]


def _replaced(pattern: re.Pattern[bytes], content: bytes, rng: random.Random, others: tuple[bytes, ...]) -> bytes:
    """Replace one match near the start of the file; without a match the content stays."""
    found = list(pattern.finditer(content[: 64 * 1024]))
    group = pattern.groups
    begin, end = rng.choice(found).span(group) if found else (0, 0)
    return content[:begin] + rng.choice(others) + content[end:]


def _odd_array(values: Any, rng: random.Random) -> Any:
    """An array in place of `values`: another type, shape, length or content."""
    import numpy as np

    choices: list[Callable[[], Any]] = [
        lambda: values[: len(values) // 2],
        lambda: values[:0],
        lambda: np.zeros(()),
        lambda: values.reshape(-1),
        lambda: values[..., None],
        lambda: np.concatenate([values, values]),
        lambda: values.astype(np.complex64),
        lambda: values.astype(">f8"),
        lambda: values.astype(np.float16) * 1e9,
        lambda: values.astype(np.int8),
        lambda: np.full(values.shape, np.nan),
        lambda: np.full(values.shape, np.inf),
        lambda: np.full(values.shape, 1e300),
        lambda: np.full(values.shape, 2**62, np.int64),
        lambda: np.full(values.shape, -1, np.int64),
        lambda: np.full(values.shape, 2**63, np.uint64),
        lambda: values.astype("S8"),
        lambda: np.zeros(values.shape, [("x", "f4"), ("y", "i2")]),
        lambda: np.ones(values.shape, bool),
        lambda: np.zeros(values.shape, bool),
        lambda: np.zeros((1,) * 12),
    ]
    return rng.choice(choices)()


def _other_npz(content: bytes, rng: random.Random) -> bytes:
    """An archive with one array changed, renamed or left out."""
    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(sorted(arrays))
    values = arrays.pop(name)
    what = rng.choice(("change", "change", "change", "rename", "drop", "object"))
    if what == "change":
        arrays[name] = _odd_array(values, rng)
    elif what == "rename":
        arrays["\x1b[2J" + name] = values
    elif what == "object":
        arrays[name] = np.array([None, name], dtype=object)
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _other_hdf5(content: bytes, rng: random.Random) -> bytes:
    """A file with one array or group changed, linked elsewhere or left out, or an attribute changed."""
    import h5py
    import numpy as np

    out = io.BytesIO(content)
    with h5py.File(out, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        name = rng.choice(sorted(names))
        what = rng.choice(("change", "change", "change", "drop", "group", "link", "attribute", "text"))
        if what == "attribute":
            file[name].attrs[rng.choice(("id", "seed", "total_steps"))] = rng.choice((-1, 2**60, "x", np.nan))
            return _bytes_of(file, out)
        node = file[name]
        values = node[()] if isinstance(node, h5py.Dataset) else np.zeros((4, 2))
        del file[name]
        if what == "change":
            file[name] = _odd_array(np.asarray(values), rng)
        elif what == "group":
            file.create_group(name)
        elif what == "link":
            file[name] = rng.choice((h5py.SoftLink("/x"), h5py.ExternalLink("/etc/passwd", "/x"), h5py.SoftLink(name)))
        elif what == "text":
            file[name] = ["a", "b"]
        return _bytes_of(file, out)


def _bytes_of(file: Any, out: io.BytesIO) -> bytes:
    file.close()
    return out.getvalue()
