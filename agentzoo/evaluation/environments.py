"""Environments created for an agent, by its own id or another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import gymnasium as gym

from agentzoo.acting.observing import is_count
from agentzoo.agent import Agent
from agentzoo.envs.making import make_configured
from agentzoo.errors import ConfigError
from agentzoo.evaluation.seeds import EPISODES


def env_of(agent: Agent, env_id: str | None, *, trust_env_module: bool = False, **kwargs: Any) -> gym.Env[Any, Any]:
    """Create the agent's environment with its options, or the environment `env_id`. The caller closes it.

    Raises:
        ConfigError: no environment is named, or it does not accept these options. SpaceError: it does not fit the
            agent. Otherwise as `make_env`.
    """
    where = env_id or agent.config.env
    if where is None:
        raise ConfigError(f"{agent.config.agent_id} names no environment; pass one with env= (--env).")
    env = make_configured(where, agent.config.options_in(where), trust_env_module, agent.trust_env_options, **kwargs)
    try:
        agent.check_spaces(env.observation_space, env.action_space)
    except BaseException:
        env.close()
        raise
    return env


@contextmanager
def open_envs(
    agent: Agent, env_id: str | None, count: int, *, trust_env_module: bool = False
) -> Iterator[list[gym.Env[Any, Any]]]:
    """`count` environments of `env_of`, closed after the block.

    Raises:
        As `env_of`.
    """
    with ExitStack() as opened:
        envs = []
        for _ in range(count):
            envs.append(env_of(agent, env_id, trust_env_module=trust_env_module))
            opened.callback(envs[-1].close)
        yield envs


def require_positive(**counts: Any) -> None:
    """Raise ConfigError, with its name, for a count that is no whole number from 1 on."""
    for name, value in counts.items():
        if not is_count(value) or value < 1:
            raise ConfigError(f"{name} is a whole number from 1 on, got {value!r}.")


def require_playable(agent: Agent, episodes: int, n_envs: int) -> None:
    """Raise ConfigError for counts out of range, or an agent with a target or goal for each environment."""
    require_positive(episodes=episodes, n_envs=n_envs)
    if episodes > EPISODES:
        raise ConfigError(f"one seed has {EPISODES:,} episodes, got {episodes:,}; play the others with another seed.")
    if agent.is_conditioned_each:
        raise ConfigError(
            f"{agent.config.agent_id} has a target or goal for each environment, which does not work with episodes of "
            "different lengths; set one target or goal for all."
        )
