"""The live page's steps are Gymnasium's, and it takes only the pinned archives of npm."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentzoo.envs import DOORKEY, DOORKEY_STEPS
from agentzoo.envs.making import make_env
from agentzoo.errors import ConfigError, HubError
from agentzoo.site.live import npm, page
from agentzoo.site.live.scenes import misread, scene_of
from showroom.cases import flat, placed

SCENES = (
    ("Hopper-v5", {}),
    ("HalfCheetah-v5", {}),
    ("Walker2d-v5", {}),
    ("PointMaze_UMaze-v3", {"continuing_task": False}),
    ("PointMaze_Medium-v3", {"continuing_task": False}),
    (DOORKEY, {}),
)


STEPS = 200
SAME_STEP = 1e-6  # measured: 2e-8 between MuJoCo 4.0.0 in Python and 3.14.0 in WebAssembly
STEP_ALL = """
import fs from "fs";
import load from "./mujoco.js";
import { makeEnvironment } from "./environments.js";
const mujoco = await load();
const found = JSON.parse(fs.readFileSync("recorded.json")).map(({ scene, start, actions }) => {
  const env = makeEnvironment(mujoco, scene);
  env.goal = start.goal;
  if (scene.kind === "grid") env.place(start.agent, start.key);
  else env.place(start.positions, start.velocities);
  return actions.map((action) => env.step(action));
});
fs.writeFileSync("stepped.json", JSON.stringify(found));
"""


@pytest.fixture
def in_node() -> Callable[[Path, str, str], str]:
    """What a module of JavaScript prints: (its folder, its name, its text) -> output."""
    node = shutil.which("node") or pytest.skip("no node here: apt-get install nodejs")

    def run(folder: Path, name: str, text: str) -> str:
        (folder / name).write_text(text)
        done = subprocess.run([node, name], cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return run


def test_200_steps_equal_gymnasiums(libraries: Path, in_node: Callable[[Path, str, str], str]) -> None:
    recorded, expected = [], []
    for env_id, options in SCENES:
        env, rng = make_env(env_id, **options), np.random.default_rng(0)
        env.action_space.seed(0)
        env.reset(seed=1)
        start, actions, steps = placed(env), [], []
        for _ in range(STEPS):
            space: Any = env.action_space
            action = rng.uniform(-0.6, 0.6, space.shape).astype(np.float32) if space.shape else space.sample()
            obs, reward, terminated, truncated, _ = env.step(action)
            actions.append(action.tolist())
            steps.append((flat(obs), float(reward), bool(terminated), bool(truncated)))
            if truncated:
                break
        recorded.append({"scene": scene_of(env_id, options), "start": start, "actions": actions})
        expected.append(steps)
    (libraries / "recorded.json").write_text(json.dumps(recorded))
    in_node(libraries, "step.mjs", STEP_ALL)
    stepped = json.loads((libraries / "stepped.json").read_text())
    assert len(stepped) == len(SCENES)
    for (env_id, _), steps, found in zip(SCENES, expected, stepped, strict=True):
        assert len(found) == len(steps) >= 10
        for (obs, reward, terminated, truncated), got in zip(steps, found, strict=True):
            assert got["observation"] == pytest.approx(obs, abs=SAME_STEP), env_id
            assert got["reward"] == pytest.approx(reward, abs=SAME_STEP), env_id
            assert (got["terminated"], got["truncated"]) == (terminated, truncated), env_id
    ends = [any(terminated for _, _, terminated, _ in steps) for steps in expected[:3]]
    assert ends == [True, False, True]  # a hopper and a walker fall, a cheetah cannot


LEFT = """
import { Player } from "./player.js";
const player = new Player({}, () => {});
Object.assign(player, { target: 100, earned: 30 });
const facts = [{ asks: true, rewards: "dense" }, { asks: true, rewards: "delayed" }, { asks: false, rewards: "dense" }];
console.log(JSON.stringify(facts.map((one) => Object.assign(player, { facts: one }).left)));
"""


def test_what_is_still_asked_for_is_what_the_network_reads(
    tmp_path: Path, in_node: Callable[[Path, str, str], str]
) -> None:
    """With delayed rewards the whole target until the end; nothing where the agent reads no return."""
    for name in ("acting.js", "environments.js", "player.js"):
        shutil.copy(Path(page.__file__).parents[1] / "static" / "live" / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    assert json.loads(in_node(tmp_path, "left.js", LEFT)) == [70, 100, None]


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("CartPole-v1", {}),
        ("Hopper-v5", {"terminate_when_unhealthy": False}),
        ("Walker2d-v5", {"exclude_current_positions_from_observation": False}),
        ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False}),
        ("PointMaze_Medium-v3", {"continuing_task": True}),
        ("PointMaze_Medium-v3", {"continuing_task": False, "reward_type": "dense"}),
    ],
)
def test_what_the_page_does_not_simulate_has_no_scene(env_id: str, options: dict[str, Any]) -> None:
    assert scene_of(env_id, options) is None


def test_an_agent_that_reads_a_maze_in_another_way_than_the_page_is_not_shown() -> None:
    """The page gives position, velocity and goal; the network would take them for what it reads."""
    scene = scene_of("PointMaze_UMaze-v3", {"continuing_task": False})
    assert scene is not None
    assert misread(scene, ("observation", "desired_goal")) is None
    assert misread({"kind": "runner"}, None) is None
    for keys in (("desired_goal", "observation"), ("observation",), ("achieved_goal", "desired_goal", "observation")):
        said = misread(scene, keys)
        assert said is not None
        assert str(list(keys)) in said


@pytest.mark.parametrize("options", [{"xml_file": "/tmp/mine.xml"}, {"nope": 1}])
def test_options_of_an_agent_are_not_trusted(options: dict[str, Any]) -> None:
    """Its file would be read, and copied into a page that is published."""
    with pytest.raises(ConfigError, match=rf"{next(iter(options))}.*--trust-env-options"):
        scene_of("Hopper-v5", options)


def test_an_environment_without_a_limit_has_that_of_its_task() -> None:
    scene = scene_of(DOORKEY, {})
    assert scene is not None
    assert scene["most_steps"] == DOORKEY_STEPS


def test_an_archive_that_is_not_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = npm.packages()[2]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / package.name / "-"
    place.mkdir(parents=True)
    (place / f"{package.name}-{package.version}.tgz").write_bytes(b"something else")
    monkeypatch.setenv(npm.REGISTRY_VARIABLE, tmp_path.as_uri())
    with pytest.raises(HubError, match=r"is not three 0\.187\.0 as agentzoo knows it"):
        npm.archive_of(package)
    monkeypatch.setenv(npm.REGISTRY_VARIABLE, "http://127.0.0.1:9")
    with pytest.raises(HubError, match="without --live the site needs no network"):
        npm.archive_of(package)
    assert not list((tmp_path / "cache").rglob("*.tgz"))
