"""Import files of other projects as Minari datasets; `buffers` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.data.episodes import slack
from agentzoo.data.frames import stack_of, stacked_spec
from agentzoo.data.images import is_image
from agentzoo.data.making.behaviour_record import replay_origin
from agentzoo.data.making.buffers import Imported, read_d4rl, read_npz, read_start
from agentzoo.data.making.collect import Rollout
from agentzoo.data.making.dqn_replay import METADATA, read_dqn_replay
from agentzoo.data.minari import write_dataset
from agentzoo.data.references import reference_of
from agentzoo.data.spaces import action_spec, observation_spec
from agentzoo.envs import make_env
from agentzoo.envs.making import explained, requirements_of
from agentzoo.errors import ConfigError, DataError, SpaceError, printable
from agentzoo.types import MAX_SIZE


def import_file(
    path: Path,
    dataset_id: str,
    *,
    env_id: str | None = None,
    max_episode_steps: int | None = None,
    overwrite: bool = False,
) -> Imported:
    """Write `path` (.hdf5, .h5, .npz or a folder of DQN's replay layout) as the Minari dataset `dataset_id`.

    Args:
        path: the file or folder.
        dataset_id: namespace/name-vN.
        env_id: the Gymnasium environment to evaluate in; its spaces must fit and become the dataset's. Without one the
            spaces are inferred from the data; uint8 observations with two or three axes are images.
        max_episode_steps: length of an episode if the file has no timeouts; by default the environment's limit.
        overwrite: replace an existing dataset with this id.

    Raises:
        DataError: an array is missing or cannot be read, lengths disagree, episode ends are unknown, a number is not
            finite, an action lies outside its space, or an observation is not a whole number as the environment's are.
            SpaceError: the environment's spaces do not fit, or no agent reads data of these spaces. ConfigError: a
            different kind of file, or an invalid id or environment.
    """
    env = None
    if env_id:
        with explained(env_id, asks_for_trust=False):
            env = make_env(env_id)
    with nullcontext() if env is None else closing(env):
        return _import(path, dataset_id, env_id, env, max_episode_steps, overwrite)


def _import(
    path: Path,
    dataset_id: str,
    env_id: str | None,
    env: gym.Env[Any, Any] | None,
    max_episode_steps: int | None,
    overwrite: bool,
) -> Imported:
    spec_limit = env.spec.max_episode_steps if env is not None and env.spec is not None else None
    result = Imported(dataset_id)
    rollouts = _rollouts(path, max_episode_steps or spec_limit, result)
    first = next(rollouts, None)
    if first is None:
        raise DataError(f"{path.name} holds no complete episode.")
    if max_episode_steps and result.cut_after is None:
        result.notes.append(f"--max-episode-steps {max_episode_steps} has no effect: the file marks where episodes end")
    if path.is_dir():
        spaces = _spaces_of_frames(path, first, env)
    else:
        spaces = _spaces_of_env(env, first) if env is not None else _spaces_of_data(path, result)
    _require_readable(*spaces, METADATA if path.is_dir() else {})
    reference = reference_of(env_id) if env_id else None
    scores: dict[str, Any] = (
        {} if reference is None else {"ref_min_score": reference.random, "ref_max_score": reference.expert}
    )
    write_dataset(
        dataset_id,
        _checked(path, chain([first], rollouts), spaces),
        overwrite=overwrite,
        extra={"imported_from": printable(path.name), **(METADATA if path.is_dir() else {})},
        env=env,
        observation_space=spaces[0],
        action_space=spaces[1],
        algorithm_name="unknown",
        author="imported",
        description=replay_origin(path) or f"Imported from {printable(path.name)}.",
        requirements=requirements_of(env_id) if env_id else [],
        **scores,
    )
    return result


def _rollouts(path: Path, max_episode_steps: int | None, result: Imported) -> Iterator[Rollout]:
    if path.is_dir():
        return read_dqn_replay(path, result)
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix in (".hdf5", ".h5"):
        return read_d4rl(path, max_episode_steps, result)
    raise ConfigError(f"{path.name} is neither .hdf5, .h5 nor .npz, nor a folder of DQN's replay layout.")


def _require_readable(observations: gym.Space[Any], actions: gym.Space[Any], metadata: dict[str, Any]) -> None:
    """Raise SpaceError or DataError if no agent could read data of these spaces."""
    spec, stack = observation_spec(observations), stack_of(metadata)
    if stack is not None:
        stacked_spec(spec, stack)
    action_spec(actions)


def _spaces_of_env(env: gym.Env[Any, Any], one: Rollout) -> tuple[gym.Space[Any], gym.Space[Any]]:
    for what, space, values in (
        ("observations", env.observation_space, one.observations),
        ("actions", env.action_space, one.actions),
    ):
        found = values.shape[1:]
        in_column = what == "actions" and {space.shape, found} == {(1,), ()}  # one number or choice a step
        if space.shape != found and not in_column:
            name = env.spec.id if env.spec else env
            theirs = space if space.shape is None else space.shape  # a Dict has no shape
            drop = f" {_drop_axis(what)}" if found[:1] == (1,) and found[1:] == space.shape else ""
            raise SpaceError(f"{what} in the file have shape {found}, but {name} has {theirs}.{drop}")
    return env.observation_space, env.action_space


def _drop_axis(what: str) -> str:
    return f"If the axis of length 1 is that of a vector environment, store {what}[:, 0]."


def _spaces_of_data(path: Path, result: Imported) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Observations as an image or an unbounded Box; actions as Discrete if integers, else a Box.

    The Box of actions is [-1, 1] if all but those of the last `result.dropped_steps` fit in it, else unbounded. Notes
    are added for spaces that may not be meant.

    Raises:
        DataError: as `_choices_of_data`, or actions have an axis of one environment.
    """
    observations, actions = read_start(path)
    actions = actions[: len(actions) - result.dropped_steps]
    observed = _space_of(observations)
    if observations.shape[1:2] == (1,) and observations.ndim == 3 and not is_image(observed):
        result.notes.append(
            f"observations have shape {observations.shape[1:]}, and an environment's must be the same. "
            f"{_drop_axis('observations')}"
        )
    if np.issubdtype(actions.dtype, np.integer):
        return observed, _choices_of_data(path, actions)
    if actions.ndim > 2 and actions.shape[1] == 1:
        shape = f"an action has shape {actions.shape[1:]}; networks act with a row (A,)"
        raise DataError(f"{path.name}: {shape}. {_drop_axis('actions')}")
    if actions[0].size == 1 and 0 <= actions.min() < actions.max() and (actions == np.floor(actions)).all():
        result.notes.append(
            f"actions are the whole numbers from {actions.min():g} to {actions.max():g}, stored as {actions.dtype}, "
            "and imported as a number. If they are choices, name the environment (--env) or store integers."
        )
    bound = 1.0 if np.abs(actions).max(initial=0.0) <= 1.0 + slack(np.ones(())) else np.inf
    return observed, gym.spaces.Box(-bound, bound, actions.shape[1:] or (1,), np.float32)


def _choices_of_data(path: Path, actions: NDArray[np.generic]) -> gym.spaces.Discrete:
    """The space of whole numbers (T,) or (T, 1), counted from 0.

    Raises:
        DataError: several numbers a step, or numbers out of range.
    """
    if actions[0].size != 1:
        raise DataError(
            f"{path.name}: an action is {actions.shape[1:]} whole numbers. One choice a step is supported (Discrete); "
            "if these are no choices, store them as float32."
        )
    first, last = int(actions.min()), int(actions.max())
    if first < 0:
        raise DataError(
            f"{path.name}: actions are the whole numbers from {first} to {last}, but choices are counted from 0. Store "
            "them so, or name an environment whose choices begin there (--env)."
        )
    if last >= MAX_SIZE:
        raise DataError(f"{path.name}: the largest action is {last}; it must be in 0 to {MAX_SIZE - 1}.")
    return gym.spaces.Discrete(last + 1)


def _spaces_of_frames(
    folder: Path, one: Rollout, env: gym.Env[Any, Any] | None
) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Spaces of single frames, which the metadata says to stack; actions of the environment, else Atari's 18."""
    actions: gym.Space[Any] = gym.spaces.Discrete(18)
    frame = one.observations.shape[1:]
    if env is not None:
        actions, stacked = env.action_space, (METADATA["frame_stack"], *frame)
        if env.observation_space.shape != stacked:
            raise SpaceError(
                f"the frames of {folder.name} make observations {stacked}, the environment has "
                f"{env.observation_space}. Omit --env to import them without one."
            )
    return gym.spaces.Box(0, 255, frame, np.uint8), actions


def _space_of(observations: NDArray[np.generic]) -> gym.Space[Any]:
    """The image space of uint8 observations with two or three axes, else an unbounded Box."""
    image = gym.spaces.Box(0, 255, observations.shape[1:], np.uint8)
    if observations.dtype == np.uint8 and is_image(image):
        return image
    dtype = np.float64 if observations.dtype == np.float64 else np.float32
    return gym.spaces.Box(-np.inf, np.inf, observations.shape[1:], dtype)


def _checked(
    path: Path, rollouts: Iterable[Rollout], spaces: tuple[gym.Space[Any], gym.Space[Any]]
) -> Iterator[Rollout]:
    """The rollouts in the dtypes of the spaces, after a check that all values are finite there and in the spaces."""
    step = 0
    for one in rollouts:
        with np.errstate(over="ignore", invalid="ignore"):  # the checks below find what the cast changes
            cast = _cast(one, spaces)
        for name in ("observations", "actions", "rewards"):
            _require_finite(path, name, getattr(one, name), getattr(cast, name), step)
        _require_in_space(path, one, spaces[1], step)
        _require_whole(path, one.observations, cast.observations, step)
        yield cast
        step += len(one)


def _require_finite(path: Path, name: str, values: NDArray[Any], cast: NDArray[Any], step: int) -> None:
    """Raise DataError unless all values are finite, before and after the cast; `step` is the place of the first."""
    if not (np.isfinite(values).all() and np.isfinite(cast).all()):
        finite = np.isfinite(values) & np.isfinite(cast.reshape(values.shape))
        place = tuple(np.argwhere(~finite)[0])
        here = f" as {cast.dtype}" if np.isfinite(values[place]) else ""
        raise DataError(
            f"{path.name}: {name} hold {values[place]:g} at step {step + place[0]}, which is not finite{here}."
        )


def _require_whole(path: Path, observations: NDArray[Any], cast: NDArray[Any], step: int) -> None:
    """Raise DataError if the cast to the whole numbers of an environment changes an observation."""
    if cast.dtype.kind in "iu" and not np.array_equal(cast, observations):
        place = tuple(np.argwhere(cast != observations)[0])
        raise DataError(
            f"{path.name}: observations hold {observations[place]:g} at step {step + place[0]}, but those of the "
            f"environment are whole numbers ({cast.dtype}). Import them as it returns them, without scaling."
        )


def _require_in_space(path: Path, one: Rollout, choices: gym.Space[Any], step: int) -> None:
    """Raise DataError unless all actions are in their space."""
    if isinstance(choices, gym.spaces.Box):
        values = one.actions.reshape(len(one), *choices.shape).astype(np.float64)
        low, high = (bound - sign * slack(bound) for bound, sign in ((choices.low, 1), (choices.high, -1)))
        fits = ((values >= low) & (values <= high)).reshape(len(one), -1).all(axis=1)
        if not fits.all():
            bad = int(np.argmin(fits))
            raise DataError(
                f"{path.name}: action {one.actions[bad]} at step {step + bad} lies outside {choices}. Is this the "
                "right environment, and are the units the same?"
            )
    if isinstance(choices, gym.spaces.Discrete):
        first, last = int(choices.start), int(choices.start + choices.n) - 1
        given = one.actions.reshape(len(one))  # floats may lie in a column of their own
        taken = given.astype(np.int64)
        fits = (taken == given) & (taken >= first) & (taken <= last)
        if not fits.all():
            bad = int(np.argmin(fits))
            raise DataError(
                f"{path.name}: action {given[bad]} at step {step + bad} is not in {first} to {last}. Is this the "
                f"right environment, and are its choices counted from {first}?"
            )


def _cast(one: Rollout, spaces: tuple[gym.Space[Any], gym.Space[Any]]) -> Rollout:
    """The rollout in the dtypes of the spaces, as Minari's checks require."""
    return replace(
        one,
        observations=one.observations.astype(spaces[0].dtype),
        actions=one.actions.astype(spaces[1].dtype).reshape(len(one), *(spaces[1].shape or ())),
    )
