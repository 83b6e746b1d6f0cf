"""Loops of your own: one environment with `reward=`, and a Gymnasium vector environment, which resets a step later."""

import gymnasium as gym
import numpy as np

from agentzoo import Agent


def plain_loop(agent: Agent, env: gym.Env, steps: int) -> float:
    """The reward of one episode, at most `steps` steps."""
    observation, _ = env.reset(seed=0)
    state, reward, total = None, 0.0, 0.0
    for _ in range(steps):
        action, state = agent.predict(observation, state, reward=reward)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += reward
        if terminated or truncated:
            break
    return total


def vector_loop(agent: Agent, envs: gym.vector.VectorEnv, steps: int) -> float:
    """The reward that all environments got together."""
    n = envs.num_envs
    observations, _ = envs.reset(seed=0)
    state, rewards, total = None, np.zeros(n), 0.0
    starts, ended = np.ones(n, bool), np.zeros(n, bool)
    for _ in range(steps):
        actions, state = agent.predict(observations, state, starts, reward=rewards)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        total += rewards.sum()
        starts, ended = ended, terminated | truncated  # the first observation comes one step after the end
    return float(total)


if __name__ == "__main__":
    agent = Agent.from_pretrained("dt-hopper-medium")
    print(f"one environment: {plain_loop(agent, gym.make('Hopper-v5'), 100):.1f}")
    print(f"four environments: {vector_loop(agent, gym.make_vec('Hopper-v5', num_envs=4), 100):.1f}")
