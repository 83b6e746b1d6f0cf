"""D4RL's HDF5 layout with its traps, and replay buffers as npz: steps and episode ends worked out by hand."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import h5py
import minari
import numpy as np
import pytest
from conftest import ClosingEnv

from agentzoo.data.making.import_files import import_file
from agentzoo.data.minari import load_episodes
from agentzoo.errors import ConfigError, DataError, SpaceError
from agentzoo.training.loop import build_model
from agentzoo.training.planning import plan
from data.importing_cases import ID, columns, write_h5


def ends(dataset_id: str) -> list[tuple[list[float], bool, bool]]:
    """(rewards, terminated, truncated) of each episode, as minari reads them."""
    return [
        (episode.rewards.tolist(), bool(episode.terminations[-1]), bool(episode.truncations[-1]))
        for episode in minari.load_dataset(dataset_id).iterate_episodes()
    ]


def test_terminals_and_timeouts_end_episodes_and_the_cut_one_is_left_out(root: Path, tmp_path: Path) -> None:
    file = write_h5(tmp_path / "hopper.hdf5", columns(9, terminals=[2], timeouts=[5]))
    found = import_file(file, ID, env_id="Hopper-v5")
    assert ends(ID) == [([0, 1, 2], True, False), ([3, 4, 5], False, True)]
    assert found.dropped_steps == 3
    dataset = minari.load_dataset(ID)
    assert dataset.env_spec.id == "Hopper-v5"
    assert load_episodes(ID).observations[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_terminal_and_timeout_on_one_step_end_it_once(root: Path, tmp_path: Path) -> None:
    import_file(write_h5(tmp_path / "h.h5", columns(4, terminals=[1], timeouts=[1, 3])), ID, env_id="Hopper-v5")
    assert ends(ID) == [([0, 1], True, True), ([2, 3], False, True)]


def test_without_timeouts_episodes_end_at_the_limit(root: Path, tmp_path: Path) -> None:
    """After the terminal at step 1, the limit of 3 steps counts afresh: 2-4, 5-7, and step 8 is cut off."""
    file = write_h5(tmp_path / "h.hdf5", columns(9, terminals=[1]))
    found = import_file(file, ID, env_id="Hopper-v5", max_episode_steps=3)
    assert ends(ID) == [([0, 1], True, False), ([2, 3, 4], False, True), ([5, 6, 7], False, True)]
    assert found.dropped_steps == 1
    assert any("no timeouts" in note for note in found.notes)
    with pytest.raises(DataError, match="--max-episode-steps"):
        import_file(file, "d4rl/hopper/other-v2")  # neither timeouts nor an environment to ask


def test_timeouts_of_which_none_is_set_are_no_timeouts(root: Path, tmp_path: Path) -> None:
    """Else episodes would go on across resets."""
    file = write_h5(tmp_path / "h.hdf5", columns(6, terminals=[1], timeouts=[]))
    found = import_file(file, ID, max_episode_steps=2)
    assert ends(ID) == [([0, 1], True, True), ([2, 3], False, True), ([4, 5], False, True)]
    assert any("no timeouts" in note for note in found.notes)
    import_file(file, "d4rl/hopper/other-v2")  # without a limit the file is taken at its word
    assert ends("d4rl/hopper/other-v2") == [([0, 1], True, False)]


def test_a_limit_without_effect_is_reported(root: Path, tmp_path: Path) -> None:
    file = write_h5(tmp_path / "h.hdf5", columns(6, terminals=[1], timeouts=[5]))
    found = import_file(file, ID, max_episode_steps=2)
    assert [len(rewards) for rewards, _, _ in ends(ID)] == [2, 4]
    assert "--max-episode-steps 2 has no effect: the file marks where episodes end" in found.notes
    assert not any("no effect" in note for note in import_file(file, ID, env_id="Hopper-v5", overwrite=True).notes)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_true_and_false_are_two_actions(shape: tuple[int, ...], root: Path, tmp_path: Path) -> None:
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays["actions"] = np.array([True, False, True, True]).reshape(shape)
    import_file(write_h5(tmp_path / "h.hdf5", arrays), ID)
    episodes = load_episodes(ID)
    assert (episodes.action.kind, episodes.action.size) == ("discrete", 2)
    assert episodes.actions.tolist() == [1, 0, 1, 1]


def test_a_terminal_on_the_limit_is_both(root: Path, tmp_path: Path) -> None:
    import_file(write_h5(tmp_path / "h.hdf5", columns(3, terminals=[2])), ID, max_episode_steps=3)
    assert ends(ID) == [([0, 1, 2], True, True)]


@pytest.mark.parametrize("known", [True, False])
def test_the_observation_after_the_last_step(known: bool, root: Path, tmp_path: Path) -> None:
    arrays = columns(4, terminals=[1, 3], timeouts=[])
    if known:
        arrays["next_observations"] = arrays["observations"] + 100
    found = import_file(write_h5(tmp_path / "h.hdf5", arrays), ID)
    last = [episode.observations[-1, 0] for episode in minari.load_dataset(ID).iterate_episodes()]
    assert last == ([101, 103] if known else [1, 3])
    assert any("repeated" in note for note in found.notes) != known


def test_a_buffer_of_whole_episodes(root: Path, tmp_path: Path) -> None:
    arrays = columns(5, [])
    del arrays["terminals"]
    arrays |= {
        "terminations": np.array([0, 1, 0, 0, 0], bool),
        "truncations": np.array([0, 0, 0, 0, 1], bool),
        "final_observations": np.full((2, 11), 7.0, np.float32),
    }
    np.savez(tmp_path / "buffer.npz", **arrays)
    import_file(tmp_path / "buffer.npz", ID, env_id="Hopper-v5")
    assert ends(ID) == [([0, 1], True, False), ([2, 3, 4], False, True)]
    assert minari.load_dataset(ID)[1].observations[:, 0].tolist() == [2, 3, 4, 7]

    arrays["truncations"] = np.zeros(5, bool)
    np.savez(tmp_path / "cut.npz", **arrays)
    with pytest.raises(DataError, match="complete episodes"):
        import_file(tmp_path / "cut.npz", "d4rl/hopper/cut-v0")
    del arrays["rewards"]
    np.savez(tmp_path / "less.npz", **arrays)
    with pytest.raises(DataError, match="lacks rewards"):
        import_file(tmp_path / "less.npz", "d4rl/hopper/cut-v0")
    assert list(minari.list_local_datasets()) == [ID]


@pytest.mark.parametrize("suffix", ["npz", "hdf5"])
@pytest.mark.parametrize("shape", [(9, 11, 3), (9, 11)])
def test_images_stay_images_without_an_environment(
    shape: tuple[int, ...], suffix: str, root: Path, tmp_path: Path
) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, *shape), dtype=np.uint8)
    arrays = columns(4, terminals=[1, 3], timeouts=[])
    arrays |= {"observations": frames[:4], "actions": np.array([0, 2, 1, 0]), "next_observations": frames[1:]}
    path = tmp_path / f"frames.{suffix}"
    if suffix == "npz":
        ends = {"terminations": arrays["terminals"], "truncations": np.zeros(4, bool)}
        np.savez(path, **arrays, **ends, final_observations=frames[[2, 4]])
    else:
        write_h5(path, arrays)
    import_file(path, ID)
    stored = minari.load_dataset(ID)
    assert stored.observation_space == gym.spaces.Box(0, 255, shape, np.uint8)
    np.testing.assert_array_equal(stored[1].observations, frames[2:])
    recipe, episodes = plan(
        "dt-pixel", dataset=ID, env="agentzoo/Breakout-v5", settings=["model.convolutions=[[4,3,2]]"]
    )
    assert episodes.observation.image == (shape[-1] if len(shape) == 3 else 1, 9, 11)
    assert build_model(recipe, episodes).takes_images


def test_an_environment_that_an_import_names_is_closed(root: Path, tmp_path: Path) -> None:
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays["observations"], arrays["actions"] = np.zeros((4, 3)), np.zeros((4, 2))
    import_file(write_h5(tmp_path / "h.hdf5", arrays), ID, env_id="tests/Closing-v0")
    with pytest.raises(SpaceError):
        import_file(write_h5(tmp_path / "h.hdf5", columns(4, [3], [])), ID, env_id="tests/Closing-v0", overwrite=True)
    assert not ClosingEnv.open


def broken(kind: str, path: Path) -> Path:
    arrays = columns(4, terminals=[3], timeouts=[])
    if kind == "negative":
        arrays["actions"] = np.array([0, -1, 1, 0])
    elif kind == "pairs":
        arrays["actions"] = np.zeros((4, 2), np.int64)
    elif kind == "nan":
        arrays["rewards"] = np.array([0.0, 0.0, np.nan, 0.0])
    elif kind == "bytes lost":
        file = write_h5(path / "lost.hdf5", arrays)
        with h5py.File(path / "whole.hdf5", "w") as whole:
            for name, values in arrays.items():
                whole.create_dataset(name, data=values, chunks=True, compression="gzip")
            offset = whole["rewards"].id.get_chunk_info(0).byte_offset
        data = bytearray((path / "whole.hdf5").read_bytes())
        data[offset : offset + 8] = b"\xff" * 8
        file.write_bytes(bytes(data))
        return file
    elif kind == "one array":
        np.save(path / "x.npy", arrays["rewards"])
        (path / "x.npy").rename(path / "x.npz")
        return path / "x.npz"
    elif kind == "final":
        ends = {"terminations": arrays["terminals"], "truncations": np.zeros(4, bool)}
        kept = {name: arrays[name] for name in ("observations", "actions", "rewards")}
        np.savez(path / "final.npz", **kept, **ends, final_observations=np.zeros((1, 5)))
        return path / "final.npz"
    elif kind == "missing":
        del arrays["rewards"]
    elif kind == "lengths":
        arrays["rewards"] = arrays["rewards"][:3]
    elif kind == "no end":
        arrays = columns(4, terminals=[], timeouts=[])
    elif kind == "pickle":
        np.save(path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
        (path / "x.npy").rename(path / "pickle.npz")
        return path / "pickle.npz"
    elif kind in ("truncated", "empty"):
        np.savez(path / "buffer.npz", **arrays)
        whole = (path / "buffer.npz").read_bytes()
        (path / "buffer.npz").write_bytes(whole[: len(whole) // 2] if kind == "truncated" else b"")
        return path / "buffer.npz"
    elif kind == "garbage":
        (path / "garbage.hdf5").write_bytes(b"no HDF5 at all")
        return path / "garbage.hdf5"
    elif kind == "other":
        (path / "table.csv").write_text("a,b")
        return path / "table.csv"
    return write_h5(path / f"{kind}.hdf5", arrays)


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("missing", DataError, "lacks rewards"),
        ("lengths", DataError, "differ in length"),
        ("no end", DataError, "no complete episode"),
        ("pickle", DataError, "cannot be read"),
        ("truncated", DataError, "cannot be read as an npz file"),
        ("empty", DataError, "cannot be read as an npz file"),
        ("garbage", DataError, "cannot be read"),
        ("other", ConfigError, "neither"),
        ("negative", DataError, "whole numbers from -1 to 1, but choices are counted from 0. Store"),
        ("pairs", DataError, r"an action is \(2,\) whole numbers. One choice a step is supported"),
        ("nan", DataError, "rewards hold nan at step 2, which is not finite"),
        ("bytes lost", DataError, "cannot be read as an HDF5 file, steps 0 to 3"),
        ("one array", DataError, "cannot be read as an npz file"),
        ("final", DataError, r"observations are \(11,\), final observations \(5,\)"),
    ],
)
def test_what_cannot_be_imported(kind: str, error: type[Exception], says: str, root: Path, tmp_path: Path) -> None:
    with pytest.raises(error, match=says):
        import_file(broken(kind, tmp_path), ID)
    assert minari.list_local_datasets() == {}


@pytest.mark.parametrize("pixel", [0.5, -1.0, 256.0])
def test_scaled_frames_are_not_cast_to_the_pixels_of_an_environment(pixel: float, root: Path, tmp_path: Path) -> None:
    arrays = columns(4, terminals=[1, 3], timeouts=[])
    arrays["observations"], arrays["actions"] = np.full((4, 4, 84, 84), 7.0, np.float32), np.array([0, 2, 1, 0])
    file = write_h5(tmp_path / "whole.hdf5", arrays)
    import_file(file, ID, env_id="agentzoo/Breakout-v5")
    assert (load_episodes(ID).observations[:] == 7).all()
    arrays["observations"][2, 3, 5, 5] = pixel
    with pytest.raises(DataError, match=rf"hold {pixel:g} at step 2, but .* whole numbers \(uint8\).*without scaling"):
        import_file(write_h5(tmp_path / "scaled.hdf5", arrays), ID, env_id="agentzoo/Breakout-v5", overwrite=True)
    arrays["observations"][2, 3, 5, 5] = np.nan
    with pytest.raises(DataError, match="observations hold nan at step 2, which is not finite"):
        import_file(write_h5(tmp_path / "nan.hdf5", arrays), ID, env_id="agentzoo/Breakout-v5", overwrite=True)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "env"), [("actions", None), ("observations", "tests/Closing-v0")])
def test_numbers_beyond_the_type_of_a_space_are_not_imported(
    name: str, env: str | None, root: Path, tmp_path: Path
) -> None:
    arrays = columns(4, terminals=[3], timeouts=[])
    arrays |= {"observations": np.zeros((4, 3)), "actions": np.zeros((4, 2))}
    arrays[name][1] = 1e300
    with pytest.raises(DataError, match=rf"{name} hold 1e\+300 at step 1, which is not finite as float32"):
        import_file(write_h5(tmp_path / "h.hdf5", arrays), ID, env_id=env)
