"""Evaluate in several processes of one thread each, with the same episodes and seeds as in one process.

On Linux the processes are forked, so they know every environment registered in this process. On other systems they are
spawned and know the environments of installed packages.
"""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from agentzoo.agent import Agent
from agentzoo.envs.env_options import options_trusted
from agentzoo.errors import AgentzooError, ConfigError, EvaluationError
from agentzoo.evaluation.environments import open_envs, require_playable, require_positive
from agentzoo.evaluation.rollout import EpisodeResult, OnEpisode, run_seeded
from agentzoo.parent import end_with_parent


def rollout_in_jobs(
    agent: Agent,
    env_id: str,
    episodes: int,
    jobs: int,
    *,
    seed: int = 0,
    n_envs: int = 20,
    trust_env_module: bool = False,
    on_episode: OnEpisode = lambda _: None,
) -> list[EpisodeResult]:
    """Play episodes 0..`episodes`-1 in `jobs` processes, each with a share of the `n_envs` environments.

    Actions are deterministic. The results equal those of one process up to rounding, which depends on the batch size.

    Raises:
        ConfigError: `jobs`, `episodes` or `n_envs` below 1, an agent that is not on the CPU or has a target or goal per
            environment. EvaluationError: a process ended too early. Errors of a process are raised here.
    """
    require_playable(agent, episodes, n_envs)
    require_positive(jobs=jobs)
    if agent.device.type != "cpu":
        raise ConfigError(f"jobs run on the CPU, but this agent is on {agent.device}; use one job or agent.to('cpu').")
    jobs = min(jobs, episodes, n_envs)
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    data, pipes, processes = pickle.dumps(agent), [], []
    trusted = agent.trust_env_options or options_trusted()  # a spawned process does not know what is trusted here
    try:
        for job in range(jobs):
            own, other = context.Pipe(duplex=False)
            numbers = range(job, episodes, jobs)
            envs = n_envs // jobs + (job < n_envs % jobs)
            arguments = (data, env_id, numbers, envs, seed, trust_env_module, trusted, other)
            process = context.Process(target=_play, args=arguments, daemon=True)  # type: ignore[attr-defined]
            process.start()
            processes.append(process)
            other.close()  # only the process keeps it open, so its end is detected
            pipes.append(own)
        return _collect(agent, pipes, on_episode)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _play(
    data: bytes,
    env_id: str,
    numbers: range,
    n_envs: int,
    seed: int,
    trust_env_module: bool,
    trust_env_options: bool,
    pipe: Connection,
) -> None:
    """Run one process: it sends each episode's result, then the source of rewards, or an error."""
    torch.set_num_threads(1)
    end_with_parent()
    try:
        agent: Agent = pickle.loads(data)  # a frozen network opens a session of one thread
        agent.trust_env_options = trust_env_options
        count = min(n_envs, len(numbers))
        with open_envs(agent, env_id, count, trust_env_module=trust_env_module) as envs:
            run_seeded(agent, envs, len(numbers), seed, on_episode=pipe.send, numbers=numbers)
        pipe.send(agent.rtg_source)
    except AgentzooError as error:
        pipe.send(error)
    except BaseException as error:
        pipe.send(EvaluationError(f"a job of the evaluation failed with {type(error).__name__}: {error}"))
    pipe.close()


def _collect(agent: Agent, pipes: list[Connection], on_episode: OnEpisode) -> list[EpisodeResult]:
    found: list[EpisodeResult] = []
    running: list[Any] = list(pipes)
    while running:
        ready: list[Any] = wait(running)
        for pipe in ready:
            try:
                message: Any = pipe.recv()
            except EOFError:
                raise EvaluationError(
                    "a process of the evaluation ended early, killed or out of memory. Use fewer --jobs or --envs."
                ) from None
            if isinstance(message, EpisodeResult):
                found.append(message)
                on_episode(message)
            elif isinstance(message, BaseException):
                raise message
            else:
                agent._rewards.source = message  # as after a rollout in this process
                running.remove(pipe)
    return sorted(found, key=lambda one: one.seed or 0)
