"""The datasets of the zoo and how each is made.

`medium` samples a SAC policy whose training was stopped early and `medium-replay` is all that policy saw until then, as
in D4RL. `expert` samples a fully trained TQC policy rather than taking its mode: D4RL did so, it differs from `medium`
in the policy alone, and the noise shows how the expert recovers. It costs some return: over 16 episodes the mode scored
103 / 99 / 98 on hopper / halfcheetah / walker2d, samples 105 / 91 / 92.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from agentzoo.data.making.collect import BlockRunner, Rollout, collect
from agentzoo.data.making.policies import PolicyFile, resolve_policy
from agentzoo.envs import DOORKEY, DOORKEY_STEPS, MAZE2D_DENSE, MAZE2D_STEPS
from agentzoo.errors import ConfigError, UnknownNameError, did_you_mean
from agentzoo.store.files import sha256

SOURCES_VARIABLE = "AGENTZOO_SOURCES"
SOURCES_KEY = "source_sha256"  # of a dataset's metadata: lines as sha256sum writes them
DEFAULT_STEPS = 500_000
OWN = "--sources DIR"  # a folder of policies and replay buffers, which nobody distributes
OTHERS = "--trust-policies"  # a policy is in SB3's format, which runs code when it is loaded
POINTMAZE_KEYS = ("observation", "desired_goal")  # 4 + 2 numbers; `achieved_goal` repeats the position
EPISODIC = (("continuing_task", False),)  # PointMaze ends at the goal instead of drawing a new one

EnvOptions = tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class BuildOptions:
    """Where policies and buffers lie, how many steps, which seed, how many processes.

    trust_policies: load policies in SB3's format, from `sources` or the Hub; loading one runs the code it holds.
    on_steps: called with the steps of each episode as it is written. on_source: called with the name and sha256 of each
    file the data is made of, before the first episode.
    """

    sources: Path | None = None
    steps: int | None = None
    seed: int = 0
    workers: int = 1
    trust_policies: bool = False
    on_steps: Callable[[int], None] = lambda _: None
    on_source: Callable[[str, str], None] = lambda *_: None

    def buffer(self, name: str) -> Path:
        """A replay buffer in the sources folder: arrays, nothing that runs.

        Raises:
            UnknownNameError: no folder was given, or the file is not in it.
        """
        found = self._in_sources(name)
        if found is None:
            raise UnknownNameError(f"{self._needed(name)} `agentzoo data behaviour` makes such files.")
        self.on_source(name, sha256(found))
        return found

    def policy(self, name: str, hub: str | None = None) -> PolicyFile:
        """A policy of the sources folder, or else the one in the Hub repo `hub`.

        Raises:
            UnknownNameError: it is in neither. ConfigError: it is in SB3's format, which unpickles, and policies are
                not trusted. DataError: the Hub did not give it.
        """
        found = self._in_sources(name)
        if found is None and hub is None:
            raise UnknownNameError(f"{self._needed(name)} `agentzoo data behaviour` makes such files.")
        if not self.trust_policies:
            if found is None:
                raise UnknownNameError(
                    f"{self._needed(name)} {OTHERS} fetches {hub} from the Hub instead; loading it runs the code it "
                    "holds."
                )
            raise ConfigError(
                f"{found} is a policy in stable-baselines3's format: loading it unpickles, which runs the code it "
                f"holds. If you trust the file, pass trust_policies=True ({OTHERS})."
            )
        path = found if found is not None else resolve_policy(str(hub))
        digest = sha256(path)
        self.on_source(name, digest)
        return PolicyFile(str(path), digest)

    def _folder(self) -> Path | None:
        named = os.environ.get(SOURCES_VARIABLE)
        return self.sources or (Path(named) if named else None)

    def _in_sources(self, name: str) -> Path | None:
        folder = self._folder()
        return folder / name if folder is not None and (folder / name).is_file() else None

    def _needed(self, name: str) -> str:
        folder = self._folder()
        where = f"it is not in {folder}" if folder else f"give its folder with --sources or ${SOURCES_VARIABLE}"
        return f"building this needs {name!r}: {where}."


@dataclass(frozen=True)
class DatasetRecipe:
    """How one dataset is made. `episodes` yields its rollouts; the rest goes to Minari's metadata."""

    name: str  # hopper/medium
    env_id: str
    made_by: str  # one sentence: the dataset's description
    algorithm: str
    episodes: Callable[[BuildOptions], Iterable[Rollout]]
    steps: int | None = DEFAULT_STEPS  # asked for by default; None: fixed by its source
    options: EnvOptions = ()  # of `gymnasium.make`
    obs_keys: tuple[str, ...] | None = None  # of a Dict observation: what agents read
    build_options: str = ""  # of a build that names policies and buffers, which are not part of the package

    @property
    def dataset_id(self) -> str:
        """The Minari id, e.g. `zoo/hopper/medium-v0`."""
        return f"zoo/{self.name}-v0"


def find_recipe(name: str) -> DatasetRecipe:
    """The recipe of `hopper/medium`; `zoo/hopper/medium-v0` means the same.

    Raises:
        UnknownNameError: with the nearest known name.
    """
    plain = name.removeprefix("zoo/").removesuffix("-v0")
    if plain not in DATASETS:
        raise UnknownNameError(f"no dataset recipe {name!r}.{did_you_mean(plain, DATASETS)} See `agentzoo data list`.")
    return DATASETS[plain]


def recipe_of(dataset_id: str) -> DatasetRecipe | None:
    """The recipe that makes a Minari dataset; None for one of somebody else."""
    return next((recipe for recipe in DATASETS.values() if recipe.dataset_id == dataset_id), None)


def _run(
    make_runner: Callable[[BuildOptions], BlockRunner], steps: int | None = None, first: int = 0
) -> Callable[[BuildOptions], Iterator[Rollout]]:
    """Episodes of a runner from number `first` on; `steps` fixes how many, so that `options.steps` cannot."""

    def episodes(options: BuildOptions) -> Iterator[Rollout]:
        asked = steps or options.steps or DEFAULT_STEPS
        return collect(make_runner(options), asked, options.seed, options.workers, options.on_steps, first)

    return episodes


def _policy(env_id: str, file: str, hub: str | None = None) -> Callable[[BuildOptions], BlockRunner]:
    def make(options: BuildOptions) -> BlockRunner:
        from agentzoo.data.making.runners import PolicyRunner

        return PolicyRunner(env_id, options.policy(file, hub))

    return make


def _waypoints(env_id: str, env_options: EnvOptions = ()) -> Callable[[BuildOptions], BlockRunner]:
    def make(options: BuildOptions) -> BlockRunner:
        from agentzoo.data.making.runners import ControllerRunner
        from agentzoo.data.making.waypoints import WaypointController

        return ControllerRunner(env_id, WaypointController, env_options)

    return make


def _walker(options: BuildOptions) -> BlockRunner:
    from agentzoo.data.making.doorkey_walker import MakeWalker
    from agentzoo.data.making.runners import ControllerRunner

    return ControllerRunner(DOORKEY, MakeWalker())


def _replay(buffer: str) -> Callable[[BuildOptions], Iterator[Rollout]]:
    def episodes(options: BuildOptions) -> Iterator[Rollout]:
        from agentzoo.data.making.buffers import read_npz

        return _counted(read_npz(options.buffer(buffer)), options)

    return episodes


def _both(names: tuple[str, str]) -> Callable[[BuildOptions], Iterator[Rollout]]:
    """All episodes of two datasets, read where they are built for these options and made where they are not."""

    def part(name: str, options: BuildOptions) -> Iterable[Rollout]:
        from agentzoo.data.minari import dataset_metadata, read_built

        recipe = DATASETS[name]
        built = read_built(recipe.dataset_id, options.seed, options.steps or recipe.steps or DEFAULT_STEPS)
        if built is None:
            return recipe.episodes(options)
        for line in dataset_metadata(recipe.dataset_id).get(SOURCES_KEY, ()):
            digest, _, file = line.partition("  ")
            options.on_source(file, digest)
        return _counted(built, options)

    def episodes(options: BuildOptions) -> Iterator[Rollout]:
        parts = [part(name, options) for name in names]  # now: while a set is written, Minari looks elsewhere
        return chain.from_iterable(parts)

    return episodes


def _counted(rollouts: Iterable[Rollout], options: BuildOptions) -> Iterator[Rollout]:
    """The same rollouts; each is reported as it passes."""
    for rollout in rollouts:
        options.on_steps(len(rollout))
        yield rollout


def _locomotion() -> Iterator[DatasetRecipe]:
    for env, title in (("hopper", "Hopper"), ("halfcheetah", "HalfCheetah"), ("walker2d", "Walker2d")):
        env_id, medium, expert = f"{title}-v5", f"{env}/medium", f"{env}/expert"
        yield DatasetRecipe(
            name=medium,
            env_id=env_id,
            made_by=f"Actions sampled from a SAC policy whose training on {env_id} was stopped early.",
            algorithm="SAC",
            build_options=f"{OWN} {OTHERS}",
            episodes=_run(_policy(env_id, f"sac-{env}-medium.zip")),
        )
        yield DatasetRecipe(
            name=f"{env}/medium-replay",
            env_id=env_id,
            made_by=f"Every whole episode in the replay buffer of the SAC run on {env_id} that gave the medium policy.",
            algorithm="SAC",
            build_options=OWN,
            episodes=_replay(f"{env}-medium-replay.npz"),
            steps=None,
        )
        yield DatasetRecipe(
            name=expert,
            env_id=env_id,
            made_by=f"Actions sampled from a fully trained TQC policy (Hub: sb3/tqc-{title}-v3) on {env_id}.",
            algorithm="TQC",
            build_options=OTHERS,
            episodes=_run(_policy(env_id, f"tqc-{env}-expert.zip", f"sb3/tqc-{title}-v3")),
        )
        yield DatasetRecipe(
            name=f"{env}/medium-expert",
            env_id=env_id,
            made_by=f"All episodes of {medium}, then all of {expert}; each half has the steps asked for.",
            algorithm="SAC, TQC",
            build_options=f"{OWN} {OTHERS}",
            episodes=_both((medium, expert)),
        )


def _pointmaze() -> Iterator[DatasetRecipe]:
    for maze in ("UMaze", "Medium", "Large"):
        env_id = f"PointMaze_{maze}-v3"
        yield DatasetRecipe(
            name=f"pointmaze/{maze.lower()}",
            env_id=env_id,
            made_by=f"A waypoint controller with action noise 0.5 on {env_id}, each episode to its own goal.",
            algorithm="waypoint controller",
            episodes=_run(_waypoints(env_id, EPISODIC)),
            options=EPISODIC,
            obs_keys=POINTMAZE_KEYS,
        )


def _maze2d() -> Iterator[DatasetRecipe]:
    for name, first, count in (("medium", 0, 900), ("medium-heldout", 900, 100)):
        yield DatasetRecipe(
            name=f"maze2d-dense/{name}",
            env_id=MAZE2D_DENSE,
            made_by=f"{count} episodes of a waypoint controller with action noise 0.5, 200 steps each.",
            algorithm="waypoint controller",
            episodes=_run(_waypoints(MAZE2D_DENSE), count * MAZE2D_STEPS, first),
            steps=None,
        )


def _doorkey() -> Iterator[DatasetRecipe]:
    # the three training sets are the beginnings of one sequence of 2,000 episodes, the held-out set is its second half
    sets = (("train-50", 0, 50), ("train-500", 0, 500), ("train-1000", 0, 1000), ("heldout", 1000, 1000))
    for name, first, count in sets:
        yield DatasetRecipe(
            name=f"doorkey/{name}",
            env_id=DOORKEY,
            made_by=f"{count} episodes of 10 steps of a noisy-rational walker, from number {first} on.",
            algorithm="noisy-rational walker",
            episodes=_run(_walker, count * DOORKEY_STEPS, first),
            steps=None,
        )


DATASETS = {recipe.name: recipe for recipe in chain(_locomotion(), _pointmaze(), _maze2d(), _doorkey())}


def check_options(recipe: DatasetRecipe, options: BuildOptions) -> None:
    """Refuse what this dataset cannot follow.

    Raises:
        ConfigError: `steps` for a set of fixed size, or a number below 1.
    """
    if options.steps is not None and recipe.steps is None:
        raise ConfigError(f"{recipe.name} has a size of its own; build it without --steps.")
    if (options.steps is not None and options.steps < 1) or options.workers < 1 or options.seed < 0:
        raise ConfigError(
            f"steps and workers start at 1 and seeds at 0; got {options.steps}, {options.workers}, {options.seed}."
        )
