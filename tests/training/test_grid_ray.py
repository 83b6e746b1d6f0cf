"""A grid on real Ray: the same bits as serial runs, whatever worker or node is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import ConfigError, TrainingError
from agentzoo.research.grid import run_task, tasks_of
from agentzoo.training.grid import cluster
from agentzoo.training.grid.cluster import STORE_BYTES, RayEngine, require_answer
from agentzoo.training.grid.drive import drive, only_driver
from agentzoo.training.grid.tasks import GRID_LOCK, Task, read_failure
from agentzoo.training.lock import holder
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
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_CACHE", str(tmp_path / "cache"))
    package, tests = Path(__file__).parents[2], Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), str(tests), os.environ.get("PYTHONPATH", "")]))


def listening() -> set[str]:
    """Addresses on which this process and all it started listen."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    sockets = [one for process in processes for one in process.net_connections("inet")]
    return {one.laddr.ip.removeprefix("::ffff:") for one in sockets if one.status == psutil.CONN_LISTEN}


def test_a_grid_on_two_workers_equals_serial_runs_and_survives_a_killed_one(tiny_hopper: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    plan = small_plan(out, tiny_hopper, "0-2", steps=300)
    good, broken, killed = (out / row.folder for row in plan.rows)
    break_run(plan.rows[1], out)
    hit: list[int] = []
    addresses: set[str] = set()

    def kill_once(_: list[Path]) -> None:
        who = holder(killed) or ""
        if not hit and (killed / "checkpoint.safetensors").exists() and who.isdigit():
            addresses.update(listening())
            hit.append(int(who))
            os.kill(hit[0], signal.SIGKILL)

    with only_driver(out):
        engine = RayEngine(out, jobs=2)
        outcomes = drive(tasks_of(out, plan), engine, run_task, on_tick=kill_once, seconds=0.05)
        words = ["grid", "--agents", "dt-hopper-medium", "--out", str(out), "--engine", "ray", "--yes"]
        for setting in settings_for(tiny_hopper, 300):
            words += ["--set", setting]
        refused = CliRunner().invoke(app, words)
    assert {each.folder: each.state for each in outcomes} == {good: "done", broken: "failed", killed: "done"}
    assert len(hit) == 1
    for row in (plan.rows[0], plan.rows[2]):
        assert_equal_to_the_bit(weights(out / row.folder), serial_weights(row, tmp_path / "serial"))
    failure = read_failure(broken)
    assert failure is not None
    assert "checkpoint.safetensors" in failure.lines[-1]
    assert isinstance(refused.exception, TrainingError)
    assert "runs a grid" in str(refused.exception)
    assert addresses == {"127.0.0.1"}
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert not list(out.glob(".grid-*"))


def test_a_node_that_is_removed_loses_nothing(tiny_hopper: str, tmp_path: Path) -> None:
    """Two nodes that do not see the folder: runs are copied, and the lost one goes on where there is room."""
    import ray
    from ray.cluster_utils import Cluster

    out = tmp_path / "runs"
    plan = small_plan(out, tiny_hopper, "0-1", steps=300)
    sizes = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=sizes)
    try:
        other = nodes.add_node(**{name: sizes[name] for name in ("num_cpus", "object_store_memory")})
        nodes.wait_for_nodes()
        engine = RayEngine(out, nodes.address, sync=True)
        assert engine.free() == 2
        removed: list[int] = []

        def remove_once(_: list[Path]) -> None:
            if not removed and all((out / row.folder / "checkpoint.safetensors").exists() for row in plan.rows):
                assert all(holder(out / row.folder, GRID_LOCK) for row in plan.rows)
                nodes.remove_node(other, allow_graceful=False)
                removed.append(engine.free())

        outcomes = drive(tasks_of(out, plan), engine, run_task, on_tick=remove_once, seconds=0.05)
        began, stopped = tmp_path / "began", Task(out / "stopped", str(tmp_path / "began"))
        with RayEngine(out, nodes.address, sync=True) as engine:
            engine.start(wrap_the_interrupt, stopped)
            wait_for(began.exists)
            engine.stop(stopped.folder)
    finally:
        ray.shutdown()
        nodes.shutdown()
    assert removed
    assert read_failure(stopped.folder) is None
    assert "in a library's own words" in (stopped.folder / "run.log").read_text()
    assert [each.state for each in outcomes] == ["done", "done"]
    for row in plan.rows:
        assert_equal_to_the_bit(weights(out / row.folder), serial_weights(row, tmp_path / "serial"))
        assert holder(out / row.folder, GRID_LOCK) is None


def test_an_address_nobody_answers_is_an_error_within_twenty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.CONNECT_SECONDS + cluster.ANSWER_SECONDS < 19.0
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 2.0)
    with socket.socket() as silent:  # accepts connections and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for address in (f"127.0.0.1:{silent.getsockname()[1]}", "127.0.0.1:1", "no.such.host.invalid:6379", "head"):
            began = time.monotonic()
            with pytest.raises(ConfigError, match=r"answers at|HOST:PORT"):
                require_answer(address)
            assert time.monotonic() - began < cluster.CONNECT_SECONDS + 2.0 + 2.0


def test_more_than_a_node_has_and_no_ray_at_all_are_refused_before_anything_starts(
    tiny_hopper: str, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    with pytest.raises(ConfigError, match="4000 cores"):
        RayEngine(out, cpus=4000)
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from agentzoo.cli import main\n"
        f"sys.argv = ['agentzoo', 'grid', '--agents', 'dt-hopper-medium', '--engine', 'ray', '--out', {str(out)!r}, "
        f"'--set', 'data.dataset={tiny_hopper}']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'agentzoo[cluster]'" in done.stderr
    assert not list(out.glob("dt-*"))
