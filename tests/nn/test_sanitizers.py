"""The C of this package under the address and the undefined-behaviour sanitizer, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentzoo.nn.native import compiled

CC = compiled.find_compiler()
SCRIPT = Path(__file__).with_name("sanitized.py")


def runtime(name: str) -> str:
    """The sanitizer's library, which must be loaded first; empty if the compiler has none."""
    if CC is None:
        return ""
    found = subprocess.run([CC, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
    return found if Path(found).is_absolute() else ""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not runtime("libasan.so"), reason="there is no compiler with sanitizers here"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sanitized") / "library.so"
    sources = [str(compiled.FOLDER / name) for name in compiled.SOURCES]
    flags = ["-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-w", "-fsanitize=address,undefined"]
    subprocess.run([str(CC), *flags, "-fno-sanitize-recover=all", *sources, "-o", str(made), "-lm"], check=True)
    return made


def run(library: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{runtime('libasan.so')}:{runtime('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    command = [sys.executable, str(SCRIPT), str(library), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_no_call_reads_or_writes_past_its_memory(library: Path) -> None:
    done = run(library)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "no fault\n"


def test_one_number_too_far_is_found(library: Path) -> None:
    done = run(library, "break")
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
