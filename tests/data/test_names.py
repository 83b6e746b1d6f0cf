"""Names of datasets, known without the modules that make and read them."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from agentzoo import envs
from agentzoo.data.fetching import fetch
from agentzoo.data.making.catalogue import DATASETS
from agentzoo.data.minari import open_dataset
from agentzoo.data.names import GAMES, RECIPES, dataset_id, datasets_root, local_ids, require_possible
from agentzoo.data.remote import dataset_of
from agentzoo.errors import StorageError, UnknownNameError
from agentzoo.store.watch import StoppedError


def test_the_names_are_those_of_the_catalogue() -> None:
    assert set(RECIPES) == set(DATASETS)
    assert {dataset_id(name) for name in RECIPES} == {recipe.dataset_id for recipe in DATASETS.values()}


def test_a_name_is_possible_where_it_is_here_or_a_remote_may_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    (tmp_path / "zoo" / "hopper" / "medium-v0" / "data").mkdir(parents=True)
    (tmp_path / ".fetching" / "x-v0" / "data").mkdir(parents=True)
    (tmp_path / "no-version" / "data").mkdir(parents=True)
    (tmp_path / "zoo" / "back").symlink_to(tmp_path, target_is_directory=True)
    assert list(local_ids()) == ["zoo/hopper/medium-v0"]
    for name in ("hopper/medium", "zoo/hopper/medium-v0", "mujoco/hopper/medium-v0", "hf://me/a/b-v0"):
        require_possible(name)
    with pytest.raises(UnknownNameError, match="Make it with `agentzoo data build hopper/expert`"):
        require_possible("hopper/expert")
    with pytest.raises(UnknownNameError, match="`agentzoo data behaviour agentzoo/Pong-v5 --threshold R`, and import"):
        require_possible("zoo/pong/replay-v0")
    assert [f"{game.lower()}/replay" for game in envs.GAMES] == list(GAMES)
    for name in ("zoo/hopper/medium-v0/", "./zoo/hopper/medium-v0", "zoo//hopper/medium-v0"):
        with pytest.raises(UnknownNameError, match=r"is not a dataset's id\. Did you mean 'zoo/hopper/medium-v0'"):
            require_possible(name)
    with pytest.raises(UnknownNameError, match=r"is not a dataset's id\. Did you mean 'zoo/hopper/medium-v0'"):
        require_possible(str(tmp_path / "zoo" / "hopper" / "medium-v0"))
    for name in ("hopper/medum", "zoo/mine-v0", "../zoo/hopper/medium-v0"):
        with pytest.raises(UnknownNameError, match="no dataset"):
            require_possible(name)


def test_without_a_home_folder_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    with pytest.raises(StorageError, match=r"Could not determine home directory\. Set MINARI_DATASETS_PATH"):
        list(local_ids())


def test_a_link_names_a_dataset_again_and_a_link_to_a_folder_above_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "plain-v0" / "data").mkdir(parents=True)
    for link, target in {"al/alias-v0": "plain-v0", "al/up": ".", "al/beside": "al"}.items():
        (tmp_path / link).parent.mkdir(exist_ok=True)
        (tmp_path / link).symlink_to(tmp_path / target, target_is_directory=True)
    assert sorted(local_ids(tmp_path)) == ["al/alias-v0", "plain-v0"]


def test_a_name_like_no_other_gets_the_command_that_lists_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(UnknownNameError) as unknown:
        require_possible("zoo/mine-v0")
    assert str(unknown.value) == (
        f"no dataset 'zoo/mine-v0' in {tmp_path}. "
        "`agentzoo data list` shows what is there; MINARI_DATASETS_PATH names another folder."
    )
    with pytest.raises(UnknownNameError, match=r"Did you mean 'hopper/medium'\?$"):
        require_possible("hopper/medum")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_takes_no_download_is_not_blamed_on_the_remote(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setattr("minari.download_dataset", refuse)
    with pytest.raises(StorageError, match=f"{os.strerror(number)}.*MINARI_DATASETS_PATH"):
        open_dataset("my/x-v0")
    with pytest.raises(StorageError, match=os.strerror(number)):
        dataset_of("hf://me/my/x-v0")


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs Linux's second disk in memory")
def test_a_download_into_a_folder_on_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str) -> None:
        folder = datasets_root() / name / "data"
        folder.mkdir(parents=True)
        (folder / "metadata.json").write_text("{}")

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setattr("minari.download_dataset", download)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        (tmp_path / "my").symlink_to(other, target_is_directory=True)
        fetch("my/x-v0", "my/x-v0")
        assert (Path(other) / "x-v0" / "data" / "metadata.json").is_file()
        assert sorted(path.name for path in Path(other).iterdir()) == ["x-v0"]


def test_an_error_tells_an_unreachable_remote_from_one_without_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> None:
        raise StoppedError("no connection to huggingface.co.")

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setattr("minari.download_dataset", refuse)
    with pytest.raises(UnknownNameError, match="remote could not be asked: no connection"):
        open_dataset("my/x-v0")
