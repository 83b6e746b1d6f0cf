"""Collect a small Minari dataset, fine-tune an agent on the better half of it, compare.

Fifty updates on four episodes show how it is done and change little; demos/finetune.py does it in earnest.
Everything goes to demos/out/finetune-small/.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from agentzoo import Agent, evaluate
from agentzoo.config import AgentConfig
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import write_dataset
from agentzoo.recipe import Recipe
from agentzoo.store.files import RECIPE, read_text
from agentzoo.training.finetune import plan_finetune, start_from
from agentzoo.training.hooks import Hooks
from agentzoo.training.loop import train

BASE = "zoo/dt-hopper-medium"
DATASET = "mine/hopper/own-v0"
NAME = "dt-hopper-own"
OUT = Path(__file__).resolve().parent / "out" / "finetune-small"
console = Console()


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--collect", type=int, default=4, help="episodes to collect")
    options.add_argument("--steps", type=int, default=50, help="updates")
    options.add_argument("--episodes", type=int, default=4, help="of each evaluation")
    options.add_argument("--out", type=Path, default=OUT)
    args = options.parse_args(arguments)

    os.environ["MINARI_DATASETS_PATH"] = str(args.out / "datasets")
    forget(args.out / "run")
    (args.out / "datasets").mkdir(parents=True, exist_ok=True)
    base = Agent.from_pretrained(BASE)
    collect(base, args.collect)

    settings = [
        "data.best_fraction=0.5",
        "data.held_out=0",  # episodes are few: all are trained on
        "eval.every=0",
        f"eval.episodes={args.episodes}",
        "train.log_every=5",
    ]
    recipe, episodes = plan_finetune(base, DATASET, name=NAME, steps=args.steps, settings=settings)
    model = train(recipe, args.out / "run", episodes, start=start_from(base, recipe, episodes), hooks=Hooks())
    tuned = Agent(model, AgentConfig.of(recipe, model.io), recipe)
    tuned.save_pretrained(args.out / "run")

    table = Table("agent", "return (95 %)", "length", title=f"{args.steps} updates on {len(episodes):,} steps")
    for agent in (base, tuned):
        with console.status(f"{args.episodes} episodes of {agent.config.agent_id}"):
            found = evaluate(agent, episodes=args.episodes)
        low, high = found.return_interval
        table.add_row(
            agent.config.agent_id, f"{found.mean_return:.0f} [{low:.0f}, {high:.0f}]", f"{found.mean_length:.0f}"
        )
    console.print(table)
    console.print(f"wrote {args.out / 'run'}; demos/publish.py makes a published folder of it")


def forget(run: Path) -> None:
    """Delete the run of an earlier call, which learned from other episodes; any other folder is refused."""
    if not run.exists():
        return
    if not (run / RECIPE).is_file() or Recipe.from_json(read_text(run / RECIPE), str(run)).agent_id != NAME:
        raise SystemExit(f"{run} is there and holds no run of this demo; name another folder with --out.")
    shutil.rmtree(run)


def collect(agent: Agent, episodes: int) -> None:
    """Let the agent act, and keep what happened as a dataset that anybody's Minari reads."""
    env = gym.make("Hopper-v5")
    seen = (record(agent, env, seed) for seed in track(range(episodes), "collecting", console=console))
    names = {"algorithm_name": agent.config.agent_id, "description": "Episodes of the agent itself.", "author": "me"}
    write_dataset(DATASET, seen, overwrite=True, env=env, **names)
    env.close()


def record(agent: Agent, env: gym.Env, seed: int) -> Rollout:
    """One episode, step by step."""
    observation, _ = env.reset(seed=seed)
    observations, steps = [observation], []
    state, reward, ended = None, 0.0, False
    while not ended:
        action, state = agent.predict(observation, state, reward=reward)
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation)
        steps.append((action, reward, terminated, truncated))
        ended = terminated or truncated
    return Rollout(seed, np.array(observations), *(np.array(column) for column in zip(*steps, strict=True)))


if __name__ == "__main__":
    main()
