"""The wheel: small, with its agents inside, and enough by itself: a fresh environment, another folder, no network."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pytest

from agentzoo.agent import Agent
from agentzoo.nn.native import compiled
from agentzoo.store.locate import FILES

ROOT = Path(__file__).resolve().parents[1]
BUNDLED = ast.literal_eval(re.search(r"^BUNDLED = (\(.*?\))$", (ROOT / "setup.py").read_text(), re.M | re.S)[1])  # type: ignore[index]
MEGABYTE = 1024 * 1024
NO_NETWORK = """
import sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise SystemExit(f"the network was asked: {event} {arguments}")
sys.addaudithook(refuse)
"""
LOAD = """
import json, sys, agentzoo
from agentzoo import Agent, list_agents
agent = Agent.from_pretrained("zoo/" + sys.argv[1])
space = agent.observation_space
space.seed(0)
action, _ = agent.predict(space.sample(), deterministic=True)
print(json.dumps({"file": agentzoo.__file__, "action": action.tolist(), "agents": list_agents()}))
"""


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTZOO", "HF_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**plain, **environ}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `python -m build` does, by way of an sdist, from a copy of what git holds of it."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "agentzoo", source / "agentzoo", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "hub_cards", source / "hub_cards")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", source / "dist", cwd=source)
    (found,) = (source / "dist").glob("*.whl")
    return Path(found)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts folder of a fresh environment that holds the wheel, and borrows what it depends on from this one."""
    env = tmp_path_factory.mktemp("env")
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=env)
    python = env / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=env)
    (packages,) = (env / "lib").glob("python*/site-packages")
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")  # no .pth of theirs is read
    return env / "bin"


@pytest.mark.slow
def test_the_wheel_is_small_and_holds_what_it_should(wheel: Path) -> None:
    assert wheel.stat().st_size < 30 * MEGABYTE
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"agentzoo/hub_index.json", "agentzoo/py.typed"} <= names
    assert {f"agentzoo/nn/native/{name}" for name in (*compiled.SOURCES, *compiled.HEADERS)} <= names
    site = ROOT / "agentzoo" / "site"
    parts = [path for folder in ("static", "templates") for path in (site / folder).rglob("*") if path.is_file()]
    assert {f"agentzoo/site/{path.relative_to(site).as_posix()}" for path in parts} <= names
    bundled = {name for name in names if name.startswith("agentzoo/bundled/")}
    assert bundled == {f"agentzoo/bundled/{agent}/{file}" for agent in BUNDLED for file in FILES}
    assert not [name for name in names if name.startswith(("tests", "demos", "hub_cards", "setup"))]


@pytest.mark.slow
@pytest.mark.parametrize("agent_id", BUNDLED)
def test_an_installed_wheel_acts_without_a_network(
    installed: Path, agent_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Agent.from_pretrained(ROOT / "hub_cards" / agent_id)
    output = run(installed / "python", "-c", NO_NETWORK + LOAD, agent_id, cwd=tmp_path, HOME=str(tmp_path))
    found = json.loads(output)
    assert Path(found["file"]).is_relative_to(installed.parent)
    assert found["agents"] == sorted(BUNDLED)
    space = here.observation_space
    space.seed(0)
    action, _ = here.predict(space.sample(), deterministic=True)
    np.testing.assert_allclose(found["action"], action, atol=1e-5)


@pytest.mark.slow
def test_a_folder_of_ones_own_comes_before_what_is_bundled(installed: Path, tmp_path: Path) -> None:
    zoo = tmp_path / "zoo"
    shutil.copytree(ROOT / "hub_cards" / BUNDLED[0], zoo / "dt-mine")
    listed = json.loads(run(installed / "agentzoo", "list", "--json", cwd=tmp_path, AGENTZOO_ZOO=str(zoo)))
    assert {one["agent_id"] for one in listed if one["staged"]} == {"dt-mine", *BUNDLED}
