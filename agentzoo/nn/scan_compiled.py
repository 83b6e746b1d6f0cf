"""The selective scan for float32 on a CPU as a small C library, compiled for this machine when it is first needed.

Where there is no C compiler, or AGENTZOO_COMPILE=0, `library` gives None and `nn/scan.py` keeps to PyTorch. The library
lies in the user's cache folder, under a name that depends on the source, the compiler and the processor.

The tensors are those of `nn/scan.py`, and `base` (N, I) is `decay_base` of A.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

SWITCH = "AGENTZOO_COMPILE"
SOURCE = Path(__file__).with_name("scan.c")
_FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-w")
_TUNINGS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler takes
_WORTH_A_THREAD = 1 << 16  # numbers of x; fewer are done before a thread has started


@cache
def library() -> ctypes.CDLL | None:
    """The compiled scan, or None where it is switched off or cannot be had."""
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


def forward(x: Tensor, delta: Tensor, base: Tensor, B: Tensor, C: Tensor, D: Tensor, z: Tensor, bias: Tensor) -> Tensor:
    """y (B, L, I), without gradients.

    Raises:
        ValueError: shapes that do not belong together; C would read what lies behind a tensor.
    """
    _require_shapes(x, base, (delta, z), (B, C), (D, bias))
    x, delta, base, B, C, D, z, bias = (t.contiguous() for t in (x, delta, base, B, C, D, z, bias))
    y = torch.empty_like(x)

    def run(rows: slice) -> None:
        _call("scan_forward", len(base), x[rows], delta[rows], base, B[rows], C[rows], D, z[rows], bias, y[rows])

    _share(x, run)
    return y


def backward(
    grad: Tensor,
    A: Tensor,
    x: Tensor,
    delta: Tensor,
    base: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    z: Tensor,
    bias: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients of x, delta, A, B, C, D, z and bias, given `grad` (B, L, I), that of y.

    Raises:
        ValueError: as `forward`.
    """
    _require_shapes(x, base, (delta, z, grad), (B, C), (D, bias))
    x, delta, base, B, C, D, z, bias = (t.contiguous() for t in (x, delta, base, B, C, D, z, bias))
    grad, slopes = grad.contiguous(), A.transpose(0, 1).contiguous()
    gx, gdelta, gB, gC, gz = (torch.empty_like(tensor) for tensor in (x, delta, B, C, z))

    def run(rows: slice) -> tuple[Tensor, ...]:
        gA, gD, gbias = (torch.zeros_like(tensor) for tensor in (slopes, D, bias))
        inputs = (x[rows], delta[rows], base, slopes, B[rows], C[rows], D, z[rows], bias, grad[rows])
        gradients = (gx[rows], gdelta[rows], gA, gB[rows], gC[rows], gD, gz[rows], gbias)
        _call("scan_backward", len(base), *inputs, *gradients)
        return gA, gD, gbias

    gA, gD, gbias = (torch.stack(parts).sum(0) for parts in zip(*_share(x, run), strict=True))
    return gx, gdelta, gA.transpose(0, 1), gB, gC, gD, gz, gbias


def _require_shapes(
    x: Tensor, base: Tensor, long: Iterable[Tensor], narrow: Iterable[Tensor], wide: Iterable[Tensor]
) -> None:
    windows, length, width = x.shape
    groups = ((long, (windows, length, width)), (narrow, (windows, length, len(base))), (wide, (width,)))
    wrong = [(tuple(t.shape), shape) for tensors, shape in groups for t in tensors if tuple(t.shape) != shape]
    if wrong or tuple(base.shape) != (len(base), width):
        raise ValueError(f"the compiled scan of x {tuple(x.shape)} got (found, expected) shapes {wrong or base.shape}.")


def _call(name: str, states: int, x: Tensor, *others: Tensor) -> None:
    function = getattr(library(), name)
    if function(*x.shape, states, *(ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, *others))):
        raise MemoryError(f"{name} found no memory for windows of {x.shape[1]} tokens.")


def _share(x: Tensor, run: Callable[[slice], T]) -> list[T]:
    """`run` on slices of the windows of x (B, L, I), one a thread of torch's; what they returned, in order."""
    threads = min(torch.get_num_threads(), len(x), max(1, x.numel() // _WORTH_A_THREAD))
    if threads == 1:
        return [run(slice(0, len(x)))]
    edges = [len(x) * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:  # a call of C lets other threads run
        return list(pool.map(run, map(slice, edges[:-1], edges[1:])))


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentzoo"


def _built(compiler: str, folder: Path) -> Path:
    """The library, compiled into `folder` unless it is there."""
    what = (SOURCE.read_text(), compiler, *_FLAGS, platform.machine(), _processor())
    file = folder / f"scan-{hashlib.sha256('|'.join(what).encode()).hexdigest()[:16]}.so"
    if file.is_file():
        return file
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:  # two processes may do this at once
        made = Path(work) / file.name
        for tuning in _TUNINGS:
            command = [compiler, *_FLAGS, *tuning, str(SOURCE), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, timeout=120)
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
