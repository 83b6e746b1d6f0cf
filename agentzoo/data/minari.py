"""Reading and writing Minari datasets; with `data.fetching` the only file that imports minari.

The import costs over a second and pulls in the HDF5 library, so it happens inside the functions.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentzoo.data.episodes import Episodes
from agentzoo.data.fetching import fetch, minari_root, put_dataset, restore_replaced, staging_root
from agentzoo.data.frames import FrameWriter, stack_of, stacked_spec
from agentzoo.data.hdf5 import NUMBERS, check_hdf5, is_pictures, make_room, readable, require_space
from agentzoo.data.making.collect import Rollout
from agentzoo.data.metadata import MAIN, check_metadata, read_metadata
from agentzoo.data.names import absent, datasets_root, is_dataset_id, is_local, local_ids, require_possible
from agentzoo.data.spaces import action_spec, flatten_observations, observation_spec
from agentzoo.envs import quiet_compiler
from agentzoo.errors import ConfigError, DataError, SpaceError, StorageError, UnknownNameError
from agentzoo.extras import needed
from agentzoo.store.files import put_back, staging, with_advice
from agentzoo.store.watch import StoppedError
from agentzoo.types import ActionSpec, FloatArray, ObservationSpec


def local_datasets() -> dict[str, dict[str, Any]]:
    """Id -> metadata of every dataset on this machine; empty metadata if it cannot be read."""
    root = datasets_root()
    return {name: _read_json(root / name / "data" / "metadata.json") for name in local_ids()}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_metadata(path)
    except DataError:
        return {}


def open_dataset(dataset_id: str, download: bool = True) -> Any:
    """The `minari.MinariDataset`, downloaded from Minari's remote if it is not local and `download` is set.

    Raises:
        UnknownNameError: not local and not on the remote, with the nearest local name. DataError: it cannot be read.
        StorageError: no space or no permission for a download.
    """
    minari = needed("minari", "train", "reading data")
    restore_replaced(dataset_id)
    require_possible(dataset_id)
    refused = ""
    if download and not is_local(dataset_id):
        try:
            fetch(dataset_id, dataset_id)
        except StorageError:
            raise
        except StoppedError as error:
            refused = f" Minari's remote could not be asked: {error}"
        except Exception as error:  # the remotes raise whatever their client raises
            lacks = type(error) is ValueError  # Minari's own; some clients raise kinds of it
            what = f"Minari's remote {'does not have it either' if lacks else 'did not send it'}"
            refused = f" {what}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if is_local(dataset_id):
        folder = datasets_root() / dataset_id / "data"
        check_metadata(folder / "metadata.json")
        if (folder / MAIN).exists():  # Minari has other formats
            check_hdf5(folder / MAIN)
        try:
            return minari.load_dataset(dataset_id)
        except Exception as error:
            raise DataError(f"dataset {dataset_id!r} in {datasets_root()} cannot be read: {error}") from error
    raise UnknownNameError(absent(dataset_id) + refused)


def load_episodes(dataset_id: str, obs_keys: tuple[str, ...] | None = None, download: bool = True) -> Episodes:
    """A Minari dataset as flat arrays. Observations are a Box or a Dict of Boxes, actions a Box or Discrete.

    Raises:
        UnknownNameError: no such dataset. SpaceError: unsupported spaces. DataError: it cannot be read, is empty, or
            holds a number that is not finite or an action outside its space. StorageError: as `open_dataset`.
    """
    dataset = open_dataset(dataset_id, download)
    observation, action = _specs_of(dataset, obs_keys)
    stack = stack_of(dataset.storage.metadata)
    frames = FrameWriter(observation, stack) if observation.image is not None else None
    stacked = observation if stack is None else stacked_spec(observation, stack)
    observations, actions, rewards, lengths, terminated = [], [], [], [], []
    for episode in read_episodes(dataset):
        length = len(episode.rewards)
        if length == 0:
            continue
        with readable(dataset_id, "an episode of its spaces"):
            seen = _observations_of(episode, observation, length)
            if frames is None:
                observations.append(seen)
            else:
                frames.add(seen)
            actions.append(_actions_of(episode, action, length))
            rewards.append(np.asarray(episode.rewards, dtype=np.float64).reshape(length))
        lengths.append(length)
        terminated.append(bool(episode.terminations[-1]))
    if not lengths:
        raise DataError(f"dataset {dataset_id!r} holds no episode with a step.")
    kind = np.int64 if action.kind == "discrete" else np.float32
    with np.errstate(over="ignore"):  # it becomes infinity, which `Episodes` refuses
        taken = np.concatenate(actions).astype(kind)
    return Episodes(
        dataset=dataset_id,
        observation=stacked,
        action=action,
        observations=np.concatenate(observations) if frames is None else frames.finish(),
        actions=taken,
        rewards=np.concatenate(rewards),
        lengths=np.asarray(lengths, dtype=np.int64),
        terminated=np.asarray(terminated),
    )


def stored_observation(dataset_id: str, obs_keys: tuple[str, ...] | None = None) -> ObservationSpec | None:
    """One stored observation of a dataset, without reading its episodes; None if it is not on this machine.

    Raises:
        As `load_episodes`.
    """
    return _specs_of(open_dataset(dataset_id, download=False), obs_keys)[0] if is_local(dataset_id) else None


def _specs_of(dataset: Any, obs_keys: tuple[str, ...] | None) -> tuple[ObservationSpec, ActionSpec]:
    try:
        return observation_spec(dataset.observation_space, obs_keys), action_spec(dataset.action_space)
    except SpaceError as error:
        raise SpaceError(f"no agent can learn from {dataset.id}: {error}") from None


def read_episodes(dataset: Any) -> Iterator[Any]:
    """The episodes of a `minari.MinariDataset`, with rewards and flags of equal length.

    Raises:
        DataError: the file is broken, or an episode goes on after its end.
    """
    episodes = iter(dataset.iterate_episodes())
    while True:
        with readable(f"dataset {dataset.id!r}", "a Minari dataset; fetch or build it again"):
            try:
                episode = next(episodes)
            except StopIteration:
                return
            _check_steps(f"dataset {dataset.id!r}, episode {episode.id}", episode)
        yield episode


def _check_steps(whose: str, episode: Any) -> None:
    parts = {name: np.asarray(getattr(episode, name)) for name in ("rewards", "terminations", "truncations")}
    misfit = any(values.ndim != 1 or values.dtype.kind not in NUMBERS for values in parts.values())
    if misfit or len({values.shape for values in parts.values()}) > 1:
        held = ", ".join(f"{name} {values.shape} {values.dtype}" for name, values in parts.items())
        raise DataError(f"{whose} needs arrays (L,), one number per step; it holds {held}.")
    ended = np.flatnonzero((parts["terminations"] != 0) | (parts["truncations"] != 0))
    length = len(parts["rewards"])
    if len(ended) and ended[0] + 1 < length:
        raise DataError(
            f"{whose} terminates or is truncated at step {ended[0] + 1} of {length}, so it holds several episodes. "
            "Store each of them as its own."
        )


def _observations_of(episode: Any, spec: ObservationSpec, length: int) -> NDArray[Any]:
    """(L, S) float32, or (L, C, H, W) uint8."""
    with np.errstate(over="ignore"):  # it becomes infinity, which `Episodes` refuses
        found = flatten_observations(episode.observations, spec)
    if len(found) < length or found.shape[1:] != spec.row or str(found.dtype) != spec.dtype:
        want = ", ".join(map(str, (length, *spec.row)))
        raise DataError(
            f"episode {episode.id} has observations {found.shape} {found.dtype}, expected ({want}) {spec.dtype}."
        )
    return found[:length]


def _actions_of(episode: Any, spec: ActionSpec, length: int) -> NDArray[Any]:
    """(L, A) numbers, or (L,) choices counted from 0, which may be stored as (L, 1)."""
    taken = np.asarray(episode.actions)
    size = 1 if spec.kind == "discrete" else spec.size
    if taken.size != length * size or taken.dtype.kind not in NUMBERS:
        raise DataError(f"episode {episode.id} has {taken.size} action values, expected {length} steps of {size}.")
    if spec.kind != "discrete":
        return taken.reshape(length, size)
    taken = taken.reshape(length)
    whole = taken == np.floor(taken)
    if not whole.all():
        raise DataError(
            f"episode {episode.id} has action {taken[np.argmin(whole)]}; a choice among {spec.size} is a whole number."
        )
    return taken - spec.start


def dataset_metadata(dataset_id: str) -> dict[str, Any]:
    """Minari's metadata of a local dataset (description, author, env spec, reference scores, ...)."""
    return dict(open_dataset(dataset_id, download=False).storage.metadata)


def stored_metadata(dataset_id: str) -> dict[str, Any]:
    """The metadata of a dataset, read without Minari; empty if it is not on this machine or cannot be read."""
    return _read_json(datasets_root() / dataset_id / "data" / "metadata.json") if is_local(dataset_id) else {}


def read_built(dataset_id: str, seed: int, steps: int) -> Iterator[Rollout] | None:
    """The episodes of a dataset built here with this seed and these steps, or None if there is no such dataset.

    A build ends with the first episode that reaches `steps`, so its size shows the `steps` it was built with.
    """
    if not is_local(dataset_id):
        return None
    dataset = open_dataset(dataset_id, download=False)
    last = len(dataset[int(dataset.total_episodes) - 1].rewards)
    total = int(dataset.total_steps)
    if dataset.storage.metadata.get("build_seed") != seed or not total - last < steps <= total:
        return None
    return _rollouts(dataset)


def _rollouts(dataset: Any) -> Iterator[Rollout]:
    for index in range(int(dataset.total_episodes)):
        episode = dataset[index]
        (record,) = dataset.storage.get_episode_metadata([index])
        yield Rollout(record.get("seed"), *(getattr(episode, field.name) for field in fields(Rollout)[1:]))


def _check_new_id(dataset_id: str) -> None:
    from minari.dataset.minari_dataset import parse_dataset_id

    if not is_dataset_id(dataset_id):
        raise ConfigError(
            f"{dataset_id!r} is not a dataset id. Minari's form is NAMESPACE/NAME-v0, of letters, digits, - and _."
        )
    try:
        parse_dataset_id(dataset_id)  # stricter than our pattern, e.g. about one-letter namespaces
    except ValueError as error:
        raise ConfigError(f"{dataset_id!r} is not a dataset id: {' '.join(str(error).split())}") from error


def write_dataset(
    dataset_id: str,
    rollouts: Iterable[Rollout],
    *,
    overwrite: bool = False,
    extra: dict[str, Any] | None = None,
    check: Callable[[Any], None] | None = None,
    **metadata: Any,
) -> Path:
    """Write `rollouts` with Minari's writer, all or nothing.

    The dataset is written into a hidden folder of this process and renamed when complete. The next build removes what a
    killed build left behind.

    Args:
        dataset_id: e.g. `zoo/hopper/medium-v0`.
        rollouts: may be a generator; only one episode at a time is in memory.
        overwrite: replace an existing dataset with this id, which is otherwise an error.
        extra: more keys for the dataset's metadata.
        check: called with the finished `minari.MinariDataset` before the rename; raises if something is wrong with it.
        metadata: arguments of `minari.create_dataset_from_buffers` (env, author, description, ...).

    Raises:
        ConfigError: not a dataset id. DataError: it exists and `overwrite` is not set, or there is no episode.
        StorageError: the disk is full or read-only.
    """
    minari = needed("minari", "train", "writing data")
    _check_new_id(dataset_id)
    root = datasets_root()
    final = root / dataset_id
    put_back(final.parent)
    _check_absent(final, dataset_id, overwrite)
    returns: list[float] = []
    try:
        with staging(staging_root(root, final), ".building-") as draft:
            with minari_root(draft), _without_advice(), quiet_compiler():
                episodes = iter(rollouts)
                first = list(islice(episodes, 1))
                if first and is_pictures(first[0].observations):
                    metadata["jpeg_encoding"] = False  # JPEG changes pictures
                buffers = _buffers(chain(first, episodes), draft / dataset_id / "data" / MAIN, returns)
                dataset = minari.create_dataset_from_buffers(dataset_id, buffers, **metadata)
                if not returns:
                    raise DataError(f"dataset {dataset_id!r} would hold no episode.")
                dataset.storage.update_metadata({**(extra or {}), **return_statistics(np.asarray(returns))})
                if check is not None:
                    check(dataset)
                _canonical_metadata(draft / dataset_id / "data" / "metadata.json")
            _check_absent(final, dataset_id, overwrite)  # another process may have been faster
            put_dataset(draft, root, dataset_id)
    except OSError as error:
        why = with_advice(error, "MINARI_DATASETS_PATH")
        raise StorageError(f"dataset {dataset_id!r} was not written to {root}: {why}") from error
    return final


def _check_absent(final: Path, dataset_id: str, overwrite: bool) -> None:
    if final.exists() and not overwrite:
        raise DataError(f"dataset {dataset_id!r} exists in {datasets_root()}. Pass --overwrite to build it again.")


def _buffers(rollouts: Iterable[Rollout], data: Path, returns: list[float]) -> Iterator[Any]:
    """Minari's buffers of these episodes; `returns` receives the returns. Images get compressed arrays in `data`."""
    from minari.data_collector import EpisodeBuffer

    for index, one in enumerate(rollouts):
        returns.append(float(one.rewards.sum()))
        require_space(data, vars(one))
        if is_pictures(one.observations):
            make_room(data, index, one.observations)
        yield EpisodeBuffer(id=index, **{field.name: getattr(one, field.name) for field in fields(one)})


def return_statistics(returns: FloatArray) -> dict[str, float]:
    """Mean, std, min and max of the returns, stored in the metadata so that listing datasets is fast."""
    values = {"mean": returns.mean(), "std": returns.std(), "min": returns.min(), "max": returns.max()}
    return {f"return_{name}": float(value) for name, value in values.items()}


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silence three hints of Minari that do not apply: a code link, an e-mail, an environment for evaluation."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`(code_permalink|author_email|eval_env)` is set to None")
        warnings.filterwarnings("ignore", message="env_spec is None")  # imported files need not name an environment
        yield


def _canonical_metadata(path: Path) -> None:
    """Sort keys and lists, so that the same dataset has the same bytes (Minari stores authors as a set).

    The order of `obs_keys` has a meaning, so it is kept.
    """
    metadata = json.loads(path.read_text())
    for key, value in metadata.items():
        if key != "obs_keys" and isinstance(value, list) and all(isinstance(item, str) for item in value):
            metadata[key] = sorted(value)
    path.write_text(json.dumps(metadata, sort_keys=True, indent=1))
