"""Play a block of episodes: a policy in parallel environments, or a scripted controller in one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.data.making.collect import EnvOptions, Rollout, only_last, reset_seed
from agentzoo.data.making.policies import PolicyFile
from agentzoo.envs import make_env


@dataclass(frozen=True)
class PolicyRunner:
    """Plays blocks of episodes with a SAC or TQC policy, actions sampled.

    There is one batched forward pass per step. An environment leaves the batch when its episode ends. This depends only
    on the block, so floating-point sums do not depend on the number of workers.
    """

    env_id: str
    policy: PolicyFile
    options: EnvOptions = ()

    def __call__(self, seed: int, first: int, count: int) -> list[Rollout]:
        """Step `count` environments in parallel."""
        envs, policy = _policy_envs(self.env_id, self.policy, self.options, count)
        seeds = [reset_seed(seed, first + i) for i in range(count)]
        # the reset draws from the same stream, which `ControllerRunner` avoids; existing datasets depend on it
        noise = [np.random.default_rng(s) for s in seeds]
        observations = [[env.reset(seed=s)[0]] for env, s in zip(envs, seeds, strict=False)]
        actions: list[list[Any]] = [[] for _ in range(count)]
        rewards: list[list[float]] = [[] for _ in range(count)]
        ended = [(False, False)] * count
        live = list(range(count))
        size = envs[0].action_space.shape
        while live:
            draws = np.stack([noise[i].standard_normal(size) for i in live])
            chosen = policy.act(np.stack([observations[i][-1] for i in live]), draws)
            for i, action in zip(list(live), chosen, strict=True):
                obs, reward, terminated, truncated, _ = envs[i].step(action)
                observations[i].append(obs)
                actions[i].append(action)
                rewards[i].append(float(reward))
                if terminated or truncated:
                    ended[i] = (bool(terminated), bool(truncated))
                    live.remove(i)
        return [rollout_of(seeds[i], observations[i], actions[i], rewards[i], *ended[i]) for i in range(count)]


class Controller(Protocol):
    """A scripted policy: the next action for the newest observation of an episode."""

    def __call__(self, obs: Any) -> NDArray[np.generic]:
        """One action, in the environment's dtype and range."""
        ...


@dataclass(frozen=True)
class ControllerRunner:
    """Plays blocks of episodes with a scripted controller, one after the other.

    `make_controller(env, rng)` is called after each reset with a new generator; it must be picklable.
    """

    env_id: str
    make_controller: Callable[[gym.Env[Any, Any], np.random.Generator], Controller]
    options: EnvOptions = ()

    def __call__(self, seed: int, first: int, count: int) -> list[Rollout]:
        """Run `count` episodes."""
        env = environment_of(self.env_id, self.options)
        return [self._episode(env, reset_seed(seed, first + i)) for i in range(count)]

    def _episode(self, env: gym.Env[Any, Any], seed: int) -> Rollout:
        obs, _ = env.reset(seed=seed)
        # the environment's generator also starts from `seed`; the second number keeps the two streams independent
        act = self.make_controller(env, np.random.default_rng([seed, 1]))
        observations, actions, rewards = [obs], [], []
        terminated = truncated = False
        while not (terminated or truncated):
            action = act(obs)
            obs, reward, terminated, truncated, _ = env.step(action)
            observations.append(obs)
            actions.append(action)
            rewards.append(float(reward))
        return rollout_of(seed, observations, actions, rewards, bool(terminated), bool(truncated))


def rollout_of(
    seed: int, observations: list[Any], actions: list[Any], rewards: list[float], terminated: bool, truncated: bool
) -> Rollout:
    """One episode from its lists: L + 1 observations, L actions and rewards, and how it ended."""
    stacked = (
        {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}
        if isinstance(observations[0], dict)
        else np.stack(observations)
    )
    return Rollout(
        seed=seed,
        observations=stacked,
        actions=np.stack(actions),
        rewards=np.asarray(rewards, dtype=np.float64),
        terminations=only_last(len(rewards), terminated),
        truncations=only_last(len(rewards), truncated),
    )


_policies: dict[Any, tuple[list[Any], Any]] = {}
_environments: dict[Any, gym.Env[Any, Any]] = {}


def _policy_envs(env_id: str, policy: PolicyFile, options: EnvOptions, count: int) -> tuple[list[Any], Any]:
    """The environments and the policy of this process, created once."""
    from agentzoo.data.making.policies import load_policy

    def make() -> gym.Env[Any, Any]:
        return make_env(env_id, disable_env_checker=True, **dict(options))

    key = (env_id, policy, options)
    if key not in _policies:
        env = make()
        _policies[key] = ([env], load_policy(policy, env))
    envs, loaded = _policies[key]
    envs.extend(make() for _ in range(count - len(envs)))
    return envs, loaded


def environment_of(env_id: str, options: EnvOptions = ()) -> gym.Env[Any, Any]:
    """The environment of this process, created once."""
    key = (env_id, options)
    if key not in _environments:
        _environments[key] = make_env(env_id, disable_env_checker=True, **dict(options))
    return _environments[key]
