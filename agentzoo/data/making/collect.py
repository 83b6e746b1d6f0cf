"""Collect episodes of behaviour policies, in parallel and reproducibly.

The unit of work is a block of `BLOCK` episodes. A block depends only on the seed and its number, so the data does not
depend on the number of worker processes. A dataset is the first complete episodes, in order, that reach the requested
number of steps, so short episodes are not favoured. A `BlockRunner` (`agentzoo.data.making.runners`) plays a block.

Workers are spawned, so a script must call `collect` (or `build`) with `workers > 1` under `if __name__ == "__main__":`.
Otherwise every worker runs the script again, and ends.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agentzoo.errors import DataError
from agentzoo.parent import end_with_parent

BLOCK = 32
EVALUATED = 10_000  # the smallest reset seed of evaluation episodes
BEYOND = 1_000_000_000
EnvOptions = tuple[tuple[str, Any], ...]  # keyword arguments of `gymnasium.make`, as pairs so that they can be hashed


@dataclass(frozen=True)
class Rollout:
    """One episode: observations (L+1, ...), an array or a dict of arrays; other arrays (L, ...); and its seed.

    `seed` is the environment's reset seed, None if it was not recorded.
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


def reset_seed(seed: int, episode: int) -> int:
    """The reset seed of episode `episode` of a dataset, which records it.

    No evaluation resets an environment with it: see `evaluation.seeds`. Evaluations use numbers from `EVALUATED` on, so
    larger numbers of datasets are moved beyond those of all evaluation seeds below 99,999.
    """
    number = 1_000_003 * seed + episode
    return number if number < EVALUATED else number + BEYOND


def collect(
    runner: BlockRunner,
    steps: int,
    seed: int,
    workers: int,
    on_episode: Callable[[int], None] = lambda _: None,
    first: int = 0,
) -> Iterator[Rollout]:
    """Episodes `first`, `first + 1`, ... until their steps reach `steps`; `on_episode` receives the steps of each.

    At most two blocks per worker are in flight, so memory does not grow with `steps`.

    Raises:
        DataError: a worker ended before its block did.
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
            with _one_thread():  # restored after each block, for the caller
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
        except BrokenProcessPool as error:
            raise DataError(
                "a worker process ended while it played episodes. If memory ran out, use fewer workers (--workers). A "
                'script must start workers under `if __name__ == "__main__":`.'
            ) from error
        finally:
            for future in pending:
                future.cancel()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one torch thread, as in the workers, so that sums run in the same order and give the same bits."""
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
    end_with_parent()


def only_last(length: int, value: bool) -> NDArray[np.bool_]:
    """(L,) flags: `value` on the last step, False on all others."""
    flags = np.zeros(length, dtype=bool)
    flags[-1] = value
    return flags
