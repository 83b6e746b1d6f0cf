"""Rolling behaviour policies out into episodes, in parallel and reproducibly.

The unit of work is a block of `BLOCK` episodes stepped side by side through one batched policy call. A block depends
on the seed and its number only, so the data does not depend on how many worker processes there are; and a dataset is
the first whole episodes, in order, that reach the asked number of steps, so short ones are not favoured.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK = 32


@dataclass(frozen=True)
class Rollout:
    """One finished episode: (L+1, ...) observations (an array or a dict of them), (L, ...) the rest, and its seed."""

    seed: int
    observations: Any
    actions: NDArray[np.generic]
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rewards)


class BlockRunner(Protocol):
    """Runs episodes `first .. first + count - 1` of the dataset with this seed; must be picklable."""

    def __call__(self, seed: int, first: int, count: int) -> list[Rollout]: ...


def episode_seed(seed: int, episode: int) -> int:
    """What the environment of episode `episode` is reset with; recorded in the dataset."""
    return 1_000_003 * seed + episode


def collect(
    runner: BlockRunner,
    steps: int,
    seed: int,
    workers: int,
    on_episode: Callable[[int], None] = lambda _: None,
) -> Iterator[Rollout]:
    """Episodes in order until their steps reach `steps`; `on_episode` hears the steps of each.

    At most two blocks a worker are in flight, so memory does not grow with `steps`.
    """
    total = 0
    for block in _blocks(runner, seed, workers):
        for rollout in block:
            total += len(rollout)
            on_episode(len(rollout))
            yield rollout
            if total >= steps:
                return


def _blocks(runner: BlockRunner, seed: int, workers: int) -> Iterator[list[Rollout]]:
    if workers <= 1:
        first = 0
        while True:
            yield runner(seed, first, BLOCK)
            first += BLOCK
    # spawn: forking a process that has run torch's thread pool can deadlock
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        submit = partial(pool.submit, runner, seed)
        pending: list[Future[list[Rollout]]] = [submit(i * BLOCK, BLOCK) for i in range(2 * workers)]
        first = len(pending) * BLOCK
        try:
            while True:
                yield pending.pop(0).result()
                pending.append(submit(first, BLOCK))
                first += BLOCK
        finally:
            for future in pending:
                future.cancel()


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@dataclass(frozen=True)
class PolicyRunner:
    """Blocks of a SAC or TQC policy: `env_id` stepped until termination or truncation."""

    env_id: str
    policy: str
    deterministic: bool = False

    def __call__(self, seed: int, first: int, count: int) -> list[Rollout]:
        """Step `count` environments side by side; each drops out of the batch when its episode ends."""
        envs, policy = _policy_envs(self.env_id, self.policy, count)
        seeds = [episode_seed(seed, first + i) for i in range(count)]
        noise = [np.random.default_rng(s) for s in seeds]
        observations = [[env.reset(seed=s)[0]] for env, s in zip(envs, seeds, strict=False)]
        actions: list[list[Any]] = [[] for _ in range(count)]
        rewards: list[list[float]] = [[] for _ in range(count)]
        ended = [(False, False)] * count
        live = list(range(count))
        size = envs[0].action_space.shape
        while live:
            draws = None if self.deterministic else np.stack([noise[i].standard_normal(size) for i in live])
            chosen = policy.act(np.stack([observations[i][-1] for i in live]), draws)
            for i, action in zip(list(live), chosen, strict=True):
                obs, reward, terminated, truncated, _ = envs[i].step(action)
                observations[i].append(obs)
                actions[i].append(action)
                rewards[i].append(float(reward))
                if terminated or truncated:
                    ended[i] = (bool(terminated), bool(truncated))
                    live.remove(i)
        return [
            Rollout(
                seed=seeds[i],
                observations=np.stack(observations[i]),
                actions=np.stack(actions[i]),
                rewards=np.asarray(rewards[i]),
                terminations=_only_last(len(rewards[i]), ended[i][0]),
                truncations=_only_last(len(rewards[i]), ended[i][1]),
            )
            for i in range(count)
        ]


_cached: dict[tuple[str, str], tuple[list[Any], Any]] = {}


def _policy_envs(env_id: str, policy: str, count: int) -> tuple[list[Any], Any]:
    """The environments and the policy of this process, made once."""
    import gymnasium as gym

    from agentzoo.data.policies import load_policy

    if (env_id, policy) not in _cached:
        envs = [gym.make(env_id, disable_env_checker=True) for _ in range(count)]
        _cached[env_id, policy] = (envs, load_policy(policy, envs[0]))
    envs, loaded = _cached[env_id, policy]
    envs.extend(gym.make(env_id, disable_env_checker=True) for _ in range(count - len(envs)))
    return envs, loaded


def _only_last(length: int, value: bool) -> NDArray[np.bool_]:
    flags = np.zeros(length, dtype=bool)
    flags[-1] = value
    return flags
