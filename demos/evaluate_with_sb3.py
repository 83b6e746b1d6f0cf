"""Stock stable-baselines3 code with an agent of the zoo in it: `evaluate_policy`, then your own loop."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

import numpy as np
from rich.console import Console
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from agentzoo import Agent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agent", default="zoo/dt-hopper-medium")
    options.add_argument("--env", default="Hopper-v5")
    options.add_argument("--episodes", type=int, default=8)
    options.add_argument("--envs", type=int, default=4)
    options.add_argument("--steps", type=int, default=200, help="of the loop")
    args = options.parse_args()
    console = Console()

    # each environment is in a Monitor, from which the agent reads the rewards
    vec_env = make_vec_env(args.env, n_envs=args.envs, seed=0)
    agent = Agent.from_pretrained(args.agent, env=vec_env)
    mean, std = evaluate_policy(agent, vec_env, n_eval_episodes=args.episodes)
    console.print(f"evaluate_policy: return {mean:.0f} ± {std:.0f} over {args.episodes} episodes")

    # the same by hand: `state` carries each environment's history, `episode_start` begins a new one
    observations, state = vec_env.reset(), None
    starts = np.ones(args.envs, dtype=bool)
    total = np.zeros(args.envs)
    for _ in range(args.steps):
        actions, state = agent.predict(observations, state=state, episode_start=starts, deterministic=True)
        observations, rewards, starts, _ = vec_env.step(actions)
        total += rewards
    console.print(f"{args.steps} steps by hand: mean return {total.mean():.0f} per environment")
    console.print(f"returns-to-go: {np.round(state.newest_return_to_go()) if state is not None else ''}")


if __name__ == "__main__":
    main()
