"""The C files of this folder as one library, compiled for this machine on first use.

Without a C compiler, with AGENTZOO_COMPILE=0, or if the build fails, `library` returns None and PyTorch does the same
work. The library is in the user's cache folder, under a name made from the sources, the compiler and the processor,
with its hash in a file beside it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

import psutil
import torch
from torch import Tensor

from agentzoo.errors import StorageError, warn
from agentzoo.nn.native import selftest
from agentzoo.store.cache import private_folder, require_private
from agentzoo.store.files import sha256, write_atomic

T = TypeVar("T")

SWITCH = "AGENTZOO_COMPILE"
FOLDER = Path(__file__).parent
SOURCES = ("scan.c",)
HEADERS = ("vectors.h",)
_FLAGS = ("-std=gnu11", "-O3", "-shared", "-fPIC", "-w")
_SECONDS = 60  # for a compiler, which usually takes three
_TUNINGS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler takes


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions. None if they are switched off or the build failed, which a warning explains."""
    compiler = find_compiler()
    if compiler is None:
        return None
    try:
        return _load(_built(compiler, private_folder("native")))
    except (OSError, subprocess.SubprocessError) as error:
        warn(f"agentzoo runs its scan in PyTorch, which is slower: {_why(error)} {SWITCH}=0 silences this.", 2)
        return None


def find_compiler() -> str | None:
    """The C compiler; None without one, or if compiling is switched off."""
    named = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    if os.environ.get(SWITCH, "1") == "0":
        return None
    return next((found for name in named if name and (found := shutil.which(name))), None)


def compiles(tensor: Tensor) -> bool:
    """Whether the compiled functions take this tensor: float32 on a CPU, and there is a compiler."""
    return tensor.is_cpu and tensor.dtype == torch.float32 and library() is not None


def address(tensor: Tensor) -> ctypes.c_void_p:
    """The address of its first number. The tensor must be contiguous and outlive the call.

    Raises:
        ValueError: it is on another device, which C cannot read.
    """
    if not tensor.is_cpu:
        raise ValueError(f"the C code reads tensors on the CPU; one of its inputs is on {tensor.device}.")
    return ctypes.c_void_p(tensor.data_ptr())


def share(rows: int, threads: int, run: Callable[[slice], T]) -> list[T]:
    """Run on slices of `rows`, with at most `threads` threads and those PyTorch uses; the results in order."""
    threads = min(torch.get_num_threads(), rows, threads)
    if threads <= 1:
        return [run(slice(0, rows))]
    edges = [rows * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:  # a call of C lets other threads run
        return list(pool.map(run, map(slice, edges[:-1], edges[1:])))


def _built(compiler: str, folder: Path) -> Path:
    """The library in `folder`, compiled if it is missing or incomplete.

    Raises:
        StorageError: others may write to the folder, or it cannot be written. SubprocessError: the compiler failed or
            took too long.
    """
    texts = [(FOLDER / name).read_text() for name in (*SOURCES, *HEADERS)]
    what = (*texts, compiler, *_FLAGS, platform.machine(), _processor())
    file = folder / f"scan-{hashlib.sha256('|'.join(what).encode()).hexdigest()[:16]}.so"
    hash_file = file.with_suffix(".sha256")
    if file.is_file() and hash_file.is_file():
        require_private(file)
        require_private(hash_file)
        if hash_file.read_text() == sha256(file):
            return file
    print(f"agentzoo: compiling its scan in C into {file} (once; {SWITCH}=0 switches it off)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as work:  # two processes may do this at once
        made = Path(work) / file.name
        _compile(compiler, made)
        content = made.read_bytes()
        write_atomic(file, content, mode=0o644)  # whatever the umask: nobody else may write to it
    write_atomic(hash_file, hashlib.sha256(content).hexdigest(), mode=0o644)
    return file


def _compile(compiler: str, made: Path) -> None:
    sources = [str(FOLDER / name) for name in SOURCES]
    for tuning in _TUNINGS:
        command = [compiler, *_FLAGS, *tuning, *sources, "-o", str(made), "-lm"]
        code, output = _run(command, made.with_suffix(".log"))
        if code == 0:
            return
    raise subprocess.CalledProcessError(code, command, stderr=output)


def _run(command: list[str], log: Path) -> tuple[int, str]:
    """Exit code and messages. The command and its children are killed if they take too long."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            code = process.wait(timeout=_SECONDS)
        except BaseException:
            for one in psutil.Process(process.pid).children(recursive=True):
                one.kill()
            process.kill()
            process.wait()
            raise
    return code, log.read_text(errors="replace")


def _load(file: Path) -> ctypes.CDLL:
    """The library in `file`, if it computes what PyTorch computes; otherwise the file is deleted."""
    flushes = _flushes_denormals()
    loaded = ctypes.CDLL(str(file))
    if _flushes_denormals() != flushes:  # a library built with -ffast-math sets this for the thread that loads it
        torch.set_flush_denormal(flushes)
    wrong = selftest.fault(loaded)
    if wrong is not None:
        file.unlink(missing_ok=True)
        raise StorageError(f"{file} was compiled wrongly: {wrong}. Try another compiler (CC=...).")
    return loaded


def _flushes_denormals() -> bool:
    """Whether this thread rounds denormal numbers to 0."""
    return sys.float_info.min / 2.0 == 0.0


def _why(error: Exception) -> str:
    """The error as a sentence."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the C compiler took more than {error.timeout:g} seconds."
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.splitlines() or ["without a message"]
        return f"the C compiler failed ({lines[0][:200]})."
    return str(error)


def _processor() -> str:
    """A text that differs between processors, for machines that share a home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
