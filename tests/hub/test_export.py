"""ONNX files answer in onnxruntime what the agent answers here, history and all, or are not written."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import SMALL, CountingEnv, make_agent
from models.acting_cases import small_agent
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.cli import app
from agentzoo.errors import ConfigError, RuntimeMismatchError
from agentzoo.hub.export import export_onnx
from agentzoo.models.dm import DMConfig
from agentzoo.models.unimask import UniMaskConfig
from agentzoo.types import ObservationSpec

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_table_of_operators")]

MODELS = {  # acting/test_onnx.py exports all families
    "dt": SMALL["dt"],
    "dm": DMConfig(embed_dim=16, n_layers=2, state_size=4),
}


def as_the_environment_says_it(flat: np.ndarray[Any, Any], spec: ObservationSpec) -> Any:
    """The flat numbers that the file reads, in parts by key where the agent reads a Dict."""
    if spec.keys is None:
        return flat
    ends = np.cumsum([int(np.prod(shape)) for shape in spec.shapes])[:-1]
    parts = zip(spec.keys, np.split(flat, ends), spec.shapes, strict=True)
    return {key: part.reshape(shape) for key, part, shape in parts}


def act_along(agent: Agent, path: Path, steps: int) -> tuple[list[Any], list[Any]]:
    """Actions of the agent over an episode, and of the file when it is fed that history as its docstring says."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = {entry.name for entry in session.get_inputs()}
    k, size = int(session.get_modelmeta().custom_metadata_map["context"]), agent.config.io.observation.size
    rng = np.random.default_rng(0)
    agent.acting = "window"
    state, reward, rtg = None, 0.0, agent.target_return
    observations, actions, returns, ours, theirs = [], [], [], [], []
    for step in range(steps):
        observation = rng.normal(size=size).astype(np.float32)
        seen = as_the_environment_says_it(observation, agent.config.io.observation)
        action, state = agent.predict(seen, state, deterministic=True, reward=reward)
        observations.append(observation)
        returns.append(rtg / agent.config.rtg_scale)
        first = max(0, step + 1 - k)
        length = step + 1 - first
        fed = {
            "observations": np.zeros((1, k, size), np.float32),
            "actions": np.zeros((1, k, len(action)), np.float32),
            "returns_to_go": np.zeros((1, k), np.float32),
            "timesteps": np.zeros((1, k), np.int64),
            "valid": np.arange(k)[None] < length,
        }
        fed["observations"][0, :length] = observations[first:]
        fed["actions"][0, : length - 1] = np.reshape(actions[first:], (-1, len(action)))
        fed["returns_to_go"][0, :length] = returns[first:]
        fed["timesteps"][0, :length] = np.arange(first, step + 1)
        theirs.append(session.run(None, {name: value for name, value in fed.items() if name in names})[0][0])
        ours.append(action)
        actions.append(action)
        reward = float(rng.normal())
        rtg -= reward
    return ours, theirs


@pytest.mark.parametrize("family", MODELS)
def test_the_file_acts_as_the_agent_does_over_an_episode(family: str, tmp_path: Path) -> None:
    agent = make_agent(model=MODELS[family])
    report = export_onnx(agent, tmp_path / "x.onnx")
    assert report.bytes == (tmp_path / "x.onnx").stat().st_size
    ours, theirs = act_along(agent, tmp_path / "x.onnx", steps=3 * agent.config.io.context)
    assert np.ptp(np.array(ours), axis=0).min() > 1e-3  # not the same action all along
    np.testing.assert_allclose(theirs, ours, atol=1e-4)


def test_the_file_reads_as_many_steps_as_the_agent(tmp_path: Path) -> None:
    """Its config says 2 of the 4 steps of a window; a file of whole windows would act otherwise from step 2 on."""
    agent = make_agent(history=2)
    export_onnx(agent, tmp_path / "x.onnx")
    ours, theirs = act_along(agent, tmp_path / "x.onnx", steps=9)
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
    agent.history = None
    whole, _ = act_along(agent, tmp_path / "x.onnx", steps=9)
    assert np.abs(np.array(whole) - np.array(ours)).max() > 1e-2


def test_what_changed_since_loading_is_in_the_file(tmp_path: Path) -> None:
    agent = Agent.from_pretrained(small_agent().save_pretrained(tmp_path / "agent"))
    with torch.no_grad():
        next(agent.model.parameters()).add_(1.0)
    agent.target_return = 7.0
    export_onnx(agent, tmp_path / "x.onnx")
    metadata = {entry.key: entry.value for entry in onnx.load(tmp_path / "x.onnx").metadata_props}
    assert (metadata["target_return"], metadata["weights_sha256"]) == ("7.0", "")


@pytest.mark.parametrize("sampled", [True, False])
def test_discrete_agents_give_logits_and_the_file_says_whether_to_sample(tmp_path: Path, sampled: bool) -> None:
    export_onnx(small_agent("tests/CountingDiscrete-v0", sampled=sampled), tmp_path / "x.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "x.onnx"))
    assert session.get_outputs()[0].shape[1] == 4
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["sampled"] == str(sampled).lower()
    assert "if `sampled` is true, draw the choice from softmax(logits)" in metadata["input_contract"]


def test_a_network_that_is_asked_has_no_single_pass(tmp_path: Path) -> None:
    agent = make_agent(model=UniMaskConfig(embed_dim=16, ffn_dim=16))
    with pytest.raises(ConfigError, match="'unimask' network has no single forward pass to export"):
        export_onnx(agent, tmp_path / "x.onnx")


def test_a_file_that_disagrees_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = small_agent()
    act = type(agent.model).act
    monkeypatch.setattr(
        type(agent.model), "act", lambda self, batch: act(self, batch) + 0.01 * (not torch.compiler.is_exporting())
    )
    with pytest.raises(RuntimeMismatchError, match="differs from PyTorch's by"):
        export_onnx(agent, tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


class JudgedEnv(CountingEnv):
    """Its reward depends on the action."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward * float(np.sum(action)), *rest


class TurnedEnv(JudgedEnv):
    """Its observations have other axes than a network's: numbers (3, 1), pictures (H, W, C)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        box = gym.spaces.Box(-np.inf, np.inf, (3, 1), np.float32)
        self.observation_space = gym.spaces.Box(0, 255, (9, 11, 2), np.uint8) if self.image else box

    def _observe(self) -> Any:
        values = super()._observe()
        return np.moveaxis(values, 0, -1) if self.image else values[:, None]


gym.register("tests/JudgedTable-v0", entry_point=TurnedEnv)
gym.register("tests/JudgedPicture-v0", entry_point=TurnedEnv, kwargs={"image": True})
gym.register("tests/JudgedDict-v0", entry_point=JudgedEnv, kwargs={"dict_obs": True})
gym.register("tests/JudgedDiscrete-v0", entry_point=JudgedEnv, kwargs={"discrete": True})


@pytest.fixture(scope="module")
def play() -> Callable[..., float]:
    """That of demos/act_with_onnx.py."""
    spec = importlib.util.spec_from_file_location("act_with_onnx", Path(__file__).parents[2] / "demos/act_with_onnx.py")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    found: Callable[..., float] = demo.play
    return found


def played(agent: Agent, steps: int) -> float:
    """The return of the agent's own episode."""
    env = gym.make(str(agent.config.env), **agent.config.env_options)
    state, reward, total = None, 0.0, 0.0
    observation, _ = env.reset(seed=0)
    for _ in range(steps):
        action, state = agent.predict(observation, state, deterministic=True, reward=reward)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if terminated or truncated:
            break
    return total


def test_a_staged_agent_is_exported_by_command_and_the_example_plays_its_episode(
    tmp_path: Path, play: Callable[..., float]
) -> None:
    """demos/act_with_onnx.py, with what the file's metadata says and nothing else."""
    path = tmp_path / "agent.onnx"
    result = CliRunner().invoke(app, ["hub", "export", "dt-hopper-medium", str(path)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    agent = Agent.from_pretrained("dt-hopper-medium", device="cpu")
    ours, theirs = act_along(agent, path, steps=agent.config.io.context + 3)
    np.testing.assert_allclose(theirs, ours, atol=1e-3)
    metadata = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert metadata["agent_id"] == "dt-hopper-medium"
    assert metadata["context"] == str(agent.config.io.context)
    assert "padded on the right with zeros" in metadata["input_contract"]
    assert play(str(path), seed=0, steps=25) == pytest.approx(played(agent, 25), abs=0.05)


@pytest.mark.parametrize("kind", ["Dict", "Discrete"])
def test_the_example_does_as_the_file_says(kind: str, tmp_path: Path, play: Callable[..., float]) -> None:
    """Keys of a Dict, choices that do not begin at 0, options of the environment, targets that stay, sampling."""
    agent = make_agent(f"tests/Judged{kind}-v0", env_options={"length": 12})
    export_onnx(agent, tmp_path / "x.onnx")

    def saying(**metadata: str) -> str:
        model = onnx.load(tmp_path / "x.onnx")
        about = {entry.key: entry.value for entry in model.metadata_props}
        onnx.helper.set_model_props(model, about | metadata)
        onnx.save(model, tmp_path / "edited.onnx")
        return str(tmp_path / "edited.onnx")

    plain = play(str(tmp_path / "x.onnx"))
    assert plain == pytest.approx(played(agent, 100), abs=1e-2)
    agent.config = agent.config.model_copy(update={"rewards": "delayed"})
    delayed = play(saying(rewards="delayed"))
    assert delayed == pytest.approx(played(agent, 100), abs=1e-2)
    if kind == "Dict":  # numbers show what few choices may hide
        assert abs(delayed - plain) > 1e-2
    else:
        sampled = [play(saying(sampled="true"), seed=0) for _ in range(2)]
        assert sampled[0] == sampled[1] != plain
    with pytest.raises(SystemExit, match="Gymnasium does not know 'elsewhere/Thing-v0'"):
        play(saying(env="elsewhere/Thing-v0"))


@pytest.mark.parametrize(("kind", "family"), [("Table", "dt"), ("Picture", "bc-pixel")])
def test_the_example_turns_observations_and_needs_no_module(
    kind: str, family: str, tmp_path: Path, play: Callable[..., float]
) -> None:
    agent = make_agent(f"tests/Judged{kind}-v0", SMALL[family])
    agent.config = agent.config.model_copy(update={"env": f"nowhere:tests/Judged{kind}-v0"})
    export_onnx(agent, tmp_path / "x.onnx")
    agent.config = agent.config.model_copy(update={"env": f"tests/Judged{kind}-v0"})
    assert play(str(tmp_path / "x.onnx")) == pytest.approx(played(agent, 100), abs=1e-2)
