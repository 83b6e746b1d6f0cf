"""Each demo runs as a visitor runs it, only shorter, and leaves what it says it does."""

from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from agentzoo.agent import Agent
from agentzoo.hub import staging_measurements
from agentzoo.hub.publish import check_folder
from agentzoo.recipe import load_recipe
from agentzoo.store.files import write_atomic

DEMOS = Path(__file__).resolve().parents[1] / "demos"
pytestmark = pytest.mark.slow


def run(name: str, *arguments: object, **environ: str) -> str:
    """What the demo prints. It runs in this process, which has PyTorch imported already; `make demo` has its own."""
    said = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(os.environ, {"COLUMNS": "200", **environ}),  # undoes what a demo sets, too
        redirect_stdout(said),
    ):
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        patch.setattr(staging_measurements, "FRAMES", 50)  # of a film of the whole episode: drawing them takes seconds
        patch.syspath_prepend(str(DEMOS))  # demos import each other
        runpy.run_path(str(DEMOS / name), run_name="__main__")
    return said.getvalue()


def test_quickstart_of_an_agent_without_normalized_scores(tmp_path: Path) -> None:
    said = run("quickstart.py", "--agent", "zoo/dm-pointmaze-medium", "--episodes", 1, "--out", tmp_path)
    assert "reached the goal" in said
    assert {path.name for path in tmp_path.iterdir()} == {"dm-pointmaze-medium.mp4", "dm-pointmaze-medium.gif"}


@pytest.mark.parametrize("agent", ["zoo/dt-hopper-medium", "zoo/dm-hopper-medium"])
def test_evaluate_with_sb3(agent: str) -> None:
    said = run("evaluate_with_sb3.py", "--agent", agent, "--episodes", 1, "--envs", 1, "--steps", 5)
    assert "evaluate_policy: return" in said
    assert "5 steps by hand" in said
    asked = Agent.from_pretrained(agent).target_return
    shown = float(said.split("returns-to-go: [")[1].split("]")[0])
    assert 0.9 * asked < shown < asked  # after five of a thousand steps, and no padding


def test_ask_unimask(tmp_path: Path) -> None:
    said = run("ask_unimask.py", "--out", tmp_path, "--samples", 20)
    assert {path.name for path in tmp_path.iterdir()} == {"past.png", "future.png", "waypoint.png"}
    assert "of 20 histories are possible" in said
    assert "the episode began at (" in said


def test_record(tmp_path: Path) -> None:
    said = run("record.py", "--out", tmp_path, "--frames", 8, "--every", 16, "--targets", 1000)
    assert "asked for 1000: return" in said
    assert {path.suffix for path in tmp_path.glob("asked-1000.*")} == {".mp4", ".gif"}


def test_finetune_small_then_publish(tmp_path: Path) -> None:
    earlier = load_recipe("dt-hopper-medium").replace(
        agent_id="dt-hopper-own"
    )  # what this demo left when it was killed
    write_atomic(tmp_path / "tuned" / "run" / "train_config.json", earlier.to_json())
    (tmp_path / "tuned" / "thesis.txt").write_text("years of work")
    said = run("finetune_small.py", "--collect", 2, "--steps", 5, "--episodes", 1, "--out", tmp_path / "tuned")
    assert "dt-hopper-own" in said
    assert (tmp_path / "tuned" / "thesis.txt").read_text() == "years of work"
    said = run("publish.py", "--from", tmp_path / "tuned", "--out", tmp_path / "zoo")
    assert "NO" not in said
    files, left_out = check_folder(tmp_path / "zoo" / "dt-hopper-own")
    assert {"README.md", "model.safetensors", "results.json", "replay.mp4"} <= set(files)
    assert left_out == []
    recipe = Agent.from_pretrained(tmp_path / "zoo" / "dt-hopper-own").recipe
    assert recipe is not None
    assert recipe.base == "dt-hopper-medium"


@pytest.mark.parametrize("name", ["finetune_small.py", "publish.py"])
def test_a_folder_that_the_demo_did_not_make_is_left_as_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    kept = [tmp_path / "thesis.txt", tmp_path / "run" / "results.txt"]
    for file in kept:
        file.write_text("years of work")
    option = "--out" if name == "finetune_small.py" else "--from"
    done = subprocess.run([sys.executable, str(DEMOS / name), option, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "holds no run of this demo" in done.stderr
    assert [file.read_text() for file in kept] == ["years of work"] * 2


def test_notebooks_run_one_after_the_other(tmp_path: Path) -> None:
    """Kept as Jupytext scripts: what runs here cell by cell is what a notebook holds."""
    said = run("first_hour.py", AGENTZOO_OUT=str(tmp_path))
    asked = [float(line.split(": ")[1].split(" ")[0]) for line in said.splitlines() if line.startswith("asked for")]
    assert asked[0] < 1_300 < asked[1]  # 900 and 3,600 of the same weights
    assert "dt-hopper-own: " in said
    assert {"hopper.mp4", "hopper.gif", "run"} <= {path.name for path in (tmp_path / "first-hour").iterdir()}
    said = run("publish_your_own.py", AGENTZOO_OUT=str(tmp_path))
    assert "files would be pushed" in said
    assert (tmp_path / "zoo" / "dt-hopper-own" / "README.md").is_file()
    assert (tmp_path / "site" / "agents" / "dt-hopper-own.html").is_file()
