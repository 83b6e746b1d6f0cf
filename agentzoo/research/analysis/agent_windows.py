"""The windows from which an agent acts in its own episodes."""

from __future__ import annotations

import torch

from agentzoo.acting.history import AgentState, to_batch
from agentzoo.acting.modes import MemoryState
from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.evaluation.environments import open_envs
from agentzoo.evaluation.rollout import run_seeded
from agentzoo.types import Batch


def decision_windows(
    agent: Agent, episodes: int = 5, seed: int = 0, most: int | None = None, *, trust_env_module: bool = False
) -> Batch:
    """The windows of `episodes` episodes, in the order of their steps; at most `most`, evenly spaced.

    The newest step holds the agent's own action, which no network reads.

    Raises:
        ConfigError: fewer than one episode, or an agent without an environment.
    """
    if episodes < 1:
        raise ConfigError(f"windows come from at least one episode, got {episodes}.")
    kept: list[Batch] = []

    def keep(state: AgentState | MemoryState) -> None:
        assert isinstance(state, AgentState)
        kept.append(to_batch(state, agent.config.rtg_scale, torch.device("cpu")))

    mode = agent.acting
    agent.acting = "window"  # recurrent acting has no windows
    try:
        with open_envs(agent, None, episodes, trust_env_module=trust_env_module) as envs:
            run_seeded(agent, envs, episodes, seed, on_state=keep)
    finally:
        agent.acting = mode
    names = ("observations", "actions", "returns_to_go", "timesteps", "valid")
    whole = Batch(**{name: torch.cat([getattr(one, name) for one in kept]) for name in names})
    return whole if most is None else thinned(whole, most)


def thinned(batch: Batch, most: int) -> Batch:
    """At most `most` of the windows, evenly spaced, with the last one."""
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
