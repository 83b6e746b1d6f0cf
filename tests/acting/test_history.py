"""`agent.history`: acting reads the newest few steps of its window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL, make_agent
from models.acting_cases import small_config

from agentzoo.agent import Agent
from agentzoo.errors import ConfigError
from agentzoo.evaluation.results import evaluate
from agentzoo.store.files import CONFIG, RECIPE
from agentzoo.types import Batch

STEPS = 6


def played(agent: Agent) -> list[np.ndarray]:
    """Actions on six steps with rewards 0, 1, 2, ..."""
    rng, state, found = np.random.default_rng(0), None, []
    for step in range(STEPS):
        obs = rng.normal(size=3).astype(np.float32)
        action, state = agent.predict(obs, state, reward=float(step), deterministic=True)
        found.append(action)
    return found


def test_history_reads_a_window_of_the_newest_steps() -> None:
    """The last action is the network's on a window that is written out by hand."""
    agent = make_agent("Pendulum-v1", context=4)
    agent.history = 2
    actions = played(agent)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(STEPS, 3)).astype(np.float32)
    # returns-to-go: 50 minus the rewards so far, 0 + 1 + 2 + 3 + 4 at step 4 and 5 more at step 5; the scale is 10
    window = Batch(
        observations=torch.from_numpy(observations[None, 4:]),
        actions=torch.tensor([[actions[4].tolist(), [0.0]]]),
        returns_to_go=torch.tensor([[4.0, 3.5]]),
        timesteps=torch.tensor([[4, 5]]),
        valid=torch.ones(1, 2, dtype=torch.bool),
    )
    with torch.no_grad():
        expected = agent.model.act(window)[0].numpy()
    assert actions[-1] == pytest.approx(expected, abs=1e-6)


def test_the_whole_window_is_the_default_and_one_as_long_is_the_same() -> None:
    whole, same, short = (make_agent("Pendulum-v1", context=4) for _ in range(3))
    same.history, short.history = 4, 1
    assert whole.history is None
    assert np.allclose(played(whole), played(same), atol=1e-7)
    first, *rest = zip(played(whole), played(short), strict=True)
    assert first[0] == pytest.approx(first[1])
    assert any(abs(a - b).max() > 1e-3 for a, b in rest)


def test_history_may_change_during_an_episode_and_states_stay_valid() -> None:
    agent = make_agent("Pendulum-v1", context=4)
    obs, state = np.ones(3, np.float32), None
    for step in range(3):
        _, state = agent.predict(obs * step, state, reward=0.0)
    agent.history = 1
    short, _ = agent.predict(obs, state, reward=0.0)
    agent.history = None
    whole, _ = agent.predict(obs, state, reward=0.0)
    other = make_agent("Pendulum-v1", context=4)
    assert whole == pytest.approx(other.predict(obs, state, reward=0.0)[0])
    assert short != pytest.approx(whole)


def test_a_length_may_come_from_numpy(tmp_path: Path) -> None:
    agent = make_agent("Pendulum-v1", context=4)
    agent.history = np.int64(2)  # type: ignore[assignment]
    assert type(agent.history) is int
    assert Agent.from_pretrained(agent.save_pretrained(tmp_path / "agent")).history == 2


@pytest.mark.parametrize("steps", [0, 5, -1, True, 2.0, "3"])
def test_a_history_longer_than_the_window_or_below_1_is_refused(steps: object) -> None:
    agent = make_agent("Pendulum-v1", context=4)
    with pytest.raises(ConfigError, match=r"history is the number of newest steps that acting reads, 1 to 4 or None"):
        agent.history = steps  # type: ignore[assignment]
    assert agent.history is None


def test_history_does_not_apply_to_recurrent_acting() -> None:
    plain, short = make_agent(model=small_config("dm")), make_agent(model=small_config("dm"))
    plain.acting = short.acting = "recurrent"
    with pytest.warns(UserWarning, match=r"history=1 has no effect .* agent.acting = 'window'") as said:
        short.history = 1
    assert said[0].filename == __file__
    assert np.allclose(played(plain), played(short), atol=1e-7)
    assert evaluate(short, episodes=1).history is None
    plain.acting = short.acting = "window"
    assert evaluate(short, episodes=1).history == 1
    assert not np.allclose(played(plain), played(short), atol=1e-4)


def test_history_is_saved_and_measured(tmp_path: Path) -> None:
    agent = make_agent("Pendulum-v1", context=4)
    agent.history = 2
    folder = agent.save_pretrained(tmp_path / "dt-test")
    loaded = Agent.from_pretrained(folder)
    assert (loaded.history, loaded.config.history) == (2, 2)
    assert loaded.recipe is not None
    assert loaded.recipe.eval.history == 2
    assert evaluate(loaded, episodes=2).history == 2
    assert played(loaded)[-1] == pytest.approx(played(agent)[-1])
    loaded.history = None
    loaded.save_pretrained(folder)
    assert '"history"' not in (folder / RECIPE).read_text()
    assert Agent.from_pretrained(folder).history is None
    text = (folder / CONFIG).read_text().replace('"history": null', '"history": 9')
    (folder / CONFIG).write_text(text)
    with pytest.raises(ConfigError, match="1 to 4 or None"):
        Agent.from_pretrained(folder)


def test_onnx_runtime_reads_the_same_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    agent = make_agent("Pendulum-v1", model=SMALL["dt"], context=4)
    agent.history = 2
    expected = played(agent)
    agent.freeze()
    assert np.allclose(played(agent), expected, atol=1e-4)
    frozen = agent._acting._model  # type: ignore[attr-defined]
    assert [entry.shape[1] for entry in frozen._session().get_inputs()] == [2] * 5  # windows of two steps, not of four
    agent.history = 1
    assert agent._acting._model is frozen  # type: ignore[attr-defined]  # a shorter history needs no other export
    agent.freeze("pytorch")
    shorter = played(agent)
    agent.history = 2
    agent.freeze()
    agent.history = 1
    assert np.allclose(played(agent), shorter, atol=1e-4)


def test_a_history_that_cannot_be_exported_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    agent = make_agent("Pendulum-v1", model=SMALL["dt"], context=4)
    agent.history = 1
    expected = played(agent.freeze())

    def fails(*_: object) -> None:
        raise ConfigError("no onnx")

    monkeypatch.setattr("agentzoo.acting.runtimes.freeze", fails)
    with pytest.raises(ConfigError, match="no onnx"):
        agent.history = 3
    assert (agent.history, agent.runtime) == (1, "onnx")
    assert np.array_equal(played(agent), expected)


@pytest.mark.parametrize("longer", [3, None])
def test_a_longer_history_is_exported_again(
    longer: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    agent = make_agent("Pendulum-v1", model=SMALL["dt"], context=4)
    agent.history = longer
    expected = played(agent)
    agent.history = 2
    agent.freeze()
    agent.history = longer
    assert agent.runtime == "onnx"
    assert agent._acting._model.steps == (longer or 4)  # type: ignore[attr-defined]
    assert np.allclose(played(agent), expected, atol=1e-4)
