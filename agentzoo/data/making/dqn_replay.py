"""The public layout of DQN's replay buffers on Atari: a folder of gzipped arrays, one frame a step.

`observation.gz` (T, 84, 84) uint8, `action.gz`, `reward.gz` and `terminal.gz` (T,), each an `.npy` file in gzip; or
Dopamine's names, `$store$_observation_ckpt.N.gz`. The frame of a step is the newest one of the stack from which its
action was chosen.

Source: Agarwal et al. 2020, arXiv:1907.04543, and Dopamine, arXiv:1812.06110: networks see stacks of 4 frames, with
zeros before an episode's first. The layout has no frame after an episode's last step; the last frame is repeated.
"""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentzoo.data.frames import PADDING, STACK
from agentzoo.data.hdf5 import NUMBERS, readable
from agentzoo.data.making.buffers import Imported, npy_header
from agentzoo.data.making.collect import Rollout, only_last
from agentzoo.errors import DataError, printable
from agentzoo.store.tensors import memory

PARTS = ("observation", "action", "reward", "terminal")
METADATA = {STACK: 4, PADDING: "zero"}
LONGEST = 108_000  # steps of an episode: Atari's own limit is 108,000 frames


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read_dqn_replay(folder: Path, result: Imported) -> Iterator[Rollout]:
    """The whole episodes of a folder; at most one is held at a time, beside actions, rewards and ends.

    Steps after the last end of an episode are left out, and counted in `result`.

    Raises:
        DataError: a file is missing, occurs twice or is broken, or lengths disagree.
    """
    files = {part: _file_of(folder, part) for part in PARTS}
    actions, rewards, terminals = (_whole(files[part]) for part in PARTS[1:])
    with gzip.open(files["observation"]) as stream, readable(files["observation"], "a gzipped array"):
        header = _header(stream, files["observation"])
        if len(header.shape) != 3 or header.dtype != np.uint8:
            raise DataError(f"{files['observation']} holds {header.shape} {header.dtype}, frames are (T, H, W) uint8.")
        lengths = {"observation": header.shape[0], "action": len(actions)}
        lengths |= {"reward": len(rewards), "terminal": len(terminals)}
        if len(set(lengths.values())) != 1:
            raise DataError(f"{folder}: the files disagree on the number of steps: {lengths}.")
        ends = np.flatnonzero(terminals) + 1
        result.dropped_steps += len(actions) - int(ends[-1] if len(ends) else 0)
        for first, end in zip([0, *ends[:-1]], ends, strict=False):
            length = int(end - first)
            if length > LONGEST:
                raise DataError(f"{folder}: the episode at step {first} has {length:,} steps, at most {LONGEST:,} fit.")
            frames = _frames(stream, length, header.shape[1:], files["observation"])
            yield Rollout(
                seed=None,
                observations=np.concatenate((frames, frames[-1:])),
                actions=actions[first:end].astype(np.int64),
                rewards=rewards[first:end].astype(np.float64),
                terminations=only_last(length, True),
                truncations=only_last(length, False),
            )


def _file_of(folder: Path, part: str) -> Path:
    name = re.compile(rf"(\$store\$_)?{part}(_ckpt\.\d+)?\.gz")
    found = sorted(path for path in folder.iterdir() if name.fullmatch(path.name))
    if len(found) != 1:
        said = "has no" if not found else f"has {len(found)} files of the kind"
        raise DataError(
            f"{folder} {said} {part}.gz; a folder of the DQN replay layout has one each of "
            f"{', '.join(f'{name}.gz' for name in PARTS)}."
        )
    return found[0]


def _header(stream: IO[bytes] | Any, path: Path) -> _Header:
    """Shape and type of the `.npy` inside, in C order."""
    shape, fortran, dtype = npy_header(stream)
    if fortran or dtype.kind not in NUMBERS or any(side < 0 for side in shape):
        raise DataError(f"{path} holds {printable(str(dtype), 60)}, which are not numbers in C order.")
    return _Header(tuple(int(side) for side in shape), dtype)


def _whole(path: Path) -> NDArray[Any]:
    """A (T,) array."""
    with readable(path, "a gzipped array"), gzip.open(path) as stream:
        header = _header(stream, path)
        if len(header.shape) != 1:
            raise DataError(f"{path} holds an array {header.shape}; expected one number per step.")
        size = header.shape[0] * header.dtype.itemsize
        if size > memory():
            raise DataError(f"{path} declares {size:,} bytes; this machine has {memory():,} of memory.")
        return np.frombuffer(_exactly(stream, size, path), dtype=header.dtype)


def _frames(stream: Any, length: int, sides: tuple[int, ...], path: Path) -> NDArray[np.uint8]:
    size = length * math.prod(sides)
    if size > memory():
        raise DataError(f"{path}: an episode of {size:,} bytes; this machine has {memory():,} of memory.")
    content = _exactly(stream, size, path)
    return np.frombuffer(content, dtype=np.uint8).reshape(length, *sides)


def _exactly(stream: Any, size: int, path: Path) -> bytes:
    content: bytes = stream.read(size)
    if len(content) != size:
        raise DataError(f"{path} ends early: it declares more numbers than it holds.")
    return content
