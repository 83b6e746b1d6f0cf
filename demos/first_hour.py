# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---
# %% [markdown]
# # First hour
#
# Load an agent, ask it for returns, record it, and train it further on data of your own. Everything runs on a laptop's
# processor and needs no network: open this file as a notebook with Jupytext, or run it as a script.
#
# Numbers are kept small so that it takes a minute. Raise `EPISODES` and `UPDATES` to learn something from them.

# %%
import os
import shutil
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here needs a network

import gymnasium as gym
import numpy as np

import agentzoo
from agentzoo import Agent, evaluate
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import write_dataset
from agentzoo.evaluation.film import film, save_gif, save_video

EPISODES, UPDATES = 2, 10
OUT = Path(os.environ.get("AGENTZOO_OUT", "out")) / "first-hour"
OUT.mkdir(parents=True, exist_ok=True)
os.environ["MINARI_DATASETS_PATH"] = str(OUT / "datasets")
(OUT / "datasets").mkdir(exist_ok=True)

# %% [markdown]
# ## Load
#
# An agent is a folder of weights and records. `agentzoo list` says which are here.

# %%
agent = Agent.from_pretrained("zoo/dt-hopper-medium")
print(agent)
print(f"it was asked for a return of {agent.target_return:g} when its card was written")

# %% [markdown]
# It acts through stable-baselines3's `predict`. All history is in the `state` that `predict` returns, and the reward
# tells it how much of the return is still to come.

# %%
env = gym.make("Hopper-v5")
observation, _ = env.reset(seed=0)
state, reward = None, 0.0
for _ in range(5):
    action, state = agent.predict(observation, state, reward=reward)
    observation, reward, *_ = env.step(action)
print(f"five steps; the last action is {np.round(action, 2)}")

# %% [markdown]
# ## Ask for returns
#
# The target return decides how far the same weights hop.

# %%
for target in (900.0, 3600.0):
    found = evaluate(agent, episodes=EPISODES, target_return=target)
    print(f"asked for {target:g}: {found.return_in_words()} over {found.episodes} episodes")

# %% [markdown]
# ## Record

# %%
clip = film(agent, every=8, max_frames=40)
save_video(clip, OUT / "hopper.mp4")
save_gif(clip, OUT / "hopper.gif", every=2)
print(f"{OUT / 'hopper.mp4'}: {len(clip.frames)} frames")

# %% [markdown]
# ## Fine-tune
#
# Any Minari dataset with the same spaces will do. Here the agent collects a few episodes itself, asked for different
# returns.


# %%
def record(agent: Agent, env: gym.Env, seed: int) -> Rollout:
    """One episode, step by step, as Minari keeps it."""
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


episodes = []
for seed, target in enumerate(np.linspace(900.0, 1800.0, EPISODES)):
    agent.target_return = float(target)
    episodes.append(record(agent, env, seed))
names = {"author": "me", "algorithm_name": "dt-hopper-medium", "description": "Episodes of the agent itself."}
write_dataset("mine/hopper/own-v0", episodes, overwrite=True, env=env, **names)
print(f"returns of the data: {[round(float(one.rewards.sum())) for one in episodes]}")

# %%
shutil.rmtree(OUT / "run", ignore_errors=True)  # of an earlier call, on other episodes
settings = ["eval.every=0", "train.log_every=5", f"eval.episodes={EPISODES}"]
tuned = agentzoo.finetune(
    "zoo/dt-hopper-medium",
    "mine/hopper/own-v0",
    name="dt-hopper-own",
    steps=UPDATES,
    out=OUT / "run",
    settings=settings,
)
print(f"{tuned.config.agent_id}: {evaluate(tuned, episodes=EPISODES).return_in_words()}")

# %% [markdown]
# `demos/publish_your_own.py` makes a published folder of a run like this one.
