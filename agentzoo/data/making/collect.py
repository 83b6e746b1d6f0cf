"""Rolling behaviour policies out into episodes, in parallel and reproducibly.

The unit of work is a block of `BLOCK` episodes. A block depends on the seed and its number only, so the data does not
depend on how many worker processes there are; and a dataset is the first whole episodes, in order, that reach the
asked number of steps, so short ones are not favoured. What happens inside a block is a `BlockRunner`'s business:
`agentzoo.data.making.runners`.

Workers are spawned, so a script that calls `collect` (or `build`) with `workers > 1` must do so under
`if __name__ == "__main__":`, or every worker would run the script again.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK = 32


@dataclass(frozen=True)
class Rollout:
    """One episode: (L+1, ...) observations (an array or a dict of them), (L, ...) the rest, and its seed.

    `seed` is what the environment was reset with, None where nobody recorded it.
    """

    seed: int | None
    observations: Any
    actions: NDArray[np.generic]
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rewards)


class BlockRunner(Protocol):
    """Runs episodes `first .. first + count - 1` of the dataset with this seed; must be picklable."""

    def __call__(self, seed: int, first: int, count: int) -> list[Rollout]:
        """The episodes, in order."""
        ...


def episode_seed(seed: int, episode: int) -> int:
    """What the environment of episode `episode` is reset with; recorded in the dataset."""
    return 1_000_003 * seed + episode


def collect(
    runner: BlockRunner,
    steps: int,
    seed: int,
    workers: int,
    on_episode: Callable[[int], None] = lambda _: None,
    first: int = 0,
) -> Iterator[Rollout]:
    """Episodes `first`, `first + 1`, ... until their steps reach `steps`; `on_episode` gets the steps of each.

    At most two blocks a worker are in flight, so memory does not grow with `steps`.
    """
    total = 0
    for block in _blocks(runner, seed, workers, first):
        for rollout in block:
            total += len(rollout)
            on_episode(len(rollout))
            yield rollout
            if total >= steps:
                return


def _blocks(runner: BlockRunner, seed: int, workers: int, first: int) -> Iterator[list[Rollout]]:
    if workers <= 1:
        for start in count(first, BLOCK):
            with _one_thread():  # only while a block runs: the caller keeps its own setting
                block = runner(seed, start, BLOCK)
            yield block
    # spawn: forking a process that has run torch's thread pool can deadlock
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker) as pool:
        starts = count(first, BLOCK)
        pending: deque[Future[list[Rollout]]] = deque(
            pool.submit(runner, seed, start, BLOCK) for start in islice(starts, 2 * workers)
        )
        try:
            for start in starts:
                yield pending.popleft().result()
                pending.append(pool.submit(runner, seed, start, BLOCK))
        finally:
            for future in pending:
                future.cancel()


@contextmanager
def _one_thread() -> Iterator[None]:
    """One torch thread: as in the workers, so that sums are added in the same order and the bits agree."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _start_worker() -> None:
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """End this worker when the process that started it is gone: a killed build must not leave workers waiting."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def only_last(length: int, value: bool) -> NDArray[np.bool_]:
    """(L,) flags: `value` on the last step, False before it."""
    flags = np.zeros(length, dtype=bool)
    flags[-1] = value
    return flags
