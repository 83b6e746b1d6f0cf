"""Files of other projects as Minari datasets: D4RL's HDF5 and the npz layout of a replay buffer."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agentzoo.data.episodes import slack
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import write_dataset
from agentzoo.data.references import reference_of
from agentzoo.envs import make_env
from agentzoo.envs.making import explained, requirements_of
from agentzoo.errors import ConfigError, DataError, SpaceError

NPZ_ARRAYS = ("observations", "actions", "rewards", "terminations", "truncations", "final_observations")
D4RL_ARRAYS = ("observations", "actions", "rewards", "terminals")


@dataclass
class Imported:
    """What an import did: filled while the episodes are read."""

    dataset_id: str
    dropped_steps: int = 0  # of an episode the file ends in the middle of
    notes: list[str] = field(default_factory=list)


def import_file(
    path: Path,
    dataset_id: str,
    *,
    env_id: str | None = None,
    max_episode_steps: int | None = None,
    overwrite: bool = False,
) -> Imported:
    """Write `path` (.hdf5, .h5 or .npz) as the Minari dataset `dataset_id`.

    Args:
        path: the file.
        dataset_id: namespace/name-vN.
        env_id: the Gymnasium environment to evaluate in; its spaces must fit and become the dataset's. Without one the
            spaces are read off the data.
        max_episode_steps: where episodes end when the file has no timeouts; the environment's own limit by default.
        overwrite: replace a dataset of this id.

    Raises:
        DataError: an array is missing or cannot be read, lengths disagree, episode ends cannot be told, a number is not
            finite or an action is none of its space. SpaceError: the environment's spaces do not fit. ConfigError:
            another kind of file, or an id or environment that cannot be.
    """
    env = None
    if env_id:
        with explained(env_id):
            env = make_env(env_id)
    spec_limit = env.spec.max_episode_steps if env is not None and env.spec is not None else None
    result = Imported(dataset_id)
    if path.suffix == ".npz":
        rollouts = read_npz(path)
    elif path.suffix in (".hdf5", ".h5"):
        rollouts = read_d4rl(path, max_episode_steps or spec_limit, result)
    else:
        raise ConfigError(f"{path.name} is neither .hdf5, .h5 nor .npz.")
    first = next(rollouts, None)
    if first is None:
        raise DataError(f"{path.name} holds no whole episode.")
    spaces = _spaces_of_env(env, first) if env is not None else _spaces_of_data(path)
    reference = reference_of(env_id) if env_id else None
    scores: dict[str, Any] = (
        {} if reference is None else {"ref_min_score": reference.random, "ref_max_score": reference.expert}
    )
    write_dataset(
        dataset_id,
        _checked(path, chain([first], rollouts), spaces),
        overwrite=overwrite,
        extra={"imported_from": path.name},
        env=env,
        observation_space=spaces[0],
        action_space=spaces[1],
        algorithm_name="unknown",
        author="imported",
        description=f"Imported from {path.name}.",
        requirements=requirements_of(env_id) if env_id else [],
        **scores,
    )
    return result


def read_npz(path: Path) -> Iterator[Rollout]:
    """Episodes of an npz replay buffer: all steps end to end, cut where `terminations | truncations`.

    Arrays: observations (T, S), actions (T, A), rewards (T,), terminations (T,), truncations (T,) and
    final_observations (E, S), the observation after each episode's last step.

    Raises:
        DataError: an array is missing or their lengths disagree.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in NPZ_ARRAYS if name not in file]
            if missing:
                raise DataError(f"{path.name} lacks {', '.join(missing)}; it holds {', '.join(file.files)}.")
            arrays = {name: file[name] for name in NPZ_ARRAYS}
    except (OSError, EOFError, ValueError, TypeError, AttributeError, BadZipFile, zlib.error) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as an npz file: {error}") from error
    final = arrays.pop("final_observations")
    _require_one_length(path, {name: len(values) for name, values in arrays.items()})
    if final.shape[1:] != arrays["observations"].shape[1:]:
        raise DataError(
            f"{path.name}: observations are {arrays['observations'].shape[1:]}, final observations {final.shape[1:]}."
        )
    ends = np.flatnonzero(arrays["terminations"].astype(bool) | arrays["truncations"].astype(bool)) + 1
    steps = len(arrays["rewards"])
    if len(ends) != len(final) or len(ends) == 0 or ends[-1] != steps:
        raise DataError(
            f"{path.name}: {len(ends)} episode ends, {len(final)} final observations, last end at step "
            f"{ends[-1] if len(ends) else 0} of {steps}; a buffer must be cut to whole episodes."
        )
    for first, end, last in zip([0, *ends[:-1]], ends, final, strict=True):
        yield _rollout(arrays, slice(int(first), int(end)), last, arrays["terminations"], arrays["truncations"])


def read_d4rl(path: Path, max_episode_steps: int | None, result: Imported | None = None) -> Iterator[Rollout]:
    """Episodes of a D4RL HDF5 file: observations, actions, rewards, terminals, and where they exist timeouts and
    next_observations; other keys are ignored.

    - An episode ends where a terminal or a timeout is set; both on one step end it once and both flags are kept.
    - Without timeouts an episode also ends, truncated, after `max_episode_steps`.
    - Steps after the last end belong to an episode the file cuts off. Its return-to-go is unknown: it is left out.
    - The observation after an episode's last step is `next_observations` of that step, else that step's own
      observation once more (no family reads it).

    Raises:
        DataError: an array is missing, their lengths disagree, or there are neither timeouts nor a step limit.
    """
    import h5py

    result = result or Imported("")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} cannot be read as an HDF5 file: {error}") from error
    with file:
        missing = [name for name in D4RL_ARRAYS if name not in file]
        if missing:
            raise DataError(f"{path.name} lacks {', '.join(missing)}; it holds {', '.join(file)}.")
        optional = [name for name in ("timeouts", "next_observations") if name in file]
        _require_one_length(path, {name: len(file[name]) for name in (*D4RL_ARRAYS, *optional)})
        terminals = np.asarray(file["terminals"]).reshape(-1).astype(bool)
        if "timeouts" in file:
            timeouts = np.asarray(file["timeouts"]).reshape(-1).astype(bool)
        elif max_episode_steps:
            timeouts = _timeouts(terminals, max_episode_steps)
            result.notes.append(f"no timeouts in the file: episodes are cut after {max_episode_steps} steps")
        else:
            raise DataError(
                f"{path.name} has no timeouts, so where episodes ran out of time is unknown. Name the environment "
                "(--env) or its step limit (--max-episode-steps)."
            )
        if "next_observations" not in file:
            result.notes.append("no next_observations in the file: each episode's last observation is repeated")
        ends = np.flatnonzero(terminals | timeouts) + 1
        result.dropped_steps = len(terminals) - (int(ends[-1]) if len(ends) else 0)
        first = 0
        for end in ends.tolist():
            try:
                last = file["next_observations" if "next_observations" in file else "observations"][end - 1]
                one = _rollout(file, slice(first, end), last, terminals, timeouts)
            except OSError as error:
                raise DataError(f"{path} cannot be read, steps {first} to {end - 1}: {error}") from error
            yield one
            first = end


def _timeouts(terminals: NDArray[np.bool_], limit: int) -> NDArray[np.bool_]:
    """(T,) True on every step that is the `limit`-th of its episode."""
    found = np.zeros_like(terminals)
    age = 0
    for step, terminal in enumerate(terminals.tolist()):
        age += 1
        found[step] = age == limit
        if terminal or age == limit:
            age = 0
    return found


def _rollout(
    arrays: Any, steps: slice, final: Any, terminations: NDArray[np.generic], truncations: NDArray[np.generic]
) -> Rollout:
    return Rollout(
        seed=None,  # nobody recorded it
        observations=np.concatenate([arrays["observations"][steps], np.asarray(final)[None]]),
        actions=_plain(np.asarray(arrays["actions"][steps])),
        rewards=np.asarray(arrays["rewards"][steps], dtype=np.float64).reshape(-1),
        terminations=terminations[steps].astype(bool),
        truncations=truncations[steps].astype(bool),
    )


def _plain(actions: NDArray[Any]) -> NDArray[Any]:
    """Choices (L,), which replay buffers store as (L, 1); other actions as they are."""
    return actions[:, 0] if np.issubdtype(actions.dtype, np.integer) and actions.shape[1:] == (1,) else actions


def _require_one_length(path: Path, lengths: dict[str, int]) -> None:
    if len(set(lengths.values())) != 1:
        raise DataError(f"{path.name}: arrays differ in length: {lengths}.")


def _spaces_of_env(env: gym.Env[Any, Any], one: Rollout) -> tuple[gym.Space[Any], gym.Space[Any]]:
    for what, space, values in (
        ("observations", env.observation_space, one.observations),
        ("actions", env.action_space, one.actions),
    ):
        if space.shape != values.shape[1:] and (what, space.shape, values.shape[1:]) != ("actions", (1,), ()):
            name = env.spec.id if env.spec else env
            raise SpaceError(f"{what} of the file have shape {values.shape[1:]}, those of {name} {space.shape}.")
    return env.observation_space, env.action_space


def _spaces_of_data(path: Path) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """An unbounded Box of observations; actions Discrete if they are whole numbers, else a Box, [-1, 1] if all fit."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            observations, actions = file["observations"], file["actions"]
    else:
        import h5py

        with h5py.File(path, "r") as file:
            try:
                observations, actions = file["observations"][:1], file["actions"][:]
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error}") from error
    actions = _plain(actions)
    if np.issubdtype(actions.dtype, np.integer) and actions.ndim == 1:
        return _unbounded(observations), gym.spaces.Discrete(int(actions.max()) + 1)
    bound = 1.0 if np.abs(actions).max() <= 1.0 else np.inf
    return _unbounded(observations), gym.spaces.Box(-bound, bound, actions.shape[1:] or (1,), np.float32)


def _unbounded(observations: NDArray[np.generic]) -> gym.Space[Any]:
    dtype = np.float64 if observations.dtype == np.float64 else np.float32
    return gym.spaces.Box(-np.inf, np.inf, observations.shape[1:], dtype)


def _checked(
    path: Path, rollouts: Iterable[Rollout], spaces: tuple[gym.Space[Any], gym.Space[Any]]
) -> Iterator[Rollout]:
    """The rollouts in the dtypes of their spaces, each number looked at: what is wrong is found in no later place."""
    step, choices = 0, spaces[1]
    for one in rollouts:
        for name in ("observations", "actions", "rewards"):
            values = getattr(one, name)
            finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
            if not finite.all():
                bad = int(np.argmin(finite))
                raise DataError(f"{path.name}: {name} hold {values[bad]} at step {step + bad}, which is not finite.")
        if isinstance(choices, gym.spaces.Box):
            values = one.actions.reshape(len(one), *choices.shape).astype(np.float64)
            low, high = (bound - sign * slack(bound) for bound, sign in ((choices.low, 1), (choices.high, -1)))
            fits = ((values >= low) & (values <= high)).reshape(len(one), -1).all(axis=1)
            if not fits.all():
                bad = int(np.argmin(fits))
                raise DataError(
                    f"{path.name}: action {one.actions[bad]} at step {step + bad} lies outside {choices}: are these "
                    "another environment's, or in other units?"
                )
        if isinstance(choices, gym.spaces.Discrete):
            first, last = int(choices.start), int(choices.start + choices.n) - 1
            taken = one.actions.astype(np.int64)
            fits = (taken == one.actions) & (taken >= first) & (taken <= last)
            if not fits.all():
                bad = int(np.argmin(fits))
                raise DataError(
                    f"{path.name}: action {one.actions[bad]} at step {step + bad} is none of {first} to {last}."
                )
        yield _cast(one, spaces)
        step += len(one)


def _cast(one: Rollout, spaces: tuple[gym.Space[Any], gym.Space[Any]]) -> Rollout:
    """The rollout in the dtypes of the spaces, so that Minari's own checks of an episode hold."""
    return replace(
        one,
        observations=one.observations.astype(spaces[0].dtype),
        actions=one.actions.astype(spaces[1].dtype).reshape(len(one), *(spaces[1].shape or ())),
    )
