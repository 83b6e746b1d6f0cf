"""Datasets mapped into memory: the same numbers as from Minari, made once, and held once by all processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import time
import warnings
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch

from agentzoo.data.episodes import Episodes
from agentzoo.data.mapped import MappedEpisodes, footprint, map_dataset
from agentzoo.data.minari import load_episodes
from agentzoo.data.names import datasets_root
from agentzoo.data.windows import WindowSampler
from agentzoo.errors import DataError, UnknownNameError
from agentzoo.store.cache import cache_folder, private_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTZOO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def assert_same(ours: Episodes, plain: Episodes) -> None:
    for field in fields(Episodes):
        found, wanted = getattr(ours, field.name), getattr(plain, field.name)
        if isinstance(wanted, np.ndarray):
            np.testing.assert_array_equal(found, wanted)
            assert found.dtype == wanted.dtype
        else:
            assert found == wanted
    for name in ("timesteps", "steps_left"):
        np.testing.assert_array_equal(getattr(ours, name)(), getattr(plain, name)())
    np.testing.assert_array_equal(ours.scaled_returns_to_go(7.0), plain.scaled_returns_to_go(7.0))
    np.testing.assert_array_equal(ours.statistics(), plain.statistics())


def test_the_cache_is_writable_by_the_user_alone_whatever_the_umask(tiny_hopper: str) -> None:
    """Code is cached in it, too, and is not used if others may write there."""
    before = os.umask(0o002)
    try:
        map_dataset(tiny_hopper)
        private_folder("native")
    finally:
        os.umask(before)


def test_mapped_arrays_and_what_is_derived_equal_the_dataset(tiny_hopper: str) -> None:
    plain = load_episodes(tiny_hopper)
    mapped = map_dataset(tiny_hopper)
    assert_same(mapped, plain)
    assert_same(mapped.best(0.3), plain.best(0.3))
    assert_same(mapped.best(0.3).delayed(), plain.best(0.3).delayed())
    longest = int(plain.lengths.max())
    assert_same(mapped.at_least(longest), plain.at_least(longest))
    for ours, theirs in zip(mapped.held_out(0.3), plain.held_out(0.3), strict=True):
        assert isinstance(ours, MappedEpisodes)
        assert_same(ours, theirs)
    assert mapped.best(1.0) is mapped
    assert isinstance(mapped.best(0.3), MappedEpisodes)


def test_batches_are_the_same_and_pytorch_does_not_warn(tiny_hopper: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = WindowSampler(map_dataset(tiny_hopper), 5, 10.0)
    plain = WindowSampler(load_episodes(tiny_hopper), 5, 10.0)
    first, other = (one.sample(16, torch.Generator().manual_seed(3)) for one in (ours, plain))
    for name in first.__dataclass_fields__:
        assert torch.equal(getattr(first, name), getattr(other, name))


def test_a_dataset_is_read_once_and_again_when_it_changes(tiny_hopper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = map_dataset(tiny_hopper).folder
    assert folder.is_relative_to(cache_folder())
    with monkeypatch.context() as patch:
        patch.setattr("agentzoo.data.mapped.load_episodes", lambda *_: pytest.fail("read again"))
        assert map_dataset(tiny_hopper).folder == folder
    metadata = datasets_root() / tiny_hopper / "data" / "metadata.json"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "author": "another"}))
    assert map_dataset(tiny_hopper).folder.name != folder.name


def test_arrays_that_no_run_used_for_a_month_are_deleted_when_new_ones_are_written(
    tiny_hopper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mapped_by(version: str) -> Path:
        monkeypatch.setattr("agentzoo.data.mapped.__version__", version)
        return map_dataset(tiny_hopper).folder

    old, used = mapped_by("0.0.1"), mapped_by("0.0.2")
    month_ago = time.time() - 31 * 24 * 3600
    for folder in (old, used, old.parent / ".lock"):
        os.utime(folder, (month_ago, month_ago))
    held = MappedEpisodes.open(old)
    mapped_by("0.0.2")  # nothing is written
    assert old.exists()
    mapped_by("0.0.3")
    assert not old.exists()
    assert used.exists()
    assert (old.parent / ".lock").exists()
    assert held.rewards.sum() == load_episodes(tiny_hopper).rewards.sum()


def test_another_version_of_agentzoo_does_not_read_the_arrays_of_this_one(
    tiny_hopper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = map_dataset(tiny_hopper).folder
    monkeypatch.setattr("agentzoo.data.mapped.__version__", "0.0.1")
    assert map_dataset(tiny_hopper).folder.name != folder.name


def test_writing_to_a_mapped_array_leaves_the_file_as_it_is(tiny_hopper: str) -> None:
    mapped = map_dataset(tiny_hopper)
    before = float(mapped.observations[0, 0])
    mapped.observations[0, 0] = before + 1.0
    assert float(MappedEpisodes.open(mapped.folder).observations[0, 0]) == before


def test_unknown_datasets_and_broken_files_are_named(tiny_hopper: str) -> None:
    with pytest.raises(UnknownNameError, match="tiny-v0"):
        map_dataset("zoo/hopper/tinny-v0")
    folder = map_dataset(tiny_hopper).folder
    (folder / "rewards.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match="Delete it"):
        MappedEpisodes.open(folder)


def _read_all(folder: Path, pipe: Connection) -> None:
    sampler = WindowSampler(MappedEpisodes.open(folder), 20, 1000.0)
    for values in (sampler.observations, sampler.actions, sampler.returns_to_go, sampler.timesteps, sampler.left):
        values.sum()
    pipe.send("read")
    pipe.recv()


def test_a_damaged_derived_file_is_named_and_made_again_once_it_is_deleted(tiny_hopper: str) -> None:
    mapped = map_dataset(tiny_hopper)
    wanted = np.array(mapped.steps_left())  # the first derived array: it needs no other one
    path = mapped.folder / "steps_left.npy"
    for content in (b"", path.read_bytes()[:100]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"steps_left\.npy cannot be read: .*Delete it; it will be created again"):
            mapped.steps_left()
    path.unlink()
    np.testing.assert_array_equal(mapped.steps_left(), wanted)


def test_a_cache_deleted_under_a_run_is_made_again(tiny_hopper: str) -> None:
    """The run goes on with its mapped files, and writes what it derives from them into a new folder."""
    running = map_dataset(tiny_hopper)
    shutil.rmtree(running.folder)
    np.testing.assert_array_equal(running.timesteps(), load_episodes(tiny_hopper).timesteps())
    assert running.folder.exists()
    assert_same(map_dataset(tiny_hopper), load_episodes(tiny_hopper))


@pytest.mark.slow
def test_four_processes_hold_one_copy(tiny_hopper: str) -> None:
    """Each has all pages mapped; divided by who shares them they add up to one dataset, and none is private."""
    folder = map_dataset(tiny_hopper).folder
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(4):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=_read_all, args=(folder, theirs)))
        processes[-1].start()
        pipes.append(ours)
    try:
        assert [pipe.recv() for pipe in pipes] == ["read"] * 4
        found = [footprint(process.pid or 0, folder) for process in processes]
    finally:
        for pipe, process in zip(pipes, processes, strict=True):
            pipe.send("end")
            process.join()
    one = max(each.resident for each in found)
    assert one > 100_000
    assert sum(each.proportional for each in found) < 1.1 * one
    assert [each.private for each in found] == [0] * 4
