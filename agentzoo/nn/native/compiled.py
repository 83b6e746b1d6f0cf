"""The C files of this folder as one library for a CPU, compiled for this machine when it is first needed.

Where there is no C compiler, or AGENTZOO_COMPILE=0, `library` gives None and PyTorch does the same work. The library
lies in the user's cache folder, under a name that depends on the sources, the compiler and the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

SWITCH = "AGENTZOO_COMPILE"
FOLDER = Path(__file__).parent
SOURCES = ("fused.c", "scan.c")
HEADERS = ("vectors.h",)
_FLAGS = ("-std=gnu11", "-O3", "-shared", "-fPIC", "-w")
_SECONDS = 600  # of a compiler that is starved; it usually takes three
_TUNINGS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler takes


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions, or None where that is switched off or they cannot be had."""
    named = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    compiler = next((found for name in named if name and (found := shutil.which(name))), None)
    if os.environ.get(SWITCH, "1") == "0" or compiler is None:
        return None
    try:
        file = _built(compiler, _cache_folder())
        try:
            return ctypes.CDLL(str(file))
        except OSError:  # cut short when the power went
            file.unlink()
            return ctypes.CDLL(str(_built(compiler, file.parent)))
    except (OSError, RuntimeError, subprocess.SubprocessError):  # RuntimeError: there is no home folder
        return None


def compiles(*tensors: Tensor, dtypes: tuple[torch.dtype, ...] = (torch.float32,)) -> bool:
    """Whether the compiled functions are for these tensors: of these types on a CPU, where there is a compiler."""
    return all(tensor.is_cpu and tensor.dtype in dtypes for tensor in tensors) and library() is not None


def address(tensor: Tensor) -> ctypes.c_void_p:
    """Where its first number lies; it must be contiguous and outlive the call.

    Raises:
        ValueError: it lies on another device, where C cannot read.
    """
    if not tensor.is_cpu:
        raise ValueError(f"this network acts on a CPU; one of its inputs is on {tensor.device}.")
    return ctypes.c_void_p(tensor.data_ptr())


def share(rows: int, threads: int, run: Callable[[slice], T]) -> list[T]:
    """`run` on slices of `rows`, at most `threads` and as many as PyTorch uses; what they returned, in order."""
    threads = min(torch.get_num_threads(), rows, threads)
    if threads <= 1:
        return [run(slice(0, rows))]
    edges = [rows * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:  # a call of C lets other threads run
        return list(pool.map(run, map(slice, edges[:-1], edges[1:])))


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentzoo"


def _built(compiler: str, folder: Path) -> Path:
    """The library, compiled into `folder` unless it is there."""
    texts = [(FOLDER / name).read_text() for name in (*SOURCES, *HEADERS)]
    what = (*texts, compiler, *_FLAGS, platform.machine(), _processor())
    file = folder / f"compiled-{hashlib.sha256('|'.join(what).encode()).hexdigest()[:16]}.so"
    if file.is_file():
        return file
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:  # two processes may do this at once
        made = Path(work) / file.name
        sources = [str(FOLDER / name) for name in SOURCES]
        for tuning in _TUNINGS:
            command = [compiler, *_FLAGS, *tuning, *sources, "-o", str(made), "-lm"]
            done = subprocess.run(command, capture_output=True, timeout=_SECONDS)
            if done.returncode == 0:
                break
        done.check_returncode()
        made.replace(file)
    return file


def _processor() -> str:
    """What tells apart machines that share a home folder but not their instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
