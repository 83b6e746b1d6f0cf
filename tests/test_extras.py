"""What is not part of a plain installation is asked for by its extra's name, and nothing else is asked for."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from agentzoo.errors import ConfigError
from agentzoo.extras import needed

ROOT = Path(__file__).parents[1]
OPTIONAL = ("accelerate", "minari", "h5py", "scipy", "imageio", "imageio_ffmpeg", "transformers", "tokenizers")
ABSENT = "import sys\nfor name in {names!r}:\n    sys.modules[name] = None\n"


def without_extras(script: str) -> subprocess.CompletedProcess[str]:
    """Run Python where none of the optional packages imports."""
    code = ABSENT.format(names=OPTIONAL) + script
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(
        ConfigError, match=r"a video needs none_such, which is not installed: pip install 'agentzoo\[video\]'"
    ):
        needed("none_such.inner", "video", "a video")
    assert needed("numpy", "train", "training") is np


def test_an_agent_loads_acts_and_is_measured_without_extras() -> None:
    found = without_extras(
        "from agentzoo import Agent, evaluate, list_agents\n"
        "agent = Agent.from_pretrained('unimask-doorkey', local_files_only=True)\n"
        "result = evaluate(agent, episodes=2, n_envs=2)\n"
        "assert len(result.returns) == 2 and list_agents()\n"
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("from agentzoo.data.minari import load_episodes; load_episodes('zoo/none-v0')", "train"),
        ("from agentzoo.training.machine import check_machine; check_machine(None, ())", "train"),
        (
            "from agentzoo.evaluation.film import Clip, save_video; import numpy as np; from pathlib import Path; "
            "save_video(Clip.__new__(Clip), Path('x.mp4'))",
            "video",
        ),
    ],
)
def test_an_error_names_the_extra_to_install(call: str, extra: str) -> None:
    found = without_extras(call)
    assert f"pip install 'agentzoo[{extra}]'" in found.stderr, found.stderr


def test_the_core_is_light() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {line.split(">")[0].split("[")[0] for line in project["dependencies"]}
    heavy = {"accelerate", "minari", "scipy", "imageio", "transformers", "mujoco", "matplotlib", "onnx", "ray"}
    assert not core & heavy
    extras = project["optional-dependencies"]
    assert "sys_platform == 'linux'" in extras["mamba"][0]
    assert all(">=" in line or line.startswith("agentzoo[") for lines in extras.values() for line in lines)


def test_the_readme_names_every_extra_and_what_all_holds() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`.*`) \|", (ROOT / "README.md").read_text().split("| extra |")[1].split("\n\n")[0], re.M)
    named = re.findall(r"`([a-z]+)`", " ".join(rows))
    assert sorted([*named, "dev"]) == sorted(extras)
    assert set(extras["all"][0][len("agentzoo[") : -1].split(",")) == set(named[: named.index("all")])
