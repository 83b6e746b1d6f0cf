"""Damaged files of an agent: every case loads or is refused with a typed error, in time, in little memory.

2,000 cases unless AGENTZOO_FUZZ_CASES says more.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentzoo.agent import Agent
from agentzoo.errors import AgentzooError
from agentzoo.hub.verify import check_files
from agentzoo.hub.zoo import describe, summaries
from agentzoo.models.dt import DTConfig
from agentzoo.registry import families
from agentzoo.store.locate import hub_location
from hub.conftest import make_folder

CASES = int(os.environ.get("AGENTZOO_FUZZ_CASES", "2000"))
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)  # explaining traces every line, for minutes
SECONDS = 2.0
MEGABYTES = 500
FILES = ("config.json", "model.safetensors", "train_config.json", "results.json", "index.json")
INDEX = {
    "agents": {"x": {"repo_id": "org/x", "revision": "main"}, "y": {"repo_id": "org/y"}},
    "default": "o/{agent_id}",
}
VALUE = re.compile(rb'(?<=[:\[,])\s*("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null)')
TOKENS = (
    *(b"NaN", b"Infinity", b"-1e999", b"1e308", b"-1", b"0", b"0.5", b"1.0", b"8192", b"65536", b"100000", b"1000000"),
    *(b"2147483648", b"-9223372036854775809", b"18446744073709551616", b"9" * 400, b"9" * 5000, b"1e-320"),
    *(b"null", b"true", b"[]", b"{}", b"[[[[1]]]]", b"[-1]", b'{"a": 1}', b"[" * 3000, b'{"a":' * 3000),
    *(b'""', b'"x"', b'"../../etc"', b'"/dev/zero"', b'"evil:Env-v0"', b'"os.system"', b'"\\u0000"', b'"\\ud800"'),
    *(
        b'"[/red]\\u001b[2J"',
        b'"\xf0\x9f\x92\xa5"',
        b'"\xff\xfe"',
        b'"' + b"a" * 100_000 + b'"',
        b'"F16"',
        b'"I8"',
        b'"dm"',
    ),
)


def damage(content: bytes, seed: int) -> bytes:
    """One change to a file's bytes: a JSON value, a byte, a span, its end, or something else altogether.

    Drawn from a seed, as hypothesis would take longer to choose each number than a case takes to run.
    """
    rng = random.Random(seed)
    kind = rng.choice(("value", "value", "value", "set", "insert", "delete", "repeat", "cut", "other"))
    at, length = rng.randrange(len(content) + 1), rng.randrange(65)
    junk = rng.randbytes(rng.randint(1, 12))
    if kind == "value":
        found = list(VALUE.finditer(content[: 64 * 1024]))
        begin, end = rng.choice(found).span(1) if found else (at, at)
        return content[:begin] + rng.choice(TOKENS) + content[end:]
    return {
        "set": content[:at] + junk[:1] + content[at + 1 :],
        "insert": content[:at] + junk + content[at:],
        "delete": content[:at] + content[at + length :],
        "repeat": content[:at] + content[at : at + length] * 2 + content[at + length :],
        "cut": content[:at],
        "other": junk,
    }[kind]


def damaged(name: str, content: bytes, seeds: list[int], in_header: bool) -> bytes:
    """The weights are changed anywhere, or in their header with its length put right: else few cases get past it."""
    if name == "model.safetensors" and in_header:
        end = 8 + int.from_bytes(content[:8], "little")
        header = damaged("header", content[8:end], seeds, False)
        return len(header).to_bytes(8, "little") + header + content[end:]
    for seed in seeds:
        content = damage(content, seed)
    return content


def readers(name: str, folder: Path) -> list[Callable[[], object]]:
    """Everything that reads this file, short of acting in an environment."""
    observations = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    load = [lambda: Agent.from_pretrained(folder).predict(observations)]
    records = [summaries, lambda: describe("dt-test"), lambda: check_files(folder)]
    return {
        "config.json": [*load, *records],
        "model.safetensors": load,
        "train_config.json": records,  # loading reads it with the same call, after the slow part
        "results.json": records,
        "index.json": [lambda: hub_location("x"), lambda: hub_location("z")],
    }[name]


def complaints(reads: list[Callable[[], object]]) -> list[str]:
    """What was said against the files; any other error is the test's failure."""
    said = []
    for read in reads:
        try:
            read()
        except AgentzooError as error:
            said.append(str(error))
    too_long = [one[:500] for one in said if len(one.encode()) > 5_000]  # a lone surrogate could not be encoded
    assert not too_long
    return said


def peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return max(int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmHWM", "VmRSS")) / 1024  # type: ignore[index]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A whole folder that names no hash of its weights, so that damaged ones are looked at, and an index."""
    zoo = tmp_path_factory.mktemp("fuzz")
    folder = make_folder(zoo / "dt-test", DTConfig(embed_dim=8, n_layers=1, n_heads=1, max_ep_len=50))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "weights_sha256": None}))
    (zoo / "index.json").write_text(json.dumps(INDEX))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTZOO_ZOO", str(zoo))
        patch.setenv("AGENTZOO_INDEX", str(zoo / "index.json"))
        warnings.simplefilter("ignore")
        families()  # the package's own modules, which an unknown name makes it look through
        for name in FILES:
            assert complaints(readers(name, folder)) == []  # undamaged, nothing is wrong with it
        yield zoo


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory as Linux does")
@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_refused_or_read(place: Path, name: str) -> None:
    path = place / name if name == "index.json" else place / "dt-test" / name
    good, reads = path.read_bytes(), readers(name, place / "dt-test")
    seen = {"refused": 0, "read": 0}

    @settings(
        max_examples=CASES // len(FILES),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    @given(st.lists(st.integers(0, 2**32), min_size=1, max_size=3), st.booleans())
    def one(seeds: list[int], in_header: bool) -> None:
        path.write_bytes(damaged(name, good, seeds, in_header))
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        modules, before, began = set(sys.modules), peak_megabytes(), time.process_time()
        said = complaints(reads)
        assert time.process_time() - began < SECONDS
        assert peak_megabytes() - before < MEGABYTES
        assert sorted(set(sys.modules) - modules) == []
        seen["refused" if said else "read"] += 1

    try:
        one()
    finally:
        path.write_bytes(good)
    assert seen["refused"] > CASES // 50  # of CASES // 5: damage does damage
    assert seen["read"] > 0
