"""Data files of strangers: links to other files, sizes that are not there, and bytes of any kind."""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from agentzoo.data.hdf5 import check_hdf5
from agentzoo.data.making.import_files import import_file
from agentzoo.data.minari import load_episodes
from agentzoo.data.summary import summarize
from agentzoo.errors import AgentzooError, DataError, SpaceError

SECRET = b"root:x:0:0:root:/root:/bin/bash\n" * 40


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of this machine that no dataset may show."""
    path = tmp_path / "passwd"
    path.write_bytes(SECRET)
    return path


def external_storage(file: h5py.File, name: str, shape: tuple[int, ...], secret: Path) -> None:
    size = int(np.prod(shape))
    file.create_dataset(name, shape, np.uint8, external=[(str(secret), 0, size)])


def external_link(file: h5py.File, name: str, shape: tuple[int, ...], secret: Path) -> None:
    other = secret.with_name("other.h5")
    with h5py.File(other, "w") as there:
        there[name] = np.zeros(shape, np.float32)
    file[name] = h5py.ExternalLink(str(other), name)


def virtual(file: h5py.File, name: str, shape: tuple[int, ...], secret: Path) -> None:
    other = secret.with_name("other.h5")
    with h5py.File(other, "w") as there:
        there[name] = np.zeros(shape, np.float32)
    layout = h5py.VirtualLayout(shape, np.float32)
    layout[:] = h5py.VirtualSource(str(other), name, shape)
    file.create_virtual_dataset(name, layout)


def soft_link(file: h5py.File, name: str, shape: tuple[int, ...], secret: Path) -> None:
    external_link(file, "out", shape, secret)
    file[name] = h5py.SoftLink("/out")


REFUSED = r"is stored in another file|is a link to another object|is a view of other files"
LINKS = [external_storage, external_link, virtual, soft_link]
Link = Callable[[h5py.File, str, tuple[int, ...], Path], None]


def columns(steps: int = 4) -> dict[str, Any]:
    return {
        "observations": np.zeros((steps, 11), np.float32),
        "actions": np.full((steps, 3), 0.5, np.float32),
        "rewards": np.zeros(steps, np.float32),
        "terminals": np.arange(steps) == steps - 1,
        "timeouts": np.zeros(steps, bool),
    }


@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "infos/deep"])
@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.__name__)
def test_a_d4rl_file_with_links_is_refused_unread(
    link: Link, name: str, secret: Path, root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as file:
        for key, values in columns().items():
            if key != name:
                file[key] = values
        link(file, name, columns().get(name, np.zeros(4)).shape, secret)
    with pytest.raises(DataError, match=REFUSED):
        import_file(path, "tests/x-v0")
    assert not (root / "tests").exists()


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.__name__)
def test_a_minari_dataset_with_links_is_refused_unread(link: Link, secret: Path, tiny_hopper: str) -> None:
    path = Path(os.environ["MINARI_DATASETS_PATH"]) / tiny_hopper / "data" / "main_data.hdf5"
    assert len(load_episodes(tiny_hopper).lengths) == 20
    with h5py.File(path, "a") as file:
        shape = file["episode_3/observations"].shape
        del file["episode_3/observations"]
        link(file, "episode_3/observations", shape, secret)
    for read in (load_episodes, summarize):
        with pytest.raises(DataError, match=REFUSED):
            read(tiny_hopper)


def test_h5py_alone_would_show_the_file(secret: Path, tmp_path: Path) -> None:
    """So that the tests above are about something."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        external_storage(file, "observations", (40, 32), secret)
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["observations"][:].tobytes() == SECRET[:1280]


def test_arrays_that_declare_more_than_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("observations", (10**9, 100), np.float32, chunks=(1000, 100), compression="gzip")
    began = time.perf_counter()
    with pytest.raises(DataError, match=r"observations declares 400,000,000,000 bytes, of which the file stores 0"):
        check_hdf5(path)
    assert time.perf_counter() - began < 2.0
    with h5py.File(path, "w") as file:  # zeros compress as well as anything can
        file.create_dataset("timeouts", data=np.zeros(10_000_000, bool), compression="gzip", compression_opts=9)
    check_hdf5(path)


def test_a_group_in_itself_and_groups_without_end(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a/b"] = 1.0
        file["a/again"] = file["a"]
    check_hdf5(path)
    with h5py.File(path, "w") as file:
        file["/".join("x" * 30)] = 1.0
    with pytest.raises(DataError, match="deeper than 20 groups"):
        check_hdf5(path)


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def buffer() -> dict[str, Any]:
    return {
        "observations": np.zeros((4, 11), np.float32),
        "actions": np.full((4, 3), 0.5, np.float32),
        "rewards": np.zeros(4, np.float32),
        "terminations": np.array([False, True, False, True]),
        "truncations": np.zeros(4, bool),
        "final_observations": np.zeros((2, 11), np.float32),
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rewards", np.float32(1.0)),
        ("rewards", np.zeros((4, 2))),
        ("rewards", np.array([b"a"] * 4)),
        ("actions", np.zeros((4, 3), np.complex64)),
        ("actions", np.array(["2020-01-01"] * 4, "datetime64[D]")),
        ("actions", np.array([-1, 0, 1, 2**40])),
        ("observations", np.zeros((4, 11), [("x", "f4")])),
        ("terminations", np.zeros((4, 4), bool)),
        ("final_observations", np.zeros(())),
        ("final_observations", np.zeros((2, 3))),
    ],
)
def test_malformed_arrays_of_a_buffer_are_refused(name: str, value: Any, root: Path, tmp_path: Path) -> None:
    import_file(npz(tmp_path / "good.npz", **buffer()), "tests/good-v0")
    with pytest.raises(AgentzooError):
        import_file(npz(tmp_path / "x.npz", **{**buffer(), name: value}), "tests/x-v0")
    if name != "final_observations" and value.dtype.kind != "M":  # HDF5 has no dates
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            for key, values in columns().items():
                file[key] = value if key == {"terminations": "terminals"}.get(name, name) else values
        with pytest.raises(AgentzooError):
            import_file(path, "tests/x-v0")


def test_numbers_that_float32_cannot_hold_are_no_data(root: Path, tmp_path: Path) -> None:
    import_file(npz(tmp_path / "x.npz", **{**buffer(), "observations": np.full((4, 11), 1e300)}), "tests/x-v0")
    with pytest.raises(DataError, match="observations are not finite"):
        load_episodes("tests/x-v0")


def test_an_npz_header_that_declares_terabytes(root: Path, tmp_path: Path) -> None:
    path = npz(tmp_path / "x.npz", **buffer())
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 11)})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**members, "observations.npy": header.getvalue()}.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match=r"observations declares 88,000,000,000,000 bytes, of which \d+ are stored"):
        import_file(path, "tests/x-v0")


def test_an_npz_array_beside_one_of_the_same_name_is_not_read(root: Path, tmp_path: Path) -> None:
    """NumPy reads `rewards` and not `rewards.npy`, whose size alone would have been checked."""
    path, content = npz(tmp_path / "x.npz", **buffer()), io.BytesIO()
    np.save(content, np.ones(4))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("rewards", content.getvalue())
    with np.load(path) as file:
        assert file["rewards"].tolist() == [1, 1, 1, 1]
    with pytest.raises(DataError, match=r"x\.npz holds rewards 2 times"):
        import_file(path, "tests/x-v0")


def test_metadata_without_end_is_not_read(tiny_hopper: str) -> None:
    path = Path(os.environ["MINARI_DATASETS_PATH"]) / tiny_hopper / "data" / "metadata.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="not a regular file"):
        load_episodes(tiny_hopper)


@pytest.mark.parametrize("episodes", [2**31, 10**9, -1, 20.0, "20", None, True])
def test_a_count_of_episodes_that_would_fill_the_memory(episodes: object, tiny_hopper: str) -> None:
    path = Path(os.environ["MINARI_DATASETS_PATH"]) / tiny_hopper / "data" / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "total_episodes": episodes}))
    began = time.perf_counter()
    with pytest.raises(DataError, match="episodes; a file of this size holds"):
        load_episodes(tiny_hopper)
    assert time.perf_counter() - began < 5.0


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("actions", (2, 2), "actions must be a one-dimensional float Box or Discrete"),
        ("actions", (0,), "no network supports"),
        ("observations", (0,), "no network supports"),
        ("observations", (8, 8, 8), "the axis of channels is not clear"),
    ],
)
def test_a_file_that_no_agent_could_read_is_not_imported(
    name: str, shape: tuple[int, ...], says: str, root: Path, tmp_path: Path
) -> None:
    columns = {"observations": np.zeros((4, 3)), "actions": np.zeros((4, 2)), "rewards": np.zeros(4)}
    columns[name] = np.zeros((4, *shape), np.uint8 if len(shape) == 3 else np.float32)
    with h5py.File(tmp_path / "file.hdf5", "w") as file:
        for key, values in {**columns, "terminals": np.ones(4, bool), "timeouts": np.zeros(4, bool)}.items():
            file[key] = values
    with pytest.raises(SpaceError, match=says):
        import_file(tmp_path / "file.hdf5", "my/data-v0")
    assert not (root / "my").exists()
