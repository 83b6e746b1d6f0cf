"""The live page: its actions are those of the Agent, and it plays in a real browser."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub.conftest import edit, make_folder
from models.acting_cases import small_config

from agentzoo import Agent
from agentzoo.envs import DOORKEY
from agentzoo.envs.making import make_env
from agentzoo.site.build_site import build_site
from agentzoo.site.live import npm, page
from agentzoo.site.live.networks import with_attention
from agentzoo.store.files import CONFIG, RECIPE, RESULTS
from showroom.cases import flat, placed
from showroom.conftest import ROOT, collect_faults, serious_faults

SAME_ACTION = 1e-4
POSER = "unimask-hopper-untrained"  # takes a pose as goal, like unimask-hopper-medium, and is small
BRIEF = "dt-hopper-brief"  # dt-hopper-medium on its newest two steps
PLAYED = ("unimask-doorkey", "dm-hopper-medium", BRIEF, "dt-hopper-medium", POSER, "bc-pointmaze-medium")  # as listed
MAX_PAGE = 45e6  # bytes
MAX_MILLISECONDS = 10.0  # of an action


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    zoo = tmp_path_factory.mktemp("zoo")
    for name in (*(set(PLAYED) - {BRIEF, POSER}), "unimask-maze2d-dense"):  # the last one has no scene
        shutil.copytree(ROOT / "hub_cards" / name, zoo / name)
    poser = make_folder(zoo / POSER, small_config("unimask"), "Hopper-v5")
    brief = Path(shutil.copytree(zoo / "dt-hopper-medium", zoo / BRIEF))
    edit(brief, CONFIG, history=2)
    edit(brief, RECIPE, eval__history=2)
    for folder in (poser, brief):
        edit(folder, CONFIG, agent_id=folder.name)
        edit(folder, RECIPE, agent_id=folder.name)
        edit(folder, RESULTS, headline__agent_id=folder.name)
    return zoo


@pytest.fixture(scope="module")
def live_site(
    libraries: Path, zoo: Path, tmp_path_factory: pytest.TempPathFactory, one_table_of_operators: None
) -> Path:
    return build_site(tmp_path_factory.mktemp("out") / "site", zoo, live=True).folder


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(live_site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(live_site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/live.html"
        server.shutdown()


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A page that remembers errors in `.faults` and what it loaded in `.loaded`.

    Its screen has a quarter of the pixels a side, since a processor draws them; the layout is that of a whole screen.
    """
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, device_scale_factor=0.25)
    page = context.new_page()
    page.set_default_timeout(240_000)
    page.loaded = {}
    collect_faults(page)
    page.on("response", lambda answer: page.loaded.update({answer.url: int(answer.headers.get("content-length", 0))}))
    yield page
    context.close()


PLAYER = "document.getElementById('live').player"


# Milliseconds of 200 actions.
PACES = f"""async () => {{
  const player = {PLAYER}, paces = [];
  for (let i = 0; i < 200; i++) {{
    const began = performance.now();
    await player.actor.act(player.observation, player.target, player.earned);
    paces.push(performance.now() - began);
  }}
  return paces;
}}"""


@pytest.mark.slow
def test_it_plays_hopper_as_python_does(tab: Any, address: str) -> None:
    tab.goto(address)
    tab.wait_for_function(f"{PLAYER} !== undefined")
    assert not [url for url in tab.loaded if url.endswith((".wasm", ".onnx", ".mjs")) or "scene-" in url]
    assert tab.locator("#agent option").evaluate_all("all => all.map(one => one.value)") == list(PLAYED)
    tab.select_option("#agent", "dt-hopper-medium")
    tab.click("#start")
    tab.wait_for_function(f"{PLAYER}.steps > 3")
    assert sum(tab.loaded.values()) < MAX_PAGE
    assert all(url.startswith(address.rpartition("/")[0]) for url in tab.loaded)

    agent = Agent.from_pretrained(str(ROOT / "hub_cards" / "dt-hopper-medium"))
    env = make_env("Hopper-v5")
    obs, _ = env.reset(seed=3)
    start, state, reward, earned = placed(env), None, 0.0, 0.0
    for _ in range(300):
        action, state = agent.predict(obs, state, reward=reward, deterministic=True)
        obs, gained, terminated, _, _ = env.step(action)
        reward = float(gained)
        earned += reward
        assert not terminated
    played = tab.evaluate(
        f"""async (start) => {{
          const player = {PLAYER};
          player.stop();
          await new Promise((done) => setTimeout(done, 100));
          player.reset((env) => env.place(start.positions, start.velocities));
          return await player.run(300);
        }}""",
        start,
    )
    assert played["steps"] == 300
    assert played["earned"] == pytest.approx(earned, rel=0.05)
    paces = tab.evaluate(PACES)
    assert min(paces) < MAX_MILLISECONDS, np.median(paces)  # the fastest, as other work may slow this machine
    assert tab.faults == []


def started(tab: Any, address: str, agent: str) -> None:
    """The page with this agent loaded, paused after its first steps."""
    tab.goto(address)
    tab.wait_for_function(f"{PLAYER} !== undefined")
    tab.select_option("#agent", agent)
    tab.click("#start")
    tab.wait_for_function(f"{PLAYER}.steps > 3")
    tab.click("#pause")
    tab.wait_for_function(f"!{PLAYER}.playing")
    tab.wait_for_timeout(300)  # a step may be under way
    assert tab.evaluate(f"{PLAYER}.problem ?? null") is None


ON_SCREEN = """([x, y, z]) => {
  const { stage } = document.getElementById("live").player;
  const at = stage.camera.position.clone().set(x, y, z).project(stage.camera);
  const box = stage.canvas.getBoundingClientRect();
  return [box.left + (0.5 + 0.5 * at.x) * box.width, box.top + (0.5 - 0.5 * at.y) * box.height];
}"""


@pytest.mark.slow
def test_the_asked_return_speed_and_a_new_episode(tab: Any, address: str) -> None:
    started(tab, address, "dt-hopper-medium")
    asked = "(value) => { const range = document.getElementById('target'); range.value = value;"
    tab.evaluate(asked + " range.dispatchEvent(new Event('input')); }", 1200)
    assert tab.evaluate(f"{PLAYER}.target") == pytest.approx(1200)
    earned = tab.evaluate(f"{PLAYER}.earned")
    assert float(tab.inner_text("#left").replace(",", "")) == pytest.approx(1200 - earned, abs=1)
    assert tab.locator("#actions > div").count() == 3
    assert tab.locator("#attention > i").count() == min(tab.evaluate(f"{PLAYER}.steps"), 5)
    tab.select_option("#speed", "0.25")
    assert tab.evaluate(f"{PLAYER}.speed") == 0.25
    tab.click("#reset")
    assert tab.inner_text("#step") == tab.inner_text("#earned") == "0"
    assert tab.is_hidden("#goal")  # it takes none
    assert tab.faults == []


PUSHED = f"""async (kick) => {{
  const player = {PLAYER}, {{ environment: env, stage }} = player;
  env.place(env.start, Array(6).fill(0));
  if (kick) stage.kick();
  for (let i = 0; i < 5; i++) {{ stage.push(); env.step([0, 0, 0]); }}
  return env.data.qvel[0];
}}"""


@pytest.mark.slow
def test_another_agent_and_new_episodes_while_it_plays(tab: Any, address: str) -> None:
    """Each agent in its own scene; a step under way neither fails nor reaches the next episode."""
    tab.goto(address)
    tab.wait_for_function(f"{PLAYER} !== undefined")
    tab.select_option("#agent", "bc-pointmaze-medium")
    tab.click("#start")
    for agent in ("unimask-doorkey", "dt-hopper-medium", "bc-pointmaze-medium"):
        tab.wait_for_function(f"{PLAYER}.steps > 2")
        tab.select_option("#agent", agent)
        if agent == "unimask-doorkey":  # a change of mind before it is loaded
            tab.select_option("#agent", POSER)
            tab.select_option("#agent", agent)
        tab.wait_for_function(f"{PLAYER}.facts.id === {agent!r} && {PLAYER}.steps > 2")
        assert tab.is_visible("#grid") == (agent == "unimask-doorkey")
        for _ in range(2):
            tab.click("#reset")
            tab.click("#pause")
            tab.click("#pause")
        tab.wait_for_function(f"{PLAYER}.steps > 2")
        assert tab.evaluate(f"{PLAYER}.problem ?? null") is None
        assert "could not" not in tab.inner_text("#status")
    tab.click("#pause")
    tab.wait_for_timeout(300)
    assert tab.evaluate(f"{PLAYER}.actor.past.timestep + 1") == tab.evaluate(f"{PLAYER}.steps")
    assert tab.faults == []


def acted(agent: Agent, env: Any, obs: Any, targets: list[float], goal: Any = None) -> tuple[list[Any], list[Any]]:
    """The calls of `Actor.act`, and the actions of the agent, which plays on from `obs` and asks for these returns."""
    calls, expected, state, earned, reward = [], [], None, 0.0, 0.0
    for agent.target_return in targets:
        calls.append({"observation": flat(obs), "target": agent.target_return, "earned": earned, "goal": goal})
        action, state = agent.predict(obs, state, reward=reward, deterministic=True)
        expected.append(action.tolist())
        obs, gained, _, _, _ = env.step(action)
        reward = float(gained)
        earned += reward
    return calls, expected


@pytest.mark.slow
def test_a_recurrent_network_acts_from_its_memory(tab: Any, address: str) -> None:
    """Its actions are Python's in recurrent acting: longer than a window, asked for something else on the way."""
    started(tab, address, "dm-hopper-medium")
    assert "acting from its memory" in tab.inner_text("#measured")
    facts = tab.evaluate(f"{PLAYER}.facts")
    agent = Agent.from_pretrained(str(ROOT / "hub_cards" / "dm-hopper-medium"))
    agent.acting = "recurrent"
    env = make_env("Hopper-v5")
    for episode in range(2):
        obs, _ = env.reset(seed=episode)
        calls, expected = acted(agent, env, obs, [3600.0] * 30 + [1000.0] * 10)
        found = tab.evaluate(WITH_AGENT, [facts, calls])
        for got, want in zip(found, expected, strict=True):
            assert got["action"] == pytest.approx(want, abs=SAME_ACTION)
    played = tab.evaluate(f"(async () => {{ {PLAYER}.reset(); return await {PLAYER}.run(100); }})()")
    assert (played["steps"], played["earned"] > 100) == (100, True)  # a new episode begins with an empty memory
    paces = tab.evaluate(PACES)
    assert min(paces) < MAX_MILLISECONDS, np.median(paces)
    assert tab.faults == []


@pytest.mark.slow
def test_a_push_moves_the_body(tab: Any, address: str) -> None:
    started(tab, address, "dt-hopper-medium")
    still, kicked = tab.evaluate(PUSHED, False), tab.evaluate(PUSHED, True)
    assert kicked < still - 0.3  # m/s
    tab.evaluate(f"{PLAYER}.reset()")
    tab.evaluate(f"{PLAYER}.stage.draw()")
    torso = tab.evaluate(f"Array.from({PLAYER}.environment.data.xpos.slice(3, 6))")
    tab.locator("#stage").scroll_into_view_if_needed()
    x, y = tab.evaluate(ON_SCREEN, torso)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + 120, y, steps=3)
    assert tab.evaluate(PUSHED, False) > still + 0.1
    tab.mouse.up()
    assert tab.evaluate(PUSHED, False) == pytest.approx(still)
    assert tab.faults == []


@pytest.mark.slow
def test_a_maze_s_goal_is_dragged_and_reached(tab: Any, address: str) -> None:
    started(tab, address, "bc-pointmaze-medium")
    tab.evaluate(f"{PLAYER}.reset()")  # on a busy machine the goal may be reached already
    goal = f"Array.from({PLAYER}.environment.goal)"
    places = tab.evaluate(f"{PLAYER}.environment.places()")
    ball = tab.evaluate(f"Array.from({PLAYER}.environment.data.qpos)")
    before = tab.evaluate(goal)
    far = max(places, key=lambda place: min(np.hypot(*np.subtract(place, other)) for other in (ball, before)))
    tab.mouse.move(*tab.evaluate(ON_SCREEN, [*before, 0.2]))
    tab.mouse.down()
    tab.mouse.move(*tab.evaluate(ON_SCREEN, [*far, 0.2]), steps=5)
    tab.mouse.up()
    assert tab.evaluate(goal) == pytest.approx(far, abs=0.02)
    beside = [list(np.add(far, step)) for step in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    inside = next(cell for cell in beside if min(np.hypot(*np.subtract(cell, place)) for place in places) > 0.5)
    wall = list(np.add(far, inside) / 2)  # on the edge of the cell, where a wall begins
    tab.evaluate(f"(place) => {PLAYER}.aim(place)", wall)
    assert np.hypot(*np.subtract(tab.evaluate(goal), far)) == pytest.approx(0.25)  # as far as goals are drawn
    tab.evaluate("document.getElementById('goal-number').value = 1")
    tab.dispatch_event("#goal-number", "input")
    assert tab.evaluate(goal) == pytest.approx(places[0])
    tab.evaluate(f"(place) => {PLAYER}.aim(place)", far)
    assert tab.evaluate(f"{PLAYER}.run(600)")["over"] == "ended"
    reached = tab.evaluate(f"Array.from({PLAYER}.environment.data.qpos)")
    assert np.hypot(*np.subtract(reached, far)) <= 0.45
    assert tab.is_hidden("#no-goal")
    assert tab.faults == []


@pytest.mark.slow
def test_a_pose_is_a_goal_until_it_is_taken_back(tab: Any, address: str) -> None:
    started(tab, address, POSER)
    assert tab.is_visible("#goal")
    assert tab.inner_text("#goal-chosen") == "none"
    poses = tab.evaluate(f"{PLAYER}.poses.length")
    assert tab.get_attribute("#goal-number", "max") == str(poses)
    tab.focus("#goal-number")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(f"{PLAYER}.goal") == tab.evaluate(f"{PLAYER}.poses[0]")
    assert tab.evaluate(f"{PLAYER}.stage.ghosts.every((mesh) => mesh.visible)")
    assert tab.inner_text("#goal-chosen") == f"1 of {poses}"
    tab.click("#reset")
    assert tab.evaluate(f"{PLAYER}.goal") is not None  # the next episode has the same one
    tab.click("#no-goal")
    assert tab.evaluate(f"{PLAYER}.goal") is None
    assert not tab.evaluate(f"{PLAYER}.stage.ghosts.some((mesh) => mesh.visible)")
    assert tab.faults == []


WITH_AGENT = """async ([facts, calls]) => {
  const runtime = await import("/live/ort.wasm.min.mjs");
  runtime.env.wasm.wasmPaths = location.origin + "/live/";
  runtime.env.wasm.numThreads = 1;
  const { Actor } = await import("/live/acting.js");
  const session = await runtime.InferenceSession.create("/live/" + facts.network);
  const actor = new Actor(runtime, session, facts);
  const found = [];
  for (const { observation, target, earned, goal } of calls) {
    found.push((await actor.act(observation, target, earned, goal)));
  }
  return found;
}"""


@pytest.mark.slow
def test_actions_are_those_of_the_agent(tab: Any, address: str, zoo: Path) -> None:
    """Longer than a window, asked for something else on the way; a goal for the agent that takes one."""
    tab.goto(address)
    facts = json.loads(tab.inner_text("#facts", timeout=10_000) or tab.text_content("#facts"))
    rng = np.random.default_rng(0)

    hopper = Agent.from_pretrained(str(ROOT / "hub_cards" / "dt-hopper-medium"))
    env = make_env("Hopper-v5")
    obs, _ = env.reset(seed=0)
    calls, expected = acted(hopper, env, obs, [3600.0] * 24 + [1000.0] * 6)
    found = tab.evaluate(WITH_AGENT, [facts["dt-hopper-medium"], calls])
    for got, want in zip(found, expected, strict=True):
        assert got["action"] == pytest.approx(want, abs=SAME_ACTION)
        assert sum(got["attention"]) == pytest.approx(1.0, abs=1e-4)

    brief = Agent.from_pretrained(zoo / BRIEF)
    obs, _ = env.reset(seed=0)
    calls, expected = acted(brief, env, obs, [3600.0] * 12)
    assert facts[BRIEF]["context"] == brief.history == 2  # of 5: its graph has no place for more
    found = tab.evaluate(WITH_AGENT, [facts[BRIEF], calls])
    for got, want in zip(found, expected, strict=True):
        assert got["action"] == pytest.approx(want, abs=SAME_ACTION)
    assert [len(got["attention"]) for got in found] == [1] + [2] * 11

    walker = Agent.from_pretrained(str(ROOT / "hub_cards" / "unimask-doorkey"))
    grid: Any = make_env(DOORKEY)
    obs, _ = grid.reset(seed=0)
    goal = {"agent": obs["agent"] * 0, "key": obs["key"] * 0}
    goal["agent"][5] = goal["key"][5] = 1.0
    walker.condition(goal=goal)
    calls, expected, state, earned, reward = [], [], None, 0.0, 0.0
    for _ in range(10):
        calls.append({"observation": flat(obs), "target": walker.target_return, "earned": earned, "goal": flat(goal)})
        action, state = walker.predict(obs, state, reward=reward, deterministic=True)
        expected.append(int(action))
        obs, gained, _, _, _ = grid.step(int(rng.integers(4)))  # not its own, so that it sees more
        state.actions[0, state.length[0] - 1] = action
        reward = float(gained)
        earned += reward
    found = tab.evaluate(WITH_AGENT, [facts["unimask-doorkey"], calls])
    assert [got["action"] for got in found] == expected
    assert all(0.1 < sum(got["attention"]) <= 1.0001 for got in found)  # the rest is on steps to come
    assert [len(got["attention"]) for got in found] == [*range(1, 10), 9]  # the goal takes the last of 10 places

    poser = Agent.from_pretrained(zoo / POSER)
    obs, _ = env.reset(seed=1)
    pose = obs
    poser.condition(goal=pose)
    calls, expected = acted(poser, env, obs, [poser.target_return] * 15, flat(pose))
    found = tab.evaluate(WITH_AGENT, [facts[POSER], calls])
    for got, want in zip(found, expected, strict=True):
        assert got["action"] == pytest.approx(want, abs=SAME_ACTION)
    assert tab.faults == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_fits_and_draws(tab: Any, address: str, axe: str, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    tab.goto(address)
    assert serious_faults(tab, axe) == []
    for width in (390, 1280):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.wait_for_function("document.getElementById('poster').naturalWidth > 100")
        stage, *inside = (tab.locator(one).bounding_box() for one in (".stage", "#poster", "#start"))
        for box in inside:
            assert box["y"] >= stage["y"] - 1
            assert box["y"] + box["height"] <= stage["y"] + stage["height"] + 1
    tab.select_option("#agent", "unimask-doorkey")
    tab.click("#start")
    tab.wait_for_function(f"{PLAYER}.steps > 0")
    assert tab.is_visible("#grid")
    assert tab.is_visible("#goal")
    tab.click("#pause")
    box = tab.locator("#grid").bounding_box()
    tab.locator("#grid").click(position={"x": 0.5 * box["width"] - 10, "y": 0.7 * box["height"]})
    assert tab.evaluate(f"{PLAYER}.goal.indexOf(1)") in range(16)
    tab.click("#reset")
    assert tab.evaluate(f"{PLAYER}.environment.waypoint") is not None  # goal and mark stay together
    assert tab.evaluate(f"{PLAYER}.goal") is not None
    tab.click("#no-goal")
    assert tab.evaluate(f"{PLAYER}.goal ?? {PLAYER}.environment.waypoint") is None
    tab.focus("#goal-number")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(f"{PLAYER}.environment.waypoint") == [1, 1]
    assert serious_faults(tab, axe) == []
    assert tab.faults == []


def test_a_page_opened_from_disk_shows_how_to_serve_it(tab: Any, live_site: Path) -> None:
    tab.goto((live_site / "live.html").as_uri())
    assert tab.is_visible("#from-disk")
    assert tab.is_disabled("#start")
    assert tab.faults == []


def test_a_network_too_large_for_a_visitor_is_left_out(
    libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo = tmp_path / "zoo"
    for name in ("unimask-doorkey", "bc-doorkey"):
        shutil.copytree(ROOT / "hub_cards" / name, zoo / name)
    taken = sum((libraries / name).stat().st_size for package in npm.packages() for name in package.files.values())
    assert taken < 30e6
    monkeypatch.setattr(page, "MAX_BYTES", taken + 500_000)  # between the two
    folder = build_site(tmp_path / "out", zoo, live=True).folder
    assert [path.name for path in (folder / "live").glob("*.onnx")] == ["bc-doorkey.onnx"]
    said = (folder / "live.html").read_text()
    assert "unimask-doorkey: its network has 1 MB and the libraries 27 MB" in said


def test_a_graph_without_attention_is_left_as_it_is() -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3])
    out = onnx.helper.make_tensor_value_info("action", onnx.TensorProto.FLOAT, [1, 3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["action"])], "g", [value], [out])
    data = onnx.helper.make_model(graph).SerializeToString()
    changed, shows = with_attention(data, 3)
    assert shows == {}
    assert [one.name for one in onnx.load_model_from_string(changed).graph.output] == ["action"]
