"""Calls every C function of a library under sanitizers: python sanitized.py LIBRARY. Run by test_sanitizers.py.

Sizes leave rests of a vector and of a chunk of tokens; every buffer is allocated exactly, so that one number too far is
found. It needs neither PyTorch nor NumPy, whose own memory tricks the sanitizers would report.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import random
import sys
from typing import Any

C = ctypes.CDLL(None)  # whose malloc is the sanitizer's, which was loaded first
C.malloc.restype = ctypes.c_void_p
C.malloc.argtypes = [ctypes.c_size_t]
C.free.argtypes = [ctypes.c_void_p]


class Buffer:
    """Memory of the sanitizer's own malloc, freed at the end."""

    def __init__(self, count: int, half: bool = False, draw: Any = lambda: random.gauss(0, 1)) -> None:
        self.kind = ctypes.c_uint16 if half else ctypes.c_float
        self.at = ctypes.c_void_p(C.malloc(max(1, count * ctypes.sizeof(self.kind))))
        values = ctypes.cast(self.at, ctypes.POINTER(self.kind))
        for i in range(count):
            value = draw()
            values[i] = int.from_bytes(bytes(ctypes.c_float(value))[2:], "little") if half else value

    def free(self) -> None:
        C.free(self.at)


def scan(library: Any) -> None:
    for windows, length, width, states in itertools.product((1, 3), (1, 20, 41), (1, 8, 13), (1, 5)):
        long, narrow, chunks = windows * length * width, windows * length * states, library.scan_chunks(length)
        inputs = [Buffer(count) for count in (long, long)]
        base = Buffer(states * width, draw=lambda: -math.exp(random.gauss(0, 2)))
        rest = [Buffer(count) for count in (narrow, narrow, width, long, width)]
        y, kept = Buffer(long), Buffer(windows * chunks * states * width)
        sizes, call = (windows, length, width, states), [*inputs, base, *rest]
        for states_kept in (None, kept.at):
            assert not library.scan_forward(*sizes, *(one.at for one in call), y.at, states_kept)
        slopes, grad = Buffer(states * width, draw=lambda: -1.0), Buffer(long)
        outputs = [Buffer(n) for n in (long, long, states * width, narrow, narrow, width, long, width)]
        call = [*inputs, base, slopes, *rest, kept, grad, *outputs]
        assert not library.scan_backward(*sizes, *(one.at for one in call))
        for one in {*call, y}:
            one.free()


def fused(library: Any) -> None:
    chance = (ctypes.c_uint64(2**64 - 3), ctypes.c_uint32(2**31), ctypes.c_float(2.0))
    for count, half in itertools.product((1, 8, 21), (False, True)):
        x, residual, out = (Buffer(count, half) for _ in range(3))
        flag = ctypes.c_int(half)
        for added in (None, residual.at):
            library.dropout(ctypes.c_int64(count), *chance, x.at, flag, added, flag, out.at, flag)
        library.gelu(ctypes.c_int64(count), x.at, out.at, flag)
        library.gelu_back(ctypes.c_int64(count), x.at, residual.at, out.at, flag)
        for one in (x, residual, out):
            one.free()
    for (queries, length, start, step), half in itertools.product(
        ((1, 1, 0, 1), (21, 21, 0, 1), (7, 21, 1, 3), (1, 9, 8, 1)), (False, True)
    ):
        rows = 3 * queries
        scores, shares, out = (Buffer(rows * length, half) for _ in range(3))
        flag, factor = ctypes.c_int(half), ctypes.c_float(0.5)
        place = (ctypes.c_int64(0), ctypes.c_int64(rows), queries, length, start, step, factor, *chance)
        assert not library.causal_weights(*place, scores.at, shares.at, out.at, flag)
        assert not library.causal_weights_back(*place, scores.at, shares.at, out.at, flag)
        for one in (scores, shares, out):
            one.free()


if __name__ == "__main__":
    random.seed(0)
    loaded = ctypes.CDLL(sys.argv[1])
    scan(loaded)
    if hasattr(loaded, "gelu"):
        fused(loaded)
    if len(sys.argv) > 2:  # one number behind the end, to show that it would be found
        y = Buffer(3)
        loaded.scan_forward(1, 1, 4, 1, *(Buffer(4).at for _ in range(8)), y.at, None)
    print("no fault")
