"""Datasets of images: each frame once, compressed and unchanged; stacks are made when windows are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from agentzoo.data.episodes import Episodes
from agentzoo.data.frames import PADDING, STACK, Frames
from agentzoo.data.making.collect import Rollout, only_last
from agentzoo.data.mapped import map_dataset
from agentzoo.data.minari import load_episodes, write_dataset
from agentzoo.data.windows import WindowSampler
from agentzoo.errors import DataError

LENGTHS = (7, 3)
SIDE = 36  # Minari takes pictures from 32 pixels on for JPEG


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    monkeypatch.setenv("AGENTZOO_CACHE", str(tmp_path / "cache"))


def single(length: int, seed: int) -> NDArray[np.uint8]:
    """(L+1, SIDE, SIDE), a picture with noise that JPEG would not keep, all frames different."""
    rng = np.random.default_rng(seed)
    return rng.integers(1, 256, size=(length + 1, SIDE, SIDE), dtype=np.uint8)


def stacked(frames: NDArray[np.uint8], count: int, zero: bool = False) -> NDArray[np.uint8]:
    """(L+1, count, SIDE, SIDE), as FrameStackObservation makes them."""
    before = np.zeros_like(frames[0]) if zero else frames[0]
    padded = [before] * (count - 1) + list(frames)
    return np.stack([padded[t : t + count] for t in range(len(frames))])


def write(dataset_id: str, observations: list[NDArray[np.uint8]], **extra: Any) -> Path:
    rollouts = [
        Rollout(
            seed=None,
            observations=seen,
            actions=np.arange(len(seen) - 1) % 3,
            rewards=np.ones(len(seen) - 1),
            terminations=only_last(len(seen) - 1, True),
            truncations=only_last(len(seen) - 1, False),
        )
        for seen in observations
    ]
    return write_dataset(
        dataset_id,
        rollouts,
        extra=extra,
        observation_space=gym.spaces.Box(0, 255, observations[0].shape[1:], np.uint8),
        action_space=gym.spaces.Discrete(3),
        algorithm_name="none",
        author="test",
        description="",
    )


def seen_at(episodes: Episodes, steps: list[int]) -> NDArray[np.uint8]:
    """The newest observation of windows of 2 that end at these steps."""
    batch = WindowSampler(episodes, 2, 1.0).until(torch.tensor(steps))
    assert batch.observations.dtype == torch.uint8
    lengths = batch.valid.sum(1)
    assert not batch.observations[lengths == 1, 1].any()  # padding
    return batch.observations[torch.arange(len(steps)), lengths - 1].numpy()


@pytest.mark.parametrize("zero", [False, True])
def test_stacks_are_made_of_single_frames_or_found_in_stored_stacks(zero: bool) -> None:
    frames = [single(length, seed) for seed, length in enumerate(LENGTHS)]
    stacks = [stacked(one, 4, zero) for one in frames]
    write("tests/single-v0", frames, **{STACK: 4, PADDING: "zero" if zero else "reset"})
    write("tests/stacked-v0", stacks)
    want = np.concatenate([one[:-1] for one in stacks])
    digests = set()
    for name in ("tests/single-v0", "tests/stacked-v0"):
        episodes = load_episodes(name)
        assert episodes.observation.image == (4, SIDE, SIDE)
        assert isinstance(episodes.observations, Frames)
        np.testing.assert_array_equal(seen_at(episodes, list(range(10))), want)
        np.testing.assert_array_equal(episodes.observations[:], want)
        assert len(episodes.observations.ends) == sum(LENGTHS) + 2 * zero  # each frame once, and a blank one
        digests.add(episodes.sha256())
    assert len(digests) == 1


@pytest.mark.parametrize("last", [False, True])
def test_channels_come_first_whatever_the_dataset_has(last: bool) -> None:
    seen = np.random.default_rng(0).integers(256, size=(5, 3, SIDE, SIDE), dtype=np.uint8)
    write("tests/color-v0", [np.moveaxis(seen, 1, -1) if last else seen])
    episodes = load_episodes("tests/color-v0")
    assert episodes.observation.channels == ("last" if last else "first")
    np.testing.assert_array_equal(seen_at(episodes, [0, 1, 2, 3]), seen[:4])


def test_frames_are_compressed_on_disk_and_minari_reads_them() -> None:
    minari = pytest.importorskip("minari")
    flat = np.repeat(np.arange(200, dtype=np.uint8), 2)[:, None, None] * np.ones((1, 84, 84), np.uint8)
    path = write("tests/flat-v0", [flat])
    assert (path / "data" / "main_data.hdf5").stat().st_size < flat.size / 50
    np.testing.assert_array_equal(minari.load_dataset("tests/flat-v0")[0].observations, flat)
    assert len(load_episodes("tests/flat-v0").observations.packed) < flat.size / 50


def test_mapped_frames_are_the_same_and_selections_share_them() -> None:
    frames = [single(length, seed) for seed, length in enumerate(LENGTHS)]
    write("tests/mapped-v0", frames, **{STACK: 2})
    plain, mapped = load_episodes("tests/mapped-v0"), map_dataset("tests/mapped-v0")
    assert isinstance(mapped.observations.packed, np.memmap)
    assert mapped.sha256() == plain.sha256()
    np.testing.assert_array_equal(seen_at(mapped, [0, 6, 9]), seen_at(plain, [0, 6, 9]))
    best = mapped.best(0.7)
    np.testing.assert_array_equal(seen_at(best, [1, 2]), seen_at(plain, [1, 2]))
    assert len(best) == 7
    assert np.shares_memory(best.observations.packed, mapped.observations.packed)
    others, held = mapped.held_out(0.5)
    assert {len(others), len(held)} == set(LENGTHS)
    mean, std = mapped.statistics()
    assert (mean.shape, mean.max(), std.min()) == ((2, 1, 1), 0.0, 255.0)


def test_small_numbers_are_symbols_and_divided_by_the_largest_of_their_channel() -> None:
    """As MiniGrid's cells: kind up to 10, colour up to 5, state 0."""
    symbols = np.zeros((12, 3, 7, 7), dtype=np.uint8)
    symbols[5, 0, 2, 2], symbols[10, 1, 0, 0] = 10, 5
    write("tests/symbols-v0", [symbols])
    mean, std = load_episodes("tests/symbols-v0").statistics()
    np.testing.assert_array_equal((mean.ravel(), std.ravel()), ([0, 0, 0], [10, 5, 1]))
    symbols[0, 2, 0, 0] = 33  # brightness
    write("tests/bright-v0", [symbols])
    np.testing.assert_array_equal(load_episodes("tests/bright-v0").statistics()[1].ravel(), [255, 255, 255])


@pytest.mark.parametrize("wrong", [{STACK: 0}, {STACK: "4"}, {STACK: 10**9}, {STACK: 4, PADDING: "mirror"}])
def test_metadata_that_names_no_stack_is_refused(wrong: dict[str, Any]) -> None:
    write("tests/wrong-v0", [single(3, 0)], **wrong)
    with pytest.raises(DataError, match="frame_stack"):
        load_episodes("tests/wrong-v0")


def test_a_stack_that_is_too_large_is_refused() -> None:
    write("tests/large-v0", [np.zeros((3, 3, 120, 160), dtype=np.uint8)], **{STACK: 64})
    with pytest.raises(DataError, match=r"frame_stack=64: a stack of images \(3, 120, 160\) has 3,686,400 numbers"):
        load_episodes("tests/large-v0")


def test_broken_frames_are_an_error_of_ours() -> None:
    write("tests/broken-v0", [single(3, 0)])
    found = load_episodes("tests/broken-v0").observations
    broken = Frames(np.zeros_like(found.packed), found.ends, found.digests, found.stacks, found.sides)
    with pytest.raises(DataError, match="cannot be unpacked"):
        broken[0]
