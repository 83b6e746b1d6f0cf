"""Watching an agent live."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.evaluation.rollout import EpisodeResult, evaluation_seed, make_env, run_episode


def has_display() -> bool:
    """Whether a window can be opened: macOS and Windows always, Linux with X or Wayland."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def play(
    agent: Agent,
    env_id: str | None = None,
    episodes: int = 1,
    *,
    seed: int = 0,
    window: bool = True,
    trust_env_module: bool = False,
) -> Iterator[EpisodeResult]:
    """Play episodes one after another, in a window if asked, and yield how each went.

    Raises:
        ConfigError: no environment is named. SpaceError: it does not fit the agent.
    """
    where = env_id or agent.config.env
    if where is None:
        raise ConfigError(f"{agent.config.agent_id} names no environment; pass one with --env.")
    env = make_env(where, render_mode="human" if window else None, trust_env_module=trust_env_module)
    agent.check_spaces(env.observation_space, env.action_space)
    try:
        for episode in range(episodes):
            yield run_episode(agent, env, evaluation_seed(seed, episode))
    finally:
        env.close()
