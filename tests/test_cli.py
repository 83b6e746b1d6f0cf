"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import make_agent
from typer.testing import CliRunner

from agentzoo.cli import app
from agentzoo.errors import CheckpointError
from agentzoo.zoo import list_agents, markdown_table, summaries

PYTHON = sys.executable


def agentzoo(*words: str, env: dict[str, str] | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1", **(env or {})}
    done = subprocess.run(
        [PYTHON, "-m", "agentzoo", *words], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def zoo(tmp_path: Path) -> dict[str, str]:
    make_agent("Hopper-v5", context=5, target_return=100.0).save_pretrained(tmp_path / "zoo" / "dt-test")
    return {"AGENTZOO_ZOO": str(tmp_path / "zoo")}


def test_import_is_light() -> None:
    """Under half a second on an idle machine; here the reason: nothing heavy is loaded."""
    heavy = "{'torch', 'transformers', 'minari', 'mujoco', 'gymnasium'}"
    for module in ("agentzoo", "agentzoo.cli"):
        code = f"import sys, {module}; print({heavy} & set(sys.modules))"
        assert subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_loading_an_agent_needs_neither_transformers_nor_minari(zoo: dict[str, str]) -> None:
    code = (
        "import sys, agentzoo; agentzoo.Agent.from_pretrained('zoo/dt-test');"
        "print([m for m in ('transformers','minari','mujoco') if m in sys.modules])"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **zoo})
    assert done.stdout.strip() == "[]"


def test_list_and_show(zoo: dict[str, str]) -> None:
    listed = json.loads(agentzoo("list", "--json", env=zoo).stdout)
    assert {one["agent_id"]: one["staged"] for one in listed}["dt-test"] is True
    assert "dt-test" in agentzoo("list", env=zoo).stdout
    shown = json.loads(agentzoo("show", "dt-hopper-medium", "--json", env=zoo).stdout)
    assert shown["train"]["steps"] == 20_000
    assert "target_return" in agentzoo("show", "dt-test", env=zoo).stdout
    assert json.loads(agentzoo("info", "--json", env=zoo).stdout)["staged agents"] == 1


def test_a_folder_that_is_no_readable_agent_does_not_hide_the_others(
    zoo: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTZOO_ZOO", zoo["AGENTZOO_ZOO"])
    configs = {"gpt2": {"model_type": "gpt2"}, "torn[": {"agent_id": "torn"}, "dt-hopper-medium": {}}
    for name, config in configs.items():
        folder = Path(zoo["AGENTZOO_ZOO"]) / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").touch()
    listed = {one.agent_id: one for one in summaries()}
    assert "gpt2" not in listed
    assert listed["dt-test"].staged
    for name in ("torn[", "dt-hopper-medium"):
        assert not listed[name].staged
        assert "config.json cannot be used" in str(listed[name].problem)
    assert list_agents() == ["dt-test"]
    assert {"dt-test", "dt-hopper-medium"} == set(configs | {"dt-test": {}}) & set(list_agents(staged_only=False))
    done = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"})
    assert done.output.count("unreadable") == 2
    assert "torn[" in done.output
    with pytest.raises(CheckpointError, match="dt-hopper-medium cannot be read: "):
        markdown_table()


@pytest.mark.slow
def test_evaluate_prints_and_writes_the_record(zoo: dict[str, str], tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    done = agentzoo("evaluate", "dt-test", "-n", "3", "--json", "--output", str(output), env=zoo)
    record = json.loads(done.stdout)
    assert record == json.loads(output.read_text())
    assert (record["episodes"], len(record["returns"]), record["env"]) == (3, 3, "Hopper-v5")
    assert record["score_interval"][0] <= record["score"] <= record["score_interval"][1]
    assert record["command"].startswith("agentzoo evaluate dt-test")
    assert "normalized score" in agentzoo("evaluate", "dt-test", "-n", "1", env=zoo).stdout


def test_errors_are_one_line_with_the_nearest_name(zoo: dict[str, str]) -> None:
    done = agentzoo("evaluate", "dt-tset", env=zoo, code=2)
    assert "no agent 'dt-tset'. Did you mean 'dt-test'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Did you mean 'dt'" in agentzoo("bench", "dtx", code=2).stderr
    assert "must end in .mp4 or .gif" in agentzoo("record", "dt-test", "x.avi", env=zoo, code=2).stderr
    missing = agentzoo("train", "dt-hopper-medium", env={"MINARI_DATASETS_PATH": "/nonexistent/minari"}, code=2).stderr
    assert "agentzoo data build hopper/medium" in missing


def test_enjoy_says_that_there_is_no_display(zoo: dict[str, str]) -> None:
    done = agentzoo("enjoy", "dt-test", "-n", "1", env={**zoo, "DISPLAY": "", "WAYLAND_DISPLAY": ""})
    assert "No display here" in done.stdout
    assert "return" in done.stdout


@pytest.mark.slow
def test_train_then_finetune_then_evaluate(tiny_hopper: str, tmp_path: Path) -> None:
    small = [
        "--set",
        "train.steps=12",
        "--set",
        "train.batch_size=4",
        "--set",
        "model.embed_dim=16",
        "--set",
        "eval.every=6",
    ]
    small += ["--set", "eval.every_episodes=2", "--set", f"data.dataset={tiny_hopper}", "--device", "cpu"]
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    done = agentzoo("train", "dt-hopper-medium", *small, "--out", first)
    assert "step 6: return" in done.stderr
    agentzoo("card", first, "--license", "cc-by-4.0")
    agentzoo(
        "finetune",
        first,
        "--dataset",
        tiny_hopper,
        "--steps",
        "4",
        "--name",
        "mine",
        "--out",
        second,
        "--set",
        "eval.every=0",
    )
    shown = json.loads(agentzoo("show", second, "--json").stdout)
    assert (shown["base"], shown["agent_id"], shown["data"]["normalization"]) == ("dt-hopper-medium", "mine", "keep")
    assert json.loads((tmp_path / "second" / "config.json").read_text())["license"] == "cc-by-4.0"
    recipe, third = str(tmp_path / "second" / "train_config.json"), tmp_path / "third"
    agentzoo("finetune", first, "--recipe", recipe, "--out", str(third))
    assert "either the data" in agentzoo("finetune", first, code=2).stderr
    assert (third / "model.safetensors").read_bytes() == (tmp_path / "second" / "model.safetensors").read_bytes()
    assert json.loads(agentzoo("evaluate", second, "-n", "2", "--json").stdout)["episodes"] == 2
