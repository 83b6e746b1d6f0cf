"""The windows from which an agent acts in its own episodes."""

from __future__ import annotations

import torch

from agentzoo.acting.history import AgentState, newest, to_batch
from agentzoo.acting.modes import MemoryState
from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.evaluation.environments import open_envs, require_playable
from agentzoo.evaluation.rollout import is_deterministic, run_seeded
from agentzoo.types import Batch

MAX_BYTES = 2**30  # of observations in memory; a game's windows of one step take 1.4 MB in five environments
MAX_ENVS = 100  # opened at a time; each may hold a simulator


def decision_windows(
    agent: Agent,
    episodes: int = 5,
    seed: int = 0,
    most: int | None = None,
    *,
    whole: bool = False,
    trust_env_module: bool = False,
) -> Batch:
    """The windows of `episodes` episodes, in the order of their steps; at most `most`, evenly spaced.

    More than `MAX_ENVS` episodes are played in turns.

    The newest step holds the agent's own action, which no network reads. Actions are sampled if the agent's recipe
    evaluates it so. Windows that would take more than `MAX_BYTES` are thinned while the episodes are played.

    Args:
        whole: windows of up to K steps, also if the agent reads fewer of them (`agent.history`).

    Raises:
        ConfigError: fewer than one episode, more than a seed has, or an agent without an environment.
    """
    if episodes < 1:
        raise ConfigError(f"windows come from at least one episode, got {episodes}.")
    require_playable(agent, episodes, 1)
    history = None if whole else agent.history
    kept: list[Batch] = []
    step, stride = 0, 1

    def keep(state: AgentState | MemoryState) -> None:
        nonlocal step, stride
        assert isinstance(state, AgentState)
        if step % stride == 0:
            read = state if history is None else newest(state, history)
            kept.append(to_batch(read, agent.config.rtg_scale, torch.device("cpu")))
            if len(kept) * kept[0].observations.nbytes > MAX_BYTES:  # the first step has the most environments
                kept[:], stride = kept[::2], 2 * stride
        step += 1

    mode = agent.acting
    agent.acting = "window"  # recurrent acting has no windows
    try:
        with open_envs(agent, None, min(episodes, MAX_ENVS), trust_env_module=trust_env_module) as envs:
            agent.set_random_seed(seed)
            run_seeded(agent, envs, episodes, seed, is_deterministic(agent), on_state=keep)
    finally:
        agent.acting = mode
    names = ("observations", "actions", "returns_to_go", "timesteps", "valid")
    found = Batch(**{name: torch.cat([getattr(one, name) for one in kept]) for name in names})
    return found if most is None else thinned(found, most)


def thinned(batch: Batch, most: int) -> Batch:
    """At most `most` of the windows, evenly spaced from the first to the last."""
    count = batch.shape[0]
    if count <= most:
        return batch
    chosen = torch.linspace(0, count - 1, most).round().long()
    return batch.map(lambda part: part[chosen])


def fullest(batch: Batch) -> Batch:
    """The middle one of the windows with the most steps."""
    lengths = batch.valid.sum(1)
    longest = torch.nonzero(lengths == lengths.max()).flatten()
    at = int(longest[len(longest) // 2])
    steps = int(lengths[at])
    return batch.map(lambda part: part[at : at + 1, :steps])


def in_pieces(batch: Batch, size: int = 256) -> list[Batch]:
    """The windows in batches of `size`."""

    def piece(start: int) -> Batch:
        return batch.map(lambda part: part[start : start + size])

    return [piece(start) for start in range(0, batch.shape[0], size)]
