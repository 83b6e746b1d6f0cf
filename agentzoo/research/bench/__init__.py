"""Speed relative to a peer that does the same work in the same run: `agentzoo research bench BENCHMARK`.

A file `bench/<benchmark>.py` with `run(runs) -> list[Figure]` is found by its name.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

# The published training of a Decision Transformer, for benchmarks: windows are longer than in our recipes.
PUBLISHED = ("data.context=20", "train.batch_size=64", "model.dropout=0.1")
ROW = 20  # actions in a row


class Figure(NamedTuple):
    """One comparison: medians in milliseconds and their ratio; below 1 we are faster."""

    figure: str
    ours: float
    peer: float
    ratio: float
    unit: str = "ms"  # MB of memory in `bench grid`


def compare(
    figure: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    runs: int,
    scale: float = 1.0,
    row: int = 1,
) -> Figure:
    """Time both in turn, A B A B, after a warm-up, so that drift affects both.

    Args:
        runs: timed calls of each.
        scale: factor of the milliseconds.
        row: timed calls of one side before the other's turn. An action is called again and again in an episode, so
            actions are timed in rows (`ROW`). The first call of a row is not timed: the other side's weights fill the
            caches.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for work in (ours, peer):
        work()
    for _ in range(math.ceil(runs / row)):
        for kept, work in zip(times, (ours, peer), strict=True):
            if row > 1:
                work()
            for _ in range(row):
                began = time.perf_counter()
                work()
                kept.append((time.perf_counter() - began) * 1e3 * scale)
    mine, theirs = median(times[0]), median(times[1])
    return Figure(figure, mine, theirs, mine / theirs)
