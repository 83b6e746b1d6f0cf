"""Build a dataset of the catalogue and check it against the environment before it is stored.

With `workers > 1` it spawns processes: in a script, call `build` under `if __name__ == "__main__":`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from agentzoo.data.frames import STACK
from agentzoo.data.making.catalogue import find_recipe
from agentzoo.data.making.dataset_recipe import SOURCES_KEY, BuildOptions, DatasetRecipe
from agentzoo.data.making.dqn_replay import METADATA
from agentzoo.data.minari import write_dataset
from agentzoo.data.references import reference_of
from agentzoo.data.spaces import observation_at
from agentzoo.envs import make_env, quiet_compiler
from agentzoo.envs.making import explained, requirements_of
from agentzoo.errors import ConfigError, DataError

AUTHOR = "agentzoo"


def build(name: str, options: BuildOptions, overwrite: bool = False) -> str:
    """Build the dataset and return its Minari id.

    The same seed and steps give the same HDF5 bytes for any number of workers.

    Raises:
        UnknownNameError: no such recipe, or a source file is missing. ConfigError: options that this dataset does not
            support, or a package of its environment is not installed.
        DataError: it exists and `overwrite` is not set, or replaying the environment gives other data.
        StorageError: it could not be written.
    """
    recipe = find_recipe(name)
    _check_options(recipe, options)
    reference = reference_of(recipe.env_id, dict(recipe.options))
    scores: dict[str, Any] = (
        {} if reference is None else {"ref_min_score": reference.random, "ref_max_score": reference.expert}
    )
    extra: dict[str, Any] = {"build_seed": options.seed, "build_command": _command(recipe, options)}
    if recipe.obs_keys is not None:
        extra["obs_keys"] = list(recipe.obs_keys)
    with explained(recipe.env_id):
        env = make_env(recipe.env_id, **dict(recipe.options))
    with closing(env):
        spaces: dict[str, Any] = {}
        if recipe.frames:
            extra |= METADATA
            frame = gym.spaces.Box(0, 255, (env.observation_space.shape or ())[1:], np.uint8)
            spaces = {"observation_space": frame, "action_space": env.action_space}
        used: dict[str, str] = {}
        rollouts = recipe.episodes(replace(options, on_source=used.__setitem__))
        if used:
            extra[SOURCES_KEY] = [f"{digest}  {name}" for name, digest in sorted(used.items())]
        write_dataset(
            recipe.dataset_id,
            rollouts,
            overwrite=overwrite,
            check=replay_ends,
            extra=extra,
            env=env,
            algorithm_name=recipe.algorithm,
            author=AUTHOR,
            description=recipe.made_by,
            requirements=requirements_of(recipe.env_id),
            **spaces,
            **scores,
        )
    return recipe.dataset_id


def _check_options(recipe: DatasetRecipe, options: BuildOptions) -> None:
    """Check that this dataset supports the options.

    Raises:
        ConfigError: `steps` for a dataset of fixed size, or a number below 1.
    """
    if options.steps is not None and recipe.steps is None:
        raise ConfigError(f"{recipe.name} has a fixed size; build it without --steps.")
    if (options.steps is not None and options.steps < 1) or options.workers < 1 or options.seed < 0:
        raise ConfigError(
            f"steps and workers start at 1 and seeds at 0; got {options.steps}, {options.workers}, {options.seed}."
        )


def _command(recipe: DatasetRecipe, options: BuildOptions) -> str:
    steps = "" if recipe.steps is None else f" --steps {options.steps or recipe.steps}"
    return f"agentzoo data build {recipe.name}{steps} --seed {options.seed}"


def replay_ends(dataset: Any) -> None:
    """Replay the first and the last episode from their recorded seeds and compare every step exactly.

    Episodes without a recorded seed (replay buffers) are skipped.

    Raises:
        DataError: something differs.
    """
    last = int(dataset.total_episodes) - 1
    ends = sorted({0, last})
    seeds = [record.get("seed") for record in dataset.storage.get_episode_metadata(ends)]
    if all(seed is None for seed in seeds):
        return
    with quiet_compiler():
        env = dataset.recover_environment()
    if STACK in dataset.storage.metadata:  # the data has single frames, the environment stacks of them
        env = gym.wrappers.TransformObservation(env, lambda stack: stack[-1], None)
    with closing(env):
        for index, seed in zip(ends, seeds, strict=True):
            if seed is not None:
                _replay(env, dataset[index], int(seed), f"{dataset.id}, episode {index}")


def _replay(env: Any, episode: Any, seed: int, where: str) -> None:
    obs, _ = env.reset(seed=seed)
    _require_same(obs, observation_at(episode.observations, 0), f"{where}, first observation")
    for step, action in enumerate(episode.actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        here = f"{where}, step {step}"
        _require_same(obs, observation_at(episode.observations, step + 1), f"{here}, next observation")
        _require_same(reward, episode.rewards[step], f"{here}, reward")
        _require_same(terminated, episode.terminations[step], f"{here}, termination")
        _require_same(truncated, episode.truncations[step], f"{here}, truncation")


def _require_same(replayed: Any, recorded: Any, where: str) -> None:
    if isinstance(replayed, dict):
        for key, value in replayed.items():
            _require_same(value, recorded[key], f"{where} {key!r}")
    elif not np.array_equal(replayed, recorded):
        raise DataError(f"{where}: the dataset holds {recorded}, the replayed environment gives {replayed}.")
