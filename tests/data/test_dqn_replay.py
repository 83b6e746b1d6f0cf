"""The public DQN replay layout, written small by the test, as a Minari dataset."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from agentzoo.data.making.import_files import import_file
from agentzoo.data.minari import load_episodes
from agentzoo.data.windows import WindowSampler
from agentzoo.errors import DataError

STEPS, ENDS = 12, (4, 9)  # steps after 9 belong to an episode that the file cuts off


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, NDArray[Any]]:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    rng = np.random.default_rng(0)
    terminal = np.zeros(STEPS, dtype=np.uint8)
    terminal[np.array(ENDS) - 1] = 1
    return {
        "observation": rng.integers(1, 256, size=(STEPS, 84, 84), dtype=np.uint8),
        "action": (np.arange(STEPS) % 6).astype(np.int32),
        "reward": np.arange(STEPS, dtype=np.float32),
        "terminal": terminal,
    }


def store(folder: Path, arrays: dict[str, NDArray[Any]], name: str = "{}.gz") -> Path:
    folder.mkdir()
    for part, values in arrays.items():
        with gzip.open(folder / name.format(part), "wb") as file:
            np.save(file, values, allow_pickle=False)
    return folder


@pytest.mark.parametrize("name", ["{}.gz", "$store$_{}_ckpt.0.gz"])
def test_a_replay_folder_becomes_stacks_of_four(tmp_path: Path, replay: dict[str, NDArray[Any]], name: str) -> None:
    found = import_file(store(tmp_path / "replay", replay, name), "dqn/small-v0")
    assert found.dropped_steps == 3
    episodes = load_episodes("dqn/small-v0")
    assert episodes.lengths.tolist() == [4, 5]
    assert episodes.returns.tolist() == [0 + 1 + 2 + 3, 4 + 5 + 6 + 7 + 8]
    assert (episodes.observation.image, episodes.action.size) == ((4, 84, 84), 18)
    np.testing.assert_array_equal(episodes.actions, replay["action"][:9])
    batch = WindowSampler(episodes, 3, 1.0).at(torch.tensor([0, 4]))
    seen, frames = batch.observations.numpy(), replay["observation"]
    assert not seen[0, 0, :3].any()  # zeros before the first frame
    np.testing.assert_array_equal(seen[0, 2], np.stack([np.zeros_like(frames[0]), *frames[:3]]))
    np.testing.assert_array_equal(seen[1, 0, 3], frames[4])
    assert not seen[1, 0, :3].any()  # of the last episode nothing


def test_folders_that_are_no_replay_say_why(tmp_path: Path, replay: dict[str, NDArray[Any]]) -> None:
    missing = store(tmp_path / "missing", {k: v for k, v in replay.items() if k != "reward"})
    with pytest.raises(DataError, match=r"has no reward\.gz"):
        import_file(missing, "dqn/missing-v0")
    short = store(tmp_path / "short", {**replay, "action": replay["action"][:5]})
    with pytest.raises(DataError, match="disagree on the number of steps"):
        import_file(short, "dqn/short-v0")
    cut = store(tmp_path / "cut", replay)
    whole = (cut / "observation.gz").read_bytes()
    (cut / "observation.gz").write_bytes(whole[: len(whole) // 3])
    with pytest.raises(DataError, match=r"observation\.gz"):
        import_file(cut, "dqn/cut-v0")
    large = store(tmp_path / "large", {**replay, "observation": np.zeros((STEPS, 600, 600), np.uint8)})
    with pytest.raises(DataError, match=r"a stack of images \(1, 600, 600\) has 1,440,000 numbers"):
        import_file(large, "dqn/large-v0")
    assert not (tmp_path / "data" / "dqn").exists()
