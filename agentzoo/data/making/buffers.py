"""Read episodes from files of other projects: D4RL's HDF5 layout, and replay buffers as npz.

The files are untrusted: sizes and types are checked before an array is read, and errors of libraries become DataError.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentzoo.data.hdf5 import MAX_RATIO, NUMBERS, UNSTORED, check_hdf5, readable
from agentzoo.data.making.collect import Rollout
from agentzoo.errors import DataError, printable
from agentzoo.store.tensors import memory

NPZ_ARRAYS = ("observations", "actions", "rewards", "terminations", "truncations", "final_observations")
D4RL_ARRAYS = ("observations", "actions", "rewards", "terminals")
FLAT = ("rewards", "terminals", "timeouts", "terminations", "truncations")  # (T,) or (T, 1)


@dataclass
class Imported:
    """The result of an import, filled while the episodes are read."""

    dataset_id: str
    dropped_steps: int = 0  # steps of an incomplete last episode
    notes: list[str] = field(default_factory=list)
    cut_after: int | None = None  # steps; None: the file marks the ends of episodes itself


def read_npz(path: Path) -> Iterator[Rollout]:
    """Episodes of an npz replay buffer: consecutive steps, split where `terminations | truncations`.

    Arrays: observations (T, S), actions (T, A), rewards (T,), terminations (T,), truncations (T,) and
    final_observations (E, S), the observation after each episode's last step.

    Raises:
        DataError: an array is missing, declares more than the file holds, is not numeric, or lengths disagree.
    """
    arrays = read_npz_arrays(path, NPZ_ARRAYS)
    final = arrays.pop("final_observations")
    steps = _one_length(path, {name: values.shape for name, values in arrays.items()})
    if final.shape[1:] != arrays["observations"].shape[1:]:
        raise DataError(
            f"{path.name}: observations are {arrays['observations'].shape[1:]}, final observations {final.shape[1:]}."
        )
    terminations, truncations = (arrays[name].reshape(-1).astype(bool) for name in ("terminations", "truncations"))
    ends = np.flatnonzero(terminations | truncations) + 1
    if len(ends) != len(final) or len(ends) == 0 or ends[-1] != steps:
        raise DataError(
            f"{path.name}: {len(ends)} episode ends, {len(final)} final observations, last end at step "
            f"{ends[-1] if len(ends) else 0} of {steps}; a buffer must hold complete episodes."
        )
    for first, end, last in zip([0, *ends[:-1]], ends, final, strict=True):
        yield _rollout(arrays, slice(int(first), int(end)), last, terminations, truncations)


def read_npz_arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The named numeric arrays of an npz file.

    Raises:
        DataError: an array is missing, not numeric, or declares more than the file or this machine's memory holds.
    """
    with readable(path, "an npz file"):
        _check_npz(path, names)
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in names}
    for name, values in found.items():
        _require_numbers(path, name, values)
    return found


def _check_npz(path: Path, names: tuple[str, ...]) -> None:
    """Compare the size in each array's header with the bytes stored in the archive."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        missing = [name for name in names if name not in members]
        if missing:
            held = ", ".join(printable(name, 40) for name in list(members)[:20])
            raise DataError(f"{path.name} lacks {', '.join(missing)}; it holds {held}.")
        stems = [one.filename.removesuffix(".npy") for one in archive.infolist()]
        for name in names:
            if stems.count(name) > 1:  # `x` beside `x.npy`: NumPy might read the one that is not checked here
                raise DataError(f"{path.name} holds {name} {stems.count(name)} times; each array may be there once.")
            with archive.open(members[name]) as member:
                shape, _, dtype = npy_header(member)
            declared, stored = dtype.itemsize, members[name].compress_size
            for side in shape:
                declared *= int(side)
            total += declared
            if declared < 0 or declared > MAX_RATIO * stored + UNSTORED or total > memory():
                raise DataError(f"{path.name}: {name} declares {declared:,} bytes, of which {stored:,} are stored.")


def npy_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran's order, and type of the array in a `.npy` file, which is read up to its numbers."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    return shape, fortran, dtype


def _require_numbers(path: Path, name: str, values: Any) -> None:
    """Raise DataError unless `values` is a numeric array with one row per step."""
    kind, shape = getattr(getattr(values, "dtype", None), "kind", None), getattr(values, "shape", None)
    if kind is None or shape is None:
        raise DataError(f"{path.name}: {name} is not an array.")
    if kind not in NUMBERS or len(shape) < 1 or len(shape) > 8:
        raise DataError(
            f"{path.name}: {name} has type {printable(values.dtype, 60)} and shape {shape}; expected one row of "
            "numbers per step."
        )


def _one_length(path: Path, shapes: dict[str, tuple[int, ...]]) -> int:
    """The number of steps, which must be equal in all arrays."""
    lengths = {name: shape[0] for name, shape in shapes.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"{path.name}: arrays differ in length: {lengths}.")
    for name, shape in shapes.items():
        if name in FLAT and any(side != 1 for side in shape[1:]):
            raise DataError(f"{path.name}: {name} has shape {shape}; expected one number per step.")
    return lengths["rewards"]


def read_d4rl(path: Path, max_episode_steps: int | None, result: Imported | None = None) -> Iterator[Rollout]:
    """Episodes of a D4RL HDF5 file.

    It reads observations, actions, rewards, terminals and, if present, timeouts and next_observations.

    - An episode ends where a terminal or a timeout is set. If both are set, both flags are kept.
    - If no timeout is set, an episode is also truncated after `max_episode_steps`.
    - Steps after the last end belong to an incomplete episode. Its returns-to-go are unknown, so it is dropped.
    - The observation after an episode's last step is `next_observations` of that step, else that step's own
      observation repeated (no family reads it).

    Raises:
        DataError: an array is missing, stored in another file or not numeric, lengths disagree, or both timeouts and a
            step limit are missing.
    """
    import h5py

    result = result or Imported("")
    check_hdf5(path)
    with readable(path, "an HDF5 file"), h5py.File(path, "r") as file:
        missing = [name for name in D4RL_ARRAYS if name not in file]
        if missing:
            held = ", ".join(printable(name, 40) for name in list(file)[:20])
            raise DataError(f"{path.name} lacks {', '.join(missing)}; it holds {held}.")
        names = [*D4RL_ARRAYS, *(name for name in ("timeouts", "next_observations") if name in file)]
        for name in names:
            _require_numbers(path, name, file[name])
        _one_length(path, {name: file[name].shape for name in names})
        if "next_observations" in names and file["next_observations"].shape != file["observations"].shape:
            raise DataError(f"{path.name}: next_observations and observations differ in shape.")
        terminals, timeouts = _ends(path, file, max_episode_steps, result)
        ends = np.flatnonzero(terminals | timeouts) + 1
        result.dropped_steps = len(terminals) - (int(ends[-1]) if len(ends) else 0)
        first = 0
        for end in ends.tolist():
            with readable(path, f"an HDF5 file, steps {first} to {end - 1}"):
                last = file["next_observations" if "next_observations" in names else "observations"][end - 1]
                one = _rollout(file, slice(first, end), last, terminals, timeouts)
            yield one
            first = end


def _ends(
    path: Path, file: Any, max_episode_steps: int | None, result: Imported
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(T,) terminals and (T,) timeouts of a D4RL file; adds a note for each missing array."""
    terminals = np.asarray(file["terminals"]).reshape(-1).astype(bool)
    timeouts = np.asarray(file["timeouts"]).reshape(-1).astype(bool) if "timeouts" in file else None
    if max_episode_steps and (timeouts is None or not timeouts.any()):
        timeouts = _timeouts(terminals, max_episode_steps)
        result.cut_after = max_episode_steps
        result.notes.append(f"no timeouts in the file: episodes are cut after {max_episode_steps} steps")
    if timeouts is None:
        raise DataError(
            f"{path.name} has no timeouts, so it is unknown where episodes were truncated. Name the environment "
            "(--env) or its step limit (--max-episode-steps)."
        )
    if "next_observations" not in file:
        result.notes.append("no next_observations in the file: each episode's last observation is repeated")
    return terminals, timeouts


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
    arrays: Any, steps: slice, final: Any, terminations: NDArray[np.bool_], truncations: NDArray[np.bool_]
) -> Rollout:
    return Rollout(
        seed=None,  # unknown
        observations=np.concatenate([arrays["observations"][steps], np.asarray(final)[None]]),
        actions=without_column(np.asarray(arrays["actions"][steps])),
        rewards=np.asarray(arrays["rewards"][steps], dtype=np.float64).reshape(-1),
        terminations=terminations[steps],
        truncations=truncations[steps],
    )


def without_column(actions: NDArray[Any]) -> NDArray[Any]:
    """Discrete actions as integers (L,), which replay buffers store as (L, 1) or bool; other actions unchanged."""
    actions = actions.astype(np.int64) if actions.dtype.kind == "b" else actions
    return actions[:, 0] if np.issubdtype(actions.dtype, np.integer) and actions.shape[1:] == (1,) else actions


def read_start(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """The first observation (1, ...) and all actions (T, ...) of a file, from which its spaces are inferred.

    Raises:
        DataError: they cannot be read.
    """
    if path.suffix == ".npz":
        arrays = read_npz_arrays(path, ("observations", "actions"))
        observations, actions = arrays["observations"][:1], arrays["actions"]
    else:
        import h5py

        check_hdf5(path)
        with readable(path, "an HDF5 file"), h5py.File(path, "r") as file:
            observations, actions = file["observations"][:1], file["actions"][:]
    return observations, without_column(actions)
