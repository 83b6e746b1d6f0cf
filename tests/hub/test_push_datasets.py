"""Datasets on a Hub in Minari's layout: pushed, listed, loaded, and nothing half-written on either side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentzoo.data.minari import load_episodes
from agentzoo.data.names import datasets_root
from agentzoo.data.remote import dataset_of
from agentzoo.errors import ConfigError, DataError, HubError, UnknownNameError
from agentzoo.hub.datasets import push_dataset
from hub.cases import write_small
from hub.server import Hub


@pytest.fixture(autouse=True)
def own_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder of datasets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))


def test_a_dataset_whose_data_lie_behind_a_link_is_uploaded_whole(hub: Hub, tmp_path: Path) -> None:
    write_small("test/small/one-v0")
    folder = datasets_root() / "test/small/one-v0"
    (folder / "data").rename(tmp_path / "elsewhere")
    (folder / "data").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    pushed = push_dataset("test/small/one-v0", "me")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "elsewhere").iterdir()}
    assert pushed.bytes == sum(sizes.values()) > 0
    assert {f"small/one-v0/data/{name}" for name in sizes} <= set(hub.repos["datasets:me/test"].head)


def test_a_dataset_goes_up_in_minaris_layout_and_minari_loads_it(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import minari

    ours = [write_small(f"test/small/{name}-v0") for name in ("one", "two")]
    pushed = [push_dataset(f"test/small/{name}-v0", "me") for name in ("one", "two")]
    assert pushed[0].address == "hf://me/test/small/one-v0"
    tree = hub.repos["datasets:me/test"].head
    assert {"small/one-v0/data/metadata.json", "small/one-v0/data/main_data.hdf5"} <= tree.keys()
    assert json.loads(tree["namespace_metadata.json"]) == {
        "datasets": ["test/small/one-v0", "test/small/two-v0"],
        "namespaces": ["test/small"],
    }
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "elsewhere"))
    assert dataset_of("hf://me/test/small/one-v0") == "test/small/one-v0"
    again = load_episodes("test/small/one-v0", download=False)
    np.testing.assert_array_equal(again.observations, ours[0].observations)
    assert not [path for path in (tmp_path / "elsewhere").iterdir() if path.name.startswith(".")]
    seen = len(hub.seen)
    assert dataset_of("hf://me/test/small/one-v0") == "test/small/one-v0"  # it is here
    assert len(hub.seen) == seen
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minaris"))
    monkeypatch.setenv("MINARI_REMOTE", "hf://me")
    assert minari.load_dataset("test/small/two-v0", download=True).total_episodes == 3


def test_a_list_of_datasets_that_cannot_be_read_is_not_replaced(hub: Hub) -> None:
    """The client answers as if the file were missing, if a request for its size fails."""
    for name in ("one", "two"):
        write_small(f"test/small/{name}-v0")
    push_dataset("test/small/one-v0", "me")
    before = hub.repos["datasets:me/test"].head
    hub.fail("HEAD", r"/namespace_metadata\.json", 403)
    with pytest.raises(HubError, match="me/test was not changed"):
        push_dataset("test/small/two-v0", "me")
    assert hub.repos["datasets:me/test"].head == before
    hub.faults.clear()
    push_dataset("test/small/two-v0", "me")
    listed = json.loads(hub.repos["datasets:me/test"].head["namespace_metadata.json"])["datasets"]
    assert listed == ["test/small/one-v0", "test/small/two-v0"]


def test_the_description_of_a_namespace_stays(hub: Hub) -> None:
    for name in ("one", "two"):
        write_small(f"test/small/{name}-v0")
    push_dataset("test/small/one-v0", "me")
    repo = hub.repos["datasets:me/test"]
    repo.commit({**repo.head, "small/namespace_metadata.json": b'{"description": "by hand"}'})
    push_dataset("test/small/two-v0", "me")
    assert repo.head["small/namespace_metadata.json"] == b'{"description": "by hand"}'
    assert "small/two-v0/data/metadata.json" in repo.head


def test_a_dataset_that_does_not_come_leaves_nothing(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="could not be fetched"):
        dataset_of("hf://me/test/none-v0")
    assert not [path for path in (tmp_path / "datasets").rglob("*") if path.is_file()]
    with pytest.raises(ConfigError, match="looks like hf://OWNER"):
        dataset_of("hf://me/../../x-v0")
    assert dataset_of("zoo/hopper/medium-v0") == "zoo/hopper/medium-v0"


def test_a_download_that_breaks_off_leaves_nothing_and_is_repeated(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = write_small("test/small/one-v0")
    push_dataset("test/small/one-v0", "me")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("MINARI_REMOTE", "hf://me")
    for name, error in (("test/small/one-v0", UnknownNameError), ("hf://me/test/small/one-v0", DataError)):
        hub.fail("GET", "main_data", 403)
        with pytest.raises(error):
            load_episodes(dataset_of(name))
        assert not (tmp_path / "elsewhere" / "test").exists()
        hub.faults.clear()
    np.testing.assert_array_equal(load_episodes("test/small/one-v0").observations, ours.observations)


def test_a_dataset_that_trickles_in_is_given_up(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small("test/small/one-v0")
    push_dataset("test/small/one-v0", "me")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("AGENTZOO_HUB_TIMEOUT", "1")
    hub.drip = 0.02
    with pytest.raises(DataError, match="StoppedError"):
        dataset_of("hf://me/test/small/one-v0")
    assert not (tmp_path / "elsewhere" / "test").exists()


def test_a_local_dataset_of_another_origin_is_used_with_a_warning(hub: Hub, recwarn: Any) -> None:
    write_small("test/small/one-v0")
    address = push_dataset("test/small/one-v0", "me").address
    with pytest.warns(UserWarning, match=r"hf://me/test/small/one-v0 is not fetched: .* was not fetched by agentzoo"):
        dataset_of(address)
    shutil.rmtree(datasets_root() / "test")
    dataset_of(address)
    recwarn.clear()
    dataset_of(address)
    assert not recwarn
    with pytest.warns(UserWarning, match="was fetched as hf://me/test/small/one-v0 and is used instead"):
        dataset_of("hf://you/test/small/one-v0")
    pushed = push_dataset("test/small/one-v0", "you")
    assert "small/one-v0/origin.txt" not in hub.repos["datasets:you/test"].head
    assert pushed.address == "hf://you/test/small/one-v0"
