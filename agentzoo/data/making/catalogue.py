"""The datasets of the zoo and how each is built.

`medium` samples a SAC policy whose training was stopped early, and `medium-replay` is its replay buffer, as in D4RL.
`expert` samples a fully trained TQC policy instead of taking its mode: D4RL does so, it differs from `medium` only in
the policy, and the noise shows how the expert recovers. This lowers the return: over 16 episodes the mode scored
103 / 99 / 98 on hopper / halfcheetah / walker2d, samples 105 / 91 / 92.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from agentzoo.data.making.collect import BlockRunner, EnvOptions, Rollout, collect
from agentzoo.data.making.dataset_recipe import (
    DEFAULT_STEPS,
    SOURCES_KEY,
    SOURCES_OPTION,
    TRUST_OPTION,
    BuildOptions,
    DatasetRecipe,
)
from agentzoo.data.names import RECORDED, require_dataset_recipe
from agentzoo.envs import DOORKEY, DOORKEY_STEPS, MAZE2D_DENSE, MAZE2D_STEPS
from agentzoo.errors import ConfigError

CLASSIC_STEPS = 100_000
POINTMAZE_KEYS = ("observation", "desired_goal")  # 4 + 2 numbers; `achieved_goal` repeats the position
EPISODIC = (("continuing_task", False),)  # PointMaze terminates at the goal instead of setting a new goal


def find_recipe(name: str) -> DatasetRecipe:
    """The recipe of `hopper/medium`; `zoo/hopper/medium-v0` means the same.

    Raises:
        UnknownNameError: with the nearest known name.
    """
    return DATASETS[require_dataset_recipe(name)]


def recipe_of(dataset_id: str) -> DatasetRecipe | None:
    """The recipe of a Minari dataset; None if it is not from the catalogue."""
    return next((recipe for recipe in DATASETS.values() if recipe.dataset_id == dataset_id), None)


def _run(
    make_runner: Callable[[BuildOptions], BlockRunner], steps: int | None = None, first: int = 0
) -> Callable[[BuildOptions], Iterator[Rollout]]:
    """Episodes of a runner from number `first` on; `steps` fixes their number and overrides `options.steps`."""

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


def _feedback(env_id: str, controller: str) -> Callable[[BuildOptions], BlockRunner]:
    def make(options: BuildOptions) -> BlockRunner:
        from agentzoo.data.making import classic
        from agentzoo.data.making.runners import ControllerRunner

        return ControllerRunner(env_id, getattr(classic, controller))

    return make


def _walker(options: BuildOptions) -> BlockRunner:
    from agentzoo.data.making.doorkey_walker import Walker
    from agentzoo.data.making.runners import ControllerRunner

    return ControllerRunner(DOORKEY, Walker)


def _replay(buffer: str) -> Callable[[BuildOptions], Iterator[Rollout]]:
    def episodes(options: BuildOptions) -> Iterator[Rollout]:
        from agentzoo.data.making.buffers import read_npz

        return _counted(read_npz(options.buffer(buffer)), options)

    return episodes


def _recorded(name: str, env_id: str) -> Callable[[BuildOptions], Iterator[Rollout]]:
    def episodes(options: BuildOptions) -> Iterator[Rollout]:
        from agentzoo.data.making.recorded import RecordingRunner, read_recording

        if options.seed:
            raise ConfigError(f"the actions of {name} are recorded; a seed changes nothing. Build it without --seed.")
        steps = len(read_recording(name).actions)
        return collect(RecordingRunner(env_id, name), steps, options.seed, options.workers, options.on_steps)

    return episodes


def _both(names: tuple[str, str]) -> Callable[[BuildOptions], Iterator[Rollout]]:
    """All episodes of two datasets, read if they are already built with these options, else generated."""

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
        return chain.from_iterable([part(name, options) for name in names])  # a list: the write moves Minari's root

    return episodes


def _counted(rollouts: Iterable[Rollout], options: BuildOptions) -> Iterator[Rollout]:
    """Yield the rollouts and report the steps of each."""
    for rollout in rollouts:
        options.on_steps(len(rollout))
        yield rollout


class _Robot(NamedTuple):
    name: str
    title: str  # in Gymnasium's ids
    expert: bool  # whether the Hub has an expert for it


ROBOTS = (
    _Robot("hopper", "Hopper", expert=True),
    _Robot("halfcheetah", "HalfCheetah", expert=True),
    _Robot("walker2d", "Walker2d", expert=True),
    _Robot("ant", "Ant", expert=False),  # the Hub's read the 111 numbers of Ant-v3, not the 105 of Ant-v5
)


def _locomotion() -> Iterator[DatasetRecipe]:
    for env, title, has_expert in ROBOTS:
        env_id, medium, expert = f"{title}-v5", f"{env}/medium", f"{env}/expert"
        yield DatasetRecipe(
            name=medium,
            env_id=env_id,
            made_by=f"Actions sampled from a SAC policy whose training on {env_id} was stopped early.",
            algorithm="SAC",
            build_options=f"{SOURCES_OPTION} {TRUST_OPTION}",
            episodes=_run(_policy(env_id, f"sac-{env}-medium.zip")),
        )
        yield DatasetRecipe(
            name=f"{env}/medium-replay",
            env_id=env_id,
            made_by=f"Every whole episode in the replay buffer of the SAC run on {env_id} that gave the medium policy.",
            algorithm="SAC",
            build_options=SOURCES_OPTION,
            episodes=_replay(f"{env}-medium-replay.npz"),
            steps=None,
        )
        if not has_expert:
            continue
        yield DatasetRecipe(
            name=expert,
            env_id=env_id,
            made_by=f"Actions sampled from a fully trained TQC policy (Hub: sb3/tqc-{title}-v3) on {env_id}.",
            algorithm="TQC",
            build_options=TRUST_OPTION,
            episodes=_run(_policy(env_id, f"tqc-{env}-expert.zip", f"sb3/tqc-{title}-v3")),
        )
        yield DatasetRecipe(
            name=f"{env}/medium-expert",
            env_id=env_id,
            made_by=f"All episodes of {medium}, then all of {expert}; each half has the steps asked for.",
            algorithm="SAC, TQC",
            build_options=f"{SOURCES_OPTION} {TRUST_OPTION}",
            episodes=_both((medium, expert)),
            parts=2,
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
    # the three training sets are prefixes of one sequence of 2,000 episodes; the held-out set is its second half
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


def _classic() -> Iterator[DatasetRecipe]:
    for title, env_id in (("CartPole", "CartPole-v1"), ("Pendulum", "Pendulum-v1")):
        yield DatasetRecipe(
            name=f"{title.lower()}/mixed",
            env_id=env_id,
            made_by=f"A controller on {env_id} that takes random actions instead, in each episode with another share.",
            algorithm="feedback controller",
            episodes=_run(_feedback(env_id, f"{title}Controller"), CLASSIC_STEPS),
            steps=None,
        )


def _games() -> Iterator[DatasetRecipe]:
    for name in RECORDED:
        env_id = f"agentzoo/{name.split('/')[0].capitalize()}-v5"
        yield DatasetRecipe(
            name=name,
            env_id=env_id,
            made_by=f"Whole episodes of a PPO run on {env_id}, played again from their recorded actions.",
            algorithm="PPO",
            episodes=_recorded(name, env_id),
            steps=None,
            frames=True,
        )


DATASETS = {
    recipe.name: recipe for recipe in chain(_locomotion(), _pointmaze(), _maze2d(), _doorkey(), _classic(), _games())
}
