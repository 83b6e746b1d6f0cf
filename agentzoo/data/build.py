"""The datasets of the zoo and how each is made: `agentzoo data build NAME`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentzoo.data.collect import Rollout, collect
from agentzoo.data.minari import write_dataset
from agentzoo.data.policies import resolve_policy
from agentzoo.data.references import reference_of
from agentzoo.data.runners import PolicyRunner
from agentzoo.errors import DataError, UnknownNameError, did_you_mean

SOURCES_VARIABLE = "AGENTZOO_SOURCES"
DEFAULT_STEPS = 500_000
AUTHOR = "agentzoo"


@dataclass(frozen=True)
class BuildOptions:
    """What a build may be told: where policies and buffers lie, how many steps, which seed, how many processes."""

    sources: Path | None = None
    steps: int | None = None
    seed: int = 0
    workers: int = 1
    on_steps: Callable[[int], None] = lambda _: None  # hears the steps of each episode

    def source(self, name: str) -> Path:
        """A file of the sources folder.

        Raises:
            UnknownNameError: no folder was given or the file is not in it.
        """
        folder = self.sources or (Path(os.environ[SOURCES_VARIABLE]) if SOURCES_VARIABLE in os.environ else None)
        if folder is None:
            raise UnknownNameError(
                f"building this needs {name!r}: give the folder that holds it with --sources or ${SOURCES_VARIABLE}, "
                "or make your own with `agentzoo data behaviour`."
            )
        return resolve_policy(folder / name)


@dataclass(frozen=True)
class DatasetRecipe:
    """How one dataset is made. `episodes` yields its rollouts; `metadata` goes to Minari."""

    name: str  # hopper/medium
    env_id: str
    made_by: str  # one sentence: the dataset's description
    episodes: Callable[[BuildOptions], Iterable[Rollout]]
    algorithm: str
    steps: int | None = DEFAULT_STEPS  # None: fixed by its source

    @property
    def dataset_id(self) -> str:
        """The Minari id, e.g. `zoo/hopper/medium-v0`."""
        return f"zoo/{self.name}-v0"


def _from_policy(env_id: str, policy: str) -> Callable[[BuildOptions], Iterable[Rollout]]:
    def episodes(options: BuildOptions) -> Iterator[Rollout]:
        runner = PolicyRunner(env_id, str(options.source(policy)))
        return collect(runner, options.steps or DEFAULT_STEPS, options.seed, options.workers, options.on_steps)

    return episodes


def _from_replay(buffer: str) -> Callable[[BuildOptions], Iterable[Rollout]]:
    def episodes(options: BuildOptions) -> Iterator[Rollout]:
        return read_replay(options.source(buffer), options.on_steps)

    return episodes


def read_replay(path: Path, on_steps: Callable[[int], None] = lambda _: None) -> Iterator[Rollout]:
    """Episodes of an npz replay buffer: all steps end to end, cut where `terminations | truncations`.

    Arrays: observations (T, S), actions (T, A), rewards (T,), terminations (T,), truncations (T,) and
    final_observations (E, S), the observation after each episode's last step.

    Raises:
        DataError: an array is missing or their lengths disagree.
    """
    names = ("observations", "actions", "rewards", "terminations", "truncations", "final_observations")
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in names if name not in file]
            if missing:
                raise DataError(f"{path.name} lacks {', '.join(missing)}; it holds {', '.join(file.files)}.")
            observations, actions, rewards, terminations, truncations, final = (file[name] for name in names)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as an npz file: {error}") from error
    ends = np.flatnonzero(terminations.astype(bool) | truncations.astype(bool)) + 1
    if len(ends) != len(final) or len(ends) == 0 or ends[-1] != len(rewards):
        raise DataError(
            f"{path.name}: {len(ends)} episode ends, {len(final)} final observations, last end at step "
            f"{ends[-1] if len(ends) else 0} of {len(rewards)}; a buffer must be cut to whole episodes."
        )
    first = 0
    for end, last in zip(ends, final, strict=True):
        on_steps(int(end - first))
        yield Rollout(
            seed=None,  # the run that filled the buffer did not record it
            observations=np.concatenate([observations[first:end], last[None]]),
            actions=actions[first:end],
            rewards=rewards[first:end].astype(np.float64),
            terminations=terminations[first:end].astype(bool),
            truncations=truncations[first:end].astype(bool),
        )
        first = int(end)


def _locomotion() -> Iterator[DatasetRecipe]:
    for env, title in (("hopper", "Hopper"), ("halfcheetah", "HalfCheetah"), ("walker2d", "Walker2d")):
        env_id = f"{title}-v5"
        yield DatasetRecipe(
            name=f"{env}/medium",
            env_id=env_id,
            made_by=f"Actions sampled from a SAC policy whose training on {env_id} was stopped early.",
            episodes=_from_policy(env_id, f"sac-{env}-medium.zip"),
            algorithm="SAC",
        )
        yield DatasetRecipe(
            name=f"{env}/medium-replay",
            env_id=env_id,
            made_by=f"Every whole episode in the replay buffer of the SAC run on {env_id} that gave the medium policy.",
            episodes=_from_replay(f"{env}-medium-replay.npz"),
            algorithm="SAC",
            steps=None,
        )


DATASETS = {recipe.name: recipe for recipe in _locomotion()}


def find_recipe(name: str) -> DatasetRecipe:
    """The recipe of `hopper/medium`; `zoo/hopper/medium-v0` means the same.

    Raises:
        UnknownNameError: with the nearest known name.
    """
    plain = name.removeprefix("zoo/").removesuffix("-v0")
    if plain not in DATASETS:
        raise UnknownNameError(f"no dataset recipe {name!r}.{did_you_mean(plain, DATASETS)} Known: {', '.join(DATASETS)}.")
    return DATASETS[plain]


def build(name: str, options: BuildOptions, overwrite: bool = False) -> str:
    """Make the dataset and return its Minari id."""
    recipe = find_recipe(name)
    reference = reference_of(recipe.env_id)
    scores = {} if reference is None else {"ref_min_score": reference.random, "ref_max_score": reference.expert}
    write_dataset(
        recipe.dataset_id,
        recipe.episodes(options),
        overwrite=overwrite,
        env=recipe.env_id,
        algorithm_name=recipe.algorithm,
        author=AUTHOR,
        description=recipe.made_by,
        extra={"build_seed": options.seed},
        **scores,
    )
    return recipe.dataset_id
