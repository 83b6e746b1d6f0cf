"""Runs in trackers, with the real libraries: each update once, and a resumed run goes on in the same tracker run.

wandb and trackio are not among the tested versions of constraints.txt: trackio asks for an older Pillow (below 13).
`.ci/versions` runs this file with the newest ones.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from models.cases import coin_episodes

from agentzoo.training.loop import train
from agentzoo.training.tracking import TRACKING, Tracking
from training.cases import Stopped, recipe, stop_at

ROWS = [5, 10, 15, 20, 25, 30]  # updates that are logged


def stopped_and_resumed(folder: Path, tracked: Tracking, at: int) -> str:
    """Train, stop after update `at`, go on from update 10; the id of the tracker run."""
    with pytest.raises(Stopped):
        train(recipe(), folder, coin_episodes(), hooks=stop_at(at), trackers=tracked, device="cpu")
    time.sleep(1.1)  # wandb names a folder by the second and the id: within one second it would write over the first
    train(recipe(), folder, coin_episodes(), trackers=Tracking(tracked.trackers), device="cpu")
    return str(json.loads((folder / TRACKING).read_text())["run_id"])


def test_tensorboard_has_each_update_once_after_a_resume(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    stopped_and_resumed(tmp_path, Tracking(("tensorboard",)), 17)
    written = events.EventAccumulator(str(tmp_path / "dt-test")).Reload()
    assert [event.step for event in written.Scalars("loss")] == ROWS


def test_wandb_offline_goes_on_under_the_same_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb.sdk")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run_id = stopped_and_resumed(tmp_path, Tracking(("wandb",), project="p", group="g", tags=("a",)), 12)
    written = list((tmp_path / "wandb").glob(f"offline-run-*-{run_id}/*.wandb"))
    assert len(written) == 2
    assert {path.name for path in written} == {f"run-{run_id}.wandb"}
    assert all(b"data.context" in path.read_bytes() for path in written)


def test_trackio_goes_on_in_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    storage = pytest.importorskip("trackio.sqlite_storage", reason="trackio is not installed: it asks for pillow<13")
    tracked = Tracking(("trackio",), project="p", group="g", tags=("a", "b"))
    run_id = stopped_and_resumed(tmp_path / "run", tracked, 17)
    import trackio

    (found,) = trackio.Api().runs("p")
    assert found.name == f"dt-test-s0-{run_id}"
    assert (found.config["data.context"], found.config["tags"]) == (2, "a, b")
    losses: dict[int, set[float]] = {}
    for row in storage.SQLiteStorage.get_logs("p", found.name):  # update 15 comes again, with the same numbers
        losses.setdefault(row["step"], set()).add(row["loss"])
    assert list(losses) == ROWS
    assert all(len(values) == 1 for values in losses.values())
