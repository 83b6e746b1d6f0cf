"""Building datasets: what exists is kept, what is lost is found, and sources are read only if trusted."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import h5py
import numpy as np
import pytest
from conftest import Payload
from stable_baselines3 import SAC

from agentzoo.data.fetching import minari_root
from agentzoo.data.making.build import build
from agentzoo.data.making.collect import Rollout, collect, only_last
from agentzoo.data.making.dataset_recipe import BuildOptions
from agentzoo.data.making.policies import load_policy
from agentzoo.data.making.provide import provide
from agentzoo.data.minari import load_episodes, write_dataset
from agentzoo.data.returns import read_returns
from agentzoo.errors import ConfigError, DataError, StorageError, UnknownNameError
from agentzoo.store.files import HOST
from data.cases import HOPPER, one_step


def ends_its_process(*_: int) -> list[Rollout]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def test_a_worker_that_is_killed_is_an_error_in_words_and_leaves_nothing(root: Path) -> None:
    with pytest.raises(DataError, match=r"a worker process ended while it played episodes\. .* use fewer workers"):
        write_dataset(HOPPER, collect(ends_its_process, 1, seed=0, workers=2), env=gym.make("Hopper-v5"))
    assert [path for path in root.rglob("*") if path.is_file()] == []


def test_an_existing_dataset_is_kept_unless_asked(root: Path) -> None:
    write_dataset(HOPPER, [one_step(1.0)], env=gym.make("Hopper-v5"))
    with pytest.raises(DataError, match="--overwrite"):
        write_dataset(HOPPER, [one_step(2.0)], env=gym.make("Hopper-v5"))
    assert load_episodes(HOPPER).rewards.tolist() == [1.0]
    write_dataset(HOPPER, [one_step(2.0)], overwrite=True, env=gym.make("Hopper-v5"))
    assert load_episodes(HOPPER).rewards.tolist() == [2.0]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs Linux's second disk in memory")
def test_a_dataset_that_lies_on_another_disk_is_replaced_there(root: Path) -> None:
    write_dataset(HOPPER, [one_step(1.0)], env=gym.make("Hopper-v5"))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        moved = Path(shutil.move(root / HOPPER, Path(other) / "moved-v0"))
        (root / HOPPER).symlink_to(moved, target_is_directory=True)
        write_dataset(HOPPER, [one_step(2.0)], overwrite=True, env=gym.make("Hopper-v5"))
        assert load_episodes(HOPPER).rewards.tolist() == [2.0]
        assert (root / HOPPER).is_symlink()
        assert [path.name for path in Path(other).iterdir()] == ["moved-v0"]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs Linux's second disk in memory")
def test_the_first_dataset_of_a_folder_on_another_disk(root: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        (root / "zoo").mkdir(parents=True)
        (root / "zoo" / "hopper").symlink_to(other, target_is_directory=True)
        write_dataset(HOPPER, [one_step(1.0)], env=gym.make("Hopper-v5"))
        assert load_episodes(HOPPER).rewards.tolist() == [1.0]
        assert [path.name for path in Path(other).iterdir()] == ["medium-v0"]


def test_a_dataset_lost_in_a_killed_replacement_is_found_again(root: Path) -> None:
    write_dataset(HOPPER, [one_step(1.0)], env=gym.make("Hopper-v5"))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    aside = (root / HOPPER).with_name(f".replaced-medium-v0-{HOST}-{dead.pid}")
    (root / HOPPER).rename(aside)
    with pytest.raises(DataError, match="--overwrite"):
        write_dataset(HOPPER, [one_step(2.0)], env=gym.make("Hopper-v5"))
    assert load_episodes(HOPPER).rewards.tolist() == [1.0]
    (root / HOPPER).rename(aside)
    assert load_episodes(HOPPER).rewards.tolist() == [1.0]
    (root / HOPPER).rename(aside)
    assert not provide(HOPPER)  # it need not be built
    assert load_episodes(HOPPER).rewards.tolist() == [1.0]


def test_a_dataset_that_another_process_finished_meanwhile_is_kept(root: Path) -> None:
    def slow() -> Iterator[Rollout]:
        with minari_root(root):  # as in another process
            write_dataset(HOPPER, [one_step(1.0)], env=gym.make("Hopper-v5"))
        yield one_step(2.0)

    with pytest.raises(DataError, match="--overwrite"):
        write_dataset(HOPPER, slow(), env=gym.make("Hopper-v5"))
    assert load_episodes(HOPPER).rewards.tolist() == [1.0]
    write_dataset(HOPPER, [one_step(2.0)], overwrite=True, env=gym.make("Hopper-v5"))
    assert load_episodes(HOPPER).rewards.tolist() == [2.0]


@pytest.mark.parametrize("free", [1 << 22, 1 << 24])
def test_a_disk_that_is_nearly_full_is_not_written_to(free: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(root.parent)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    if free == 1 << 24:
        write_dataset(HOPPER, [one_step()], env=gym.make("Hopper-v5"))
    else:
        with pytest.raises(
            StorageError,
            match=r"No space left on device.*[^.]\. Make room, or set MINARI_DATASETS_PATH to another folder\.$",
        ):
            write_dataset(HOPPER, [one_step()], env=gym.make("Hopper-v5"))
        assert list(root.rglob("*.hdf5")) == []


@pytest.mark.parametrize("choice", [0.5, np.nan])
def test_choices_that_are_no_whole_numbers_are_refused(choice: float, root: Path) -> None:
    actions = np.array([choice])
    one = replace(one_step(), observations=np.zeros((2, 4), np.float32), actions=actions)
    write_dataset("my/cart-v0", [one], env=gym.make("CartPole-v1"))
    with pytest.raises(DataError, match=f"action {choice}; a choice among 2 is a whole number"):
        load_episodes("my/cart-v0")


def test_two_rewards_a_step_are_refused(root: Path) -> None:
    path = write_dataset(HOPPER, [one_step()], env=gym.make("Hopper-v5")) / "data" / "main_data.hdf5"
    with h5py.File(path, "r+") as file:
        del file["episode_0/rewards"]
        file["episode_0/rewards"] = np.ones((1, 2))
    with pytest.raises(DataError, match=r"rewards are not one number per step"):
        read_returns(HOPPER)
    shapes = r"needs arrays \(L,\), one number per step; it holds rewards \(1, 2\) float64, terminations \(1,\) bool"
    with pytest.raises(DataError, match=rf"episode 0 {shapes}"):
        load_episodes(HOPPER)


@pytest.mark.parametrize("flag", ["terminations", "truncations"])
def test_an_episode_that_goes_on_after_its_end_is_refused(flag: str, root: Path) -> None:
    """Two episodes stored as one would have returns-to-go over both."""
    flags = np.array([False, True, False])
    two = Rollout(
        0, np.zeros((4, 11)), np.zeros((3, 3), np.float32), np.ones(3), only_last(3, True), only_last(3, False)
    )
    write_dataset(HOPPER, [replace(two, **{flag: flags})], env=gym.make("Hopper-v5"))
    with pytest.raises(DataError, match=r"episode 0 terminates or is truncated at step 2 of 3, so it holds several"):
        load_episodes(HOPPER)


def test_no_episode_is_no_dataset(root: Path) -> None:
    with pytest.raises(DataError, match="no episode"):
        write_dataset(HOPPER, [], env=gym.make("Hopper-v5"))
    assert not (root / HOPPER).exists()


def test_a_policy_that_cannot_be_fetched_raises_a_data_error(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UnknownNameError, match=r"--trust-policies downloads sb3/tqc-Hopper-v3 .* can run code"):
        build("hopper/expert", BuildOptions(tmp_path))
    with pytest.raises(DataError, match="policy sb3/tqc-Hopper-v3 could not be fetched"):
        build("hopper/expert", BuildOptions(tmp_path, trust_policies=True))


@pytest.mark.parametrize("content", ["noise", "another environment"])
def test_a_file_that_is_no_policy_is_an_error_in_words(content: str, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "sac-hopper-medium.zip"
    if content == "noise":
        file.write_bytes(b"noise")
    else:
        SAC("MlpPolicy", gym.make("Pendulum-v1"), buffer_size=10, policy_kwargs={"net_arch": [16]}).save(file)
    with pytest.raises(DataError, match=r"sac-hopper-medium\.zip is not a SAC policy for Hopper-v5: Error"):
        build("hopper/medium", BuildOptions(tmp_path, steps=10, trust_policies=True))
    assert not (root / HOPPER).exists()


def test_a_policy_in_a_folder_of_sources_runs_no_code_unless_it_is_trusted(root: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    model = SAC("MlpPolicy", gym.make("Hopper-v5"), buffer_size=10, policy_kwargs={"net_arch": [16]})
    model.tensorboard_log = Payload(mark)
    model.save(tmp_path / "sac-hopper-medium")
    with pytest.raises(ConfigError, match=r"sac-hopper-medium.zip is a policy .* uses pickle.*--trust-policies"):
        build("hopper/medium", BuildOptions(tmp_path, steps=10))
    assert not mark.exists()
    build("hopper/medium", BuildOptions(tmp_path, steps=10, trust_policies=True))
    assert mark.exists()  # so the refusal above is about something


def test_a_policy_that_changes_after_its_hash_was_recorded_is_not_loaded(sources: Path, tmp_path: Path) -> None:
    path = tmp_path / "sac-hopper-medium.zip"
    path.write_bytes((sources / path.name).read_bytes())
    file = BuildOptions(tmp_path, trust_policies=True).policy(path.name)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(DataError, match="changed after its hash was recorded"):
        load_policy(file, gym.make("Hopper-v5"))


def test_options_that_make_no_sense_are_refused(root: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTZOO_SOURCES", raising=False)
    with pytest.raises(ConfigError, match="without --steps"):
        build("doorkey/train-50", BuildOptions(steps=10))
    with pytest.raises(ConfigError, match="start at 1"):
        build("hopper/medium", BuildOptions(sources, workers=0))
    with pytest.raises(UnknownNameError, match="hopper/medium"):
        build("hoper/medium", BuildOptions(sources))
    with pytest.raises(UnknownNameError, match="AGENTZOO_SOURCES"):
        build("hopper/medium", BuildOptions())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_root_is_a_storage_error(root: Path) -> None:
    root.mkdir()
    root.chmod(0o500)
    advice = "Check the folder's permissions, or set MINARI_DATASETS_PATH to another folder."
    with pytest.raises(StorageError, match=rf"Permission denied: '[^']*'\. {advice}$"):
        write_dataset(HOPPER, [one_step()], env=gym.make("Hopper-v5"))


def test_a_root_that_cannot_be_made_is_not_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    root = tmp_path / "file" / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    with pytest.raises(StorageError) as refused:
        write_dataset(HOPPER, [one_step()], env=gym.make("Hopper-v5"))
    assert str(refused.value) == (
        f"dataset '{HOPPER}' was not written to {root}: nothing can be written in {root}: "
        f"[Errno {errno.ENOTDIR}] {os.strerror(errno.ENOTDIR)}: '{root}'. "
        "Check the folder's permissions, or set MINARI_DATASETS_PATH to another folder."
    )
