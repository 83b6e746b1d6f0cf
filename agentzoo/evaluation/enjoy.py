"""Watch an agent live."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from agentzoo.agent import Agent
from agentzoo.envs.making import prepare_drawing
from agentzoo.evaluation.environments import env_of
from agentzoo.evaluation.rollout import EpisodeResult, run_episode
from agentzoo.evaluation.seeds import episode_seed


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
    """Play episodes one after another, in a window if `window` is set, and yield each result.

    Raises:
        ConfigError: no environment is named, or it cannot open a window. SpaceError: it does not fit the agent.
    """
    mode = {"render_mode": "human"} if window else {}
    env = env_of(agent, env_id, trust_env_module=trust_env_module, **mode)
    prepare_drawing(env)
    try:
        for episode in range(episodes):
            yield run_episode(agent, env, episode_seed(seed, episode))
    finally:
        env.close()
