"""Watch an agent live."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from agentzoo.agent import Agent
from agentzoo.envs.making import prepare_drawing
from agentzoo.evaluation.environments import env_of
from agentzoo.evaluation.rollout import EpisodeResult, run_episode
from agentzoo.evaluation.seeds import episode_seed

SECONDS = 2.0  # to wait for a display


def has_display() -> bool:
    """Whether a window can be opened: macOS and Windows always, Linux with an X or Wayland server that answers."""
    return sys.platform != "linux" or any(map(_answers, _servers()))


def _servers() -> Iterator[str | tuple[str, int]]:
    """Addresses of the servers that `$WAYLAND_DISPLAY` and `$DISPLAY` name: a socket's path, or host and port."""
    wayland, x = os.environ.get("WAYLAND_DISPLAY"), os.environ.get("DISPLAY", "")
    if wayland:
        yield str(Path(os.environ.get("XDG_RUNTIME_DIR", "")) / wayland)
    host, _, screen = x.rpartition(":")
    number = screen.partition(".")[0]
    if not number.isdecimal():
        return
    if host in ("", "unix"):
        yield from (f"\0/tmp/.X11-unix/X{number}", f"/tmp/.X11-unix/X{number}")
    else:  # over a network, or of ssh
        yield host, 6000 + int(number)


def _answers(address: str | tuple[str, int]) -> bool:
    try:
        with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as found:
            found.settimeout(SECONDS)
            found.connect(address)
    except (OSError, ValueError, OverflowError):  # no server, no such host, or no port
        return False
    return True


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
    try:
        prepare_drawing(env)
        for episode in range(episodes):
            yield run_episode(agent, env, episode_seed(seed, episode))
    finally:
        env.close()
