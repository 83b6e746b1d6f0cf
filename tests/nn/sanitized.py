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

    def __init__(self, count: int, draw: Any = lambda: random.gauss(0, 1)) -> None:
        self.at = ctypes.c_void_p(C.malloc(max(1, count * ctypes.sizeof(ctypes.c_float))))
        values = ctypes.cast(self.at, ctypes.POINTER(ctypes.c_float))
        for i in range(count):
            values[i] = draw()

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


if __name__ == "__main__":
    random.seed(0)
    loaded = ctypes.CDLL(sys.argv[1])
    scan(loaded)
    if len(sys.argv) > 2:  # one number behind the end, to show that it would be found
        y = Buffer(3)
        loaded.scan_forward(1, 1, 4, 1, *(Buffer(4).at for _ in range(8)), y.at, None)
    print("no fault")
