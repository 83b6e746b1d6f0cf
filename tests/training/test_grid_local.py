"""A grid on processes of this machine: the same bits as serial runs, whatever is killed in between."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.data.names import is_local
from agentzoo.errors import CheckpointError, ConfigError, TrainingError, UnknownNameError
from agentzoo.hub.verify import check_files
from agentzoo.research.grid import run_task, summarize, tasks_of
from agentzoo.store.files import write_atomic
from agentzoo.training.grid.drive import DRIVER_LOCK, drive
from agentzoo.training.grid.local import LocalEngine
from agentzoo.training.grid.plan import read_plan
from agentzoo.training.grid.status import grid_status
from agentzoo.training.grid.tasks import GRID_LOCK, RunOptions, Task, fail, read_failure
from agentzoo.training.lock import held, holder
from training.grid_cases import (
    assert_equal_to_the_bit,
    break_run,
    serial_weights,
    settings_for,
    small_plan,
    wait_for,
    weights,
    wrap_the_interrupt,
)

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_CACHE", str(tmp_path / "cache"))


def test_a_grid_equals_serial_runs_and_one_that_raises_stops_no_other(tiny_hopper: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    plan = small_plan(out, tiny_hopper, "0-2", evaluate=2)
    broken = plan.rows[1]
    break_run(broken, out)
    outcomes = drive(tasks_of(out, plan), LocalEngine(2), run_task)
    assert {each.folder.name: each.state for each in outcomes} == {
        "dt-hopper-medium-s0": "done",
        "dt-hopper-medium-s1": "failed",
        "dt-hopper-medium-s2": "done",
    }
    for row in (plan.rows[0], plan.rows[2]):
        assert_equal_to_the_bit(weights(out / row.folder), serial_weights(row, tmp_path / "serial"))
    failure = read_failure(out / broken.folder)
    assert failure is not None
    assert "checkpoint.safetensors" in failure.error
    assert "checkpoint.safetensors" in failure.lines[-1]

    summary = summarize(out, plan)
    assert [row["state"] for row in summary.rows] == ["done", "failed", "done"]
    assert summary.rows == json.loads((out / "grid-results.json").read_text())
    with (out / "grid-results.csv").open() as file:
        assert [row["episodes"] for row in csv.DictReader(file)] == ["2", "", "2"]
    assert summary.study is not None
    assert (out / "comparison.png").stat().st_size > 1_000
    # only the one that failed is left, and nothing is measured again
    assert [task.folder.name for task in tasks_of(out, plan)] == [broken.folder]


def test_a_killed_worker_is_started_again_and_loses_nothing(tiny_hopper: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    plan = small_plan(out, tiny_hopper, "0", steps=300)
    (task,) = tasks_of(out, plan)
    with LocalEngine(1) as engine:
        engine.start(run_task, task)
        wait_for(lambda: (task.folder / "checkpoint.safetensors").exists())
        killed = engine.process_of(task.folder)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        outcomes = []
        wait_for(lambda: bool(outcomes.extend(engine.ended(0.2)) or outcomes))
    assert [each.state for each in outcomes] == ["done"]
    assert_equal_to_the_bit(weights(task.folder), serial_weights(plan.rows[0], tmp_path / "serial"))


def test_a_worker_that_is_killed_every_time_is_reported(tiny_hopper: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    plan = small_plan(out, tiny_hopper, "0", steps=100_000)
    (task,) = tasks_of(out, plan)
    with LocalEngine(1, retries=0) as engine:
        engine.start(run_task, task)
        wait_for(lambda: holder(task.folder) is not None)
        os.kill(engine.process_of(task.folder) or 0, signal.SIGKILL)
        outcomes = []
        wait_for(lambda: bool(outcomes.extend(engine.ended(0.2)) or outcomes))
    assert [each.state for each in outcomes] == ["lost"]
    assert "signal 9 (out of memory?)" in outcomes[0].said
    assert [one.state for one in grid_status(out, plan)] == ["failed"]


def notes_its_gpu(task: Task, on_step: Callable[[int], None]) -> None:
    """A job that writes which GPU it sees, and then waits to be stopped."""
    write_atomic(task.folder / "gpu.txt", os.environ["CUDA_VISIBLE_DEVICES"])
    time.sleep(120.0)


@pytest.mark.parametrize(("visible", "expected"), [(None, "0011"), ("3,5", "3355")])
def test_runs_are_spread_over_gpus_and_take_the_place_of_one_that_ended(
    visible: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    def begin(engine: LocalEngine, name: str) -> str:
        engine.start(notes_its_gpu, Task(tmp_path / name, "", 0, RunOptions()))
        wait_for(lambda: (tmp_path / name / "gpu.txt").exists())
        return (tmp_path / name / "gpu.txt").read_text()

    with LocalEngine(9, gpus_per_run=0.5) as engine:
        assert engine.free() == 4
        assert "".join(begin(engine, f"run{i}") for i in range(4)) == expected
        assert engine.free() == 0
        engine.stop(tmp_path / "run1")
        assert begin(engine, "next") == expected[1]


def test_stopping_an_engine_leaves_no_process_and_no_lock(tiny_hopper: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    plan = small_plan(out, tiny_hopper, "0-1", steps=100_000)
    first, second = tasks_of(out, plan)
    with LocalEngine(2) as engine:
        for task in (first, second):
            engine.start(run_task, task)
        wait_for(lambda: all(holder(task.folder) is not None for task in (first, second)))
        engine.stop(first.folder)
        assert (engine.running(), engine.free()) == ([second.folder], 1)
        process = psutil.Process(engine.process_of(second.folder))
    assert not process.is_running()
    for task in (first, second):
        assert holder(task.folder) is None
        assert holder(task.folder, GRID_LOCK) is None
        assert not (task.folder / "failure.json").exists()


def test_a_run_whose_folder_is_in_use_says_so_and_not_why_it_failed_last_week(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fail(folder, "the loss is not finite")
    with held(folder, GRID_LOCK), LocalEngine(1) as engine:
        (found,) = drive([Task(folder, "{}")], engine, wrap_the_interrupt)
    assert found.state == "failed"
    assert "is being trained by process" in found.said


def test_a_stopped_run_has_not_failed_but_one_that_failed_before_has(tmp_path: Path) -> None:
    with LocalEngine(2) as engine:
        for name in ("stopped", "left"):
            engine.start(wrap_the_interrupt, Task(tmp_path / name, str(tmp_path / f"{name} began")))
        wait_for(lambda: all((tmp_path / f"{name} began").exists() for name in ("stopped", "left")))
        engine.stop(tmp_path / "stopped")
        failing = Task(tmp_path / "failing", str(tmp_path / "missing" / "file"))
        engine.start(wrap_the_interrupt, failing)
        wait_for(lambda: not psutil.pid_exists(engine.process_of(failing.folder) or 0))
    assert "in a library's own words" in (tmp_path / "stopped" / "run.log").read_text()
    assert read_failure(tmp_path / "stopped") is read_failure(tmp_path / "left") is None
    failure = read_failure(failing.folder)
    assert failure is not None
    assert failure.error.startswith("FileNotFoundError")


def test_a_killed_driver_takes_its_runs_along_and_the_same_command_finishes(tiny_hopper: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    words = ["grid", "--agents", "dt-hopper-medium", "--out", str(out), "--jobs", "1", "--cpus-per-run", "1", "--yes"]
    for setting in settings_for(tiny_hopper, 1_500):
        words += ["--set", setting]
    driver = subprocess.Popen([sys.executable, "-m", "agentzoo", *words], stderr=subprocess.DEVNULL)
    folder = out / "dt-hopper-medium-s0"
    try:
        wait_for(lambda: (folder / "checkpoint.safetensors").exists() and (holder(folder) or "").isdigit())
        worker = int(holder(folder) or 0)
        refused = CliRunner().invoke(app, words)
        assert isinstance(refused.exception, TrainingError)
        assert f"process {driver.pid} runs a grid" in str(refused.exception)
        found = CliRunner().invoke(app, ["grid", "status", str(out), "--json"])
        assert json.loads(found.stdout)[0]["state"] == "running"
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not psutil.pid_exists(worker), 20)
    assert holder(out, DRIVER_LOCK) is None
    found = CliRunner().invoke(app, ["grid", "status", str(out), "--json"])
    assert json.loads(found.stdout)[0]["state"] == "stopped"

    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0, again.output
    (row,) = small_plan(out, tiny_hopper, "0", steps=1_500).rows
    assert_equal_to_the_bit(weights(folder), serial_weights(row, tmp_path / "serial"))
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert CliRunner().invoke(app, words).exit_code == 0
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_ctrl_c_stops_cleanly(tiny_hopper: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    words = ["grid", "--agents", "dt-hopper-medium", "--seeds", "0-1", "--out", str(out), "--jobs", "2", "--yes"]
    for setting in settings_for(tiny_hopper, 100_000):
        words += ["--set", setting]
    driver = subprocess.Popen([sys.executable, "-m", "agentzoo", *words], stderr=subprocess.PIPE, text=True)
    folders = [out / f"dt-hopper-medium-s{seed}" for seed in (0, 1)]
    try:
        wait_for(lambda: all((holder(folder) or "").isdigit() for folder in folders))
        workers = [int(holder(folder) or 0) for folder in folders]
    finally:
        driver.send_signal(signal.SIGINT)
    _, said = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert "the same command continues" in said
    assert not any(psutil.pid_exists(worker) for worker in workers)
    assert not any(holder(folder) or holder(folder, GRID_LOCK) for folder in folders)


def test_too_little_for_a_run_is_refused_before_anything_starts(tiny_hopper: str, tmp_path: Path) -> None:
    words = ["grid", "--agents", "dt-hopper-medium", "--out", str(tmp_path / "runs"), "--yes"]
    words += ["--set", f"data.dataset={tiny_hopper}"]
    for more, said in (
        (["--cpus-per-run", "4000"], "4000 cores"),
        (["--gpus-per-run", "0.5"], "finds none here"),
        (["--engine", "slurm"], "no engine 'slurm'"),
        (["--engine", "local", "--address", "auto"], "use only one of them"),
        (["--file", "grid.toml"], "either --agents or a --file"),
        (["--set", "data.dataset=zoo/hopper/tinny-v0"], "Did you mean 'zoo/hopper/tiny-v0'"),
    ):
        result = CliRunner().invoke(app, [*words, *more])
        assert isinstance(result.exception, ConfigError | KeyError), (more, result.output)
        assert said in str(result.exception)
    assert not list((tmp_path / "runs").glob("dt-*"))


def test_a_grid_builds_a_dataset_that_is_missing_and_refuses_one_it_cannot_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two families on data of one's own; nothing is built or started where another row needs sources."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.delenv("AGENTZOO_SOURCES", raising=False)
    out = tmp_path / "runs"
    words = ["grid", "--out", str(out), "--jobs", "2", "--yes"]
    sources = CliRunner().invoke(app, [*words, "--agents", "dt-hopper-medium,dt-pointmaze-umaze"])
    assert isinstance(sources.exception, UnknownNameError)
    assert "`agentzoo data build hopper/medium --sources DIR --trust-policies`" in str(sources.exception)
    assert not list(out.glob("dt-*"))
    assert not is_local("zoo/pointmaze/umaze-v0")

    for setting in ("train.steps=5", "train.warmup_steps=0", "eval.every=0", "model.embed_dim=8"):
        words += ["--set", setting]
    made = CliRunner().invoke(app, [*words, "--agents", "dt,bc", "--dataset", "doorkey/train-50", "--target", "max"])
    assert made.exit_code == 0, made.output
    assert is_local("zoo/doorkey/train-50-v0")
    found = grid_status(out, read_plan(out))
    assert [(one.folder, one.state) for one in found] == [
        ("dt-doorkey-train-50-s0", "done"),
        ("bc-doorkey-train-50-s0", "done"),
    ]
    assert {row.recipe.eval.target_rule for row in read_plan(out).rows} == {"max"}


def test_options_that_need_trust_reach_the_runs(tiny_hopper: str, tmp_path: Path) -> None:
    """A reward for staying healthy above what a config may ask for."""
    words = ["grid", "--agents", "dt-hopper-medium", "--jobs", "1", "--yes"]
    options = 'eval.env_options={"healthy_reward": 5000.0}'
    for setting in (*settings_for(tiny_hopper, 10), options):
        words += ["--set", setting]
    refused = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "refused")])
    assert refused.exit_code == 1
    failure = read_failure(tmp_path / "refused" / "dt-hopper-medium-s0")
    assert failure is not None
    assert "--trust-env-options" in failure.error
    trusted = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "trusted"), "--trust-env-options"])
    assert trusted.exit_code == 0, trusted.output


def test_a_grid_is_tracked_with_a_run_for_each_folder(tiny_hopper: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    out = tmp_path / "runs"
    words = ["grid", "--agents", "dt-hopper-medium", "--seeds", "0-1", "--out", str(out), "--jobs", "2", "--yes"]
    for setting in settings_for(tiny_hopper, 10):
        words += ["--set", setting]
    tracked = CliRunner().invoke(app, [*words, "--track", "tensorboard", "--project", "p", "--group", "g"])
    assert tracked.exit_code == 0, tracked.output
    for seed in (0, 1):
        folder = out / f"dt-hopper-medium-s{seed}"
        record = json.loads((folder / "tracking.json").read_text())
        assert (record["project"], record["run_name"], record["group"]) == ("p", folder.name, "g")
        assert list((folder / "p").glob("**/events.out.tfevents.*"))
    unknown = CliRunner().invoke(app, [*words, "--track", "wanbd"])
    assert isinstance(unknown.exception, ConfigError)
    assert "Did you mean 'wandb'" in str(unknown.exception)


def test_a_finished_grid_is_staged_an_agent_with_all_its_seeds(tiny_hopper: str, tmp_path: Path) -> None:
    out, zoo = tmp_path / "runs", tmp_path / "zoo"
    both, alone = (["grid", "--agents", agents] for agents in ("dt-hopper-medium,bc-hopper-medium", "dt-hopper-medium"))
    words = ["--seeds", "0-1", "--out", str(out), "--yes"]
    words += ["--jobs", "2", "--cpus-per-run", "1", "--evaluate", "2", "--stage", "--zoo", str(zoo)]
    for setting in (*settings_for(tiny_hopper, 20), "eval.episodes=2"):
        words += ["--set", setting]
    broken = small_plan(out, tiny_hopper, "1", steps=20).rows[0]
    broken = broken.model_copy(update={"recipe": broken.recipe.override(["eval.episodes=2"])})
    break_run(broken, out)
    partly = CliRunner().invoke(app, [*both, *words])
    assert partly.exit_code == 1
    assert "dt-hopper-medium is not staged: not done: dt-hopper-medium-s1" in " ".join(partly.output.split())
    assert [path.name for path in zoo.iterdir()] == ["bc-hopper-medium"]

    (out / broken.folder / "checkpoint.safetensors").unlink()
    whole = CliRunner().invoke(app, [*alone, *words])
    assert whole.exit_code == 0, whole.output
    for agent_id in ("dt-hopper-medium", "bc-hopper-medium"):
        _, results, checks = check_files(zoo / agent_id)
        assert not [check for check in checks if check.holds is False]
        assert results is not None
        files = (out / f"{agent_id}-s0" / "result.json", out / f"{agent_id}-s1" / "result-as-staged.json")
        first, other = (json.loads(file.read_text()) for file in files)
        assert results.headline.training_seed == first["training_seed"] == 0
        assert results.headline.mean_return == pytest.approx(first["mean_return"], rel=0.01)  # staged in float16
        assert [one.mean_return for one in results.seeds] == [other["mean_return"]]
        assert "training seed" in (zoo / agent_id / "README.md").read_text()

    (zoo / "dt-hopper-medium").rename(zoo / "bc-hopper-medium-before")
    (zoo / "bc-hopper-medium").rename(zoo / "dt-hopper-medium")
    refused = CliRunner().invoke(app, [*alone, *words])
    assert isinstance(refused.exception, CheckpointError)
    assert "holds another agent" in str(refused.exception)
