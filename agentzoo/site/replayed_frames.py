"""Frames of a recorded episode: its actions are replayed from its seed and compared with the recorded observations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from agentzoo.data.minari import open_dataset
from agentzoo.data.spaces import observation_at
from agentzoo.envs.making import make_configured, prepare_drawing
from agentzoo.evaluation.film import picture_of, sized_env
from agentzoo.site.dataset_page import FRAMES, EpisodePictures
from agentzoo.site.entries import Entry
from agentzoo.site.media import as_jpeg
from agentzoo.store.files import write_atomic
from agentzoo.text import amount, counted

SIZE = (320, 240)
CLOSE = 1e-3  # largest difference between recorded (perhaps as float32) and replayed observations
MAX_STEPS = 2_000


def write_frames(entry: Entry, folder: Path, address: str) -> EpisodePictures | None:
    """Pictures of the first episode that an agent learned from, in `folder`.

    None where its seed was not recorded, where this machine cannot render, and where playing it again gives other
    observations: another version of the environment, or a dataset that was not recorded in it from the start.

    Args:
        entry: its environment must be one that needs no trust.
        address: of the folder, from the page.
    """
    try:
        found = open_dataset(entry.dataset, download=False)
        (record,) = found.storage.get_episode_metadata([0])
        seed, episode = record.get("seed"), found[0]
        if seed is None or not 0 < len(episode.rewards) <= MAX_STEPS:
            return None
        pictures = _played(entry.env, entry.config.env_options, int(seed), episode)
    except Exception:  # environments and renderers may raise any error; the page works without pictures
        return None
    if pictures is None:
        return None
    names = []
    for step, picture in pictures.items():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / f"step-{step}.jpg", as_jpeg(picture))
        names.append((f"{address}/step-{step}.jpg", step))
    reward = amount(float(np.sum(episode.rewards)), ",")
    steps = ", ".join(str(step) for _, step in names)
    said = f"The first recorded episode: return {reward} in {counted(len(episode.rewards), 'step')}; steps {steps}."
    return EpisodePictures(tuple(names), said)


def _played(env_id: str, options: Mapping[str, Any], seed: int, episode: Any) -> dict[int, Any] | None:
    """Step -> picture; None where an observation differs."""

    def make(**more: Any) -> Any:
        kept = {name: value for name, value in more.items() if name not in options}
        return make_configured(env_id, options, render_mode="rgb_array", **kept)

    env = sized_env(make, SIZE)
    prepare_drawing(env)
    wanted = {round(i * (len(episode.rewards) - 1) / (FRAMES - 1)) for i in range(FRAMES)}
    pictures = {}
    try:
        observation, _ = env.reset(seed=seed)
        for step, action in enumerate(episode.actions):
            if not _alike(env.observation_space, observation, observation_at(episode.observations, step)):
                return None
            if step in wanted:
                pictures[step] = picture_of(env)
            observation, *_ = env.step(action)
    finally:
        env.close()
    return pictures


def _alike(space: gym.Space[Any], first: Any, other: Any) -> bool:
    if isinstance(space, gym.spaces.Dict):
        return all(_alike(inner, first[name], other[name]) for name, inner in space.spaces.items() if name in other)
    return bool(np.allclose(first, other, atol=CLOSE, rtol=CLOSE))
