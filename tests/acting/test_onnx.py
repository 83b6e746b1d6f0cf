"""A frozen agent acts in ONNX Runtime as it did in PyTorch, in every family and every way of acting."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_agent
from models.acting_cases import play, small_agent, small_config, ways

from agentzoo.acting import frozen
from agentzoo.agent import Agent
from agentzoo.errors import ConfigError, RuntimeMismatchError
from agentzoo.nn.base import ModelConfig, SequenceModel
from agentzoo.nn.native import scan

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("one_table_of_operators")
OBS = np.ones(3, dtype=np.float32)
TWO_LAYERS = {"dt", "gpt2-dtma", "smollm-dtma", "unimask"}  # the others have the same blocks; hub/test_export.py has dm
CHOOSES = {("dm", "window"), ("gpt2-dt", "window")}  # these act on choices here, all others on Boxes


@pytest.fixture(autouse=True, scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Most tests freeze the same small agent, which is exported once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of the test's own for exported files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "agentzoo" / "onnx"


def exported_config(family: str) -> ModelConfig:
    """As small as tells something: the time of an export grows with the layers, for `dm` with the steps too."""
    config = small_config(family)
    one_is_enough = hasattr(config, "n_layers") and family not in TWO_LAYERS
    return config.model_copy(update={"n_layers": 1}) if one_is_enough else config


def scale(model: torch.nn.Module) -> None:
    """Other weights in the same memory."""
    for p in model.parameters():
        p.data.mul_(1.3)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "way"), ways())
def test_a_frozen_agent_acts_as_before(family: str, way: str) -> None:
    env_id = "tests/CountingDiscrete-v0" if (family, way) in CHOOSES else None
    agent = make_agent(env_id, exported_config(family), context=2 if family == "dm" else 4)
    wanted = play(agent, way)
    agent.freeze("onnx")
    assert agent.runtime == "onnx"
    np.testing.assert_allclose(play(agent, way), wanted, atol=1e-4)


@pytest.mark.slow
def test_choices_are_frozen_too() -> None:
    agent = make_agent("tests/CountingDiscrete-v0", exported_config("unimask"))
    wanted = play(agent, "window")
    np.testing.assert_array_equal(play(agent.freeze(), "window"), wanted)


@pytest.mark.slow
def test_a_graph_of_long_windows_scans_in_doubled_strides(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """As the test of all families does for short ones, which a graph scans token by token."""
    monkeypatch.setattr(scan, "GRAPH_TOKENS", 1)
    agent = make_agent(model=exported_config("dm"), context=2)
    wanted = play(agent, "window")
    np.testing.assert_allclose(play(agent.freeze(), "window"), wanted, atol=1e-4)


def test_a_graph_attends_in_one_operation_where_all_tokens_look() -> None:
    onnx = pytest.importorskip("onnx")
    agent = make_agent().freeze()
    operations = [node.op_type for node in onnx.load_model_from_string(agent._acting._model.data).graph.node]
    layers = agent.model.config.n_layers
    assert (operations.count("Attention"), operations.count("Softmax")) == (layers - 1, 1)  # the last reads one token


def test_states_go_on_and_the_network_stays_as_it_was_frozen() -> None:
    agent = make_agent()
    _, state = agent.predict(OBS, reward=0.0)
    wanted = agent.predict(OBS, state, reward=1.0)[0]
    assert agent.freeze() is agent
    np.testing.assert_allclose(agent.predict(OBS, state, reward=1.0)[0], wanted, atol=1e-4)
    scale(agent.model)
    np.testing.assert_allclose(agent.predict(OBS, state, reward=1.0)[0], wanted, atol=1e-4)
    agent.freeze("pytorch")
    assert not np.allclose(agent.predict(OBS, state, reward=1.0)[0], wanted, atol=1e-3)


def test_the_agent_says_what_runs_it() -> None:
    agent = make_agent()
    assert "runtime='pytorch'" in repr(agent)
    assert "runtime='onnx'" in repr(agent.freeze())


def test_a_new_network_returns_to_pytorch_with_a_warning() -> None:
    agent, other = make_agent().freeze(), make_agent()
    scale(other.model)
    with pytest.warns(
        UserWarning, match=r"dt-test acts with PyTorch again: a new network was assigned. agent.freeze"
    ) as said:
        agent.model = other.model
    assert said[0].filename == __file__
    assert agent.runtime == "pytorch"
    np.testing.assert_array_equal(agent.predict(OBS)[0], other.predict(OBS)[0])


def test_moving_to_the_cpu_keeps_it_frozen() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_agent().freeze().to("cpu").runtime == "onnx"


def test_another_way_of_acting_is_frozen_again() -> None:
    agent = make_agent(model=exported_config("dm"), context=2)
    agent.acting = "recurrent"
    wanted = play(agent, "recurrent")
    agent.acting = "window"
    agent.freeze()
    np.testing.assert_allclose(play(agent, "recurrent"), wanted, atol=1e-4)
    assert (agent.runtime, agent.acting) == ("onnx", "recurrent")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda agent: pickle.loads(pickle.dumps(agent))])
def test_copies_open_a_session_of_their_own(copied: Any) -> None:
    agent = make_agent().freeze()
    wanted, other = agent.predict(OBS)[0], copied(agent)
    del agent
    assert other.runtime == "onnx"
    np.testing.assert_array_equal(other.predict(OBS)[0], wanted)


def test_a_pretrained_agent_loads_frozen_and_what_is_no_runtime_is_refused(tmp_path: Path) -> None:
    folder = make_agent().save_pretrained(tmp_path / "agent")
    assert Agent.from_pretrained(folder, runtime="onnx").runtime == "onnx"
    with pytest.raises(ConfigError, match="runtime is 'pytorch' or 'onnx', not 'tensorrt'"):
        Agent.from_pretrained(folder, runtime="tensorrt")  # type: ignore[arg-type]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"ONNX needs onnxruntime, .*: pip install 'agentzoo\[export\]'"):
        make_agent().freeze()


def other_in_pytorch(monkeypatch: pytest.MonkeyPatch, agent: Agent, by: float) -> None:
    """The network answers `by` more than the exported one."""
    act = type(agent.model).act

    def changed(self: SequenceModel, batch: Any) -> torch.Tensor:
        return act(self, batch) + by * (not torch.compiler.is_exporting())

    monkeypatch.setattr(type(agent.model), "act", changed)


def test_a_network_that_acts_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    agent = small_agent()
    other_in_pytorch(monkeypatch, agent, 3e-3)
    with pytest.raises(RuntimeMismatchError, match=r"dt-test differs by 0.003\d* between ONNX Runtime and PyTorch"):
        agent.freeze()
    assert agent.runtime == "pytorch"
    assert list(cache.iterdir()) == []


def test_the_file_is_exported_once_and_again_for_other_weights(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    agent = small_agent().freeze()
    (file,) = cache.iterdir()
    assert str(file) in capfd.readouterr().err
    unused = cache / "unused.onnx"
    unused.touch()
    for path in (file, unused):
        os.utime(path, (0, 0))
    small_agent().freeze()
    assert capfd.readouterr().err == ""
    assert unused.exists()
    scale(agent.model)
    agent.freeze()  # a new file is written, and what was not used for a month deleted
    assert len(list(cache.iterdir())) == 2
    assert file.exists()
    assert not unused.exists()
    monkeypatch.setattr(frozen, "OPSET", 19)
    agent.freeze()
    assert len(list(cache.iterdir())) == 3


def test_a_broken_file_and_one_of_a_hooked_network_are_exported_again(cache: Path) -> None:
    agent = small_agent().freeze()
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    wanted = small_agent().predict(OBS)[0]
    np.testing.assert_allclose(small_agent().freeze().predict(OBS)[0], wanted, atol=1e-4)
    agent.freeze("pytorch").model.get_submodule("net").register_forward_hook(lambda _, __, out: 0.5 * out)
    wanted = agent.predict(OBS)[0]
    np.testing.assert_allclose(agent.freeze().predict(OBS)[0], wanted, atol=1e-4)


def test_a_shared_cache_folder_is_not_used(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.warns(UserWarning, match="the exported network is not cached: others may write to"):
        assert small_agent().freeze().runtime == "onnx"
    assert list(cache.iterdir()) == []


def test_a_handful_of_windows_runs_on_one_thread_and_many_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyTorch's threads are chosen; both sessions give the same actions."""
    monkeypatch.setattr("agentzoo.acting.threads.set_by_user", lambda: False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        agent = make_agent()
        agent.freeze(runtime="onnx")
        observations = np.stack([agent.observation_space.sample() for _ in range(20)])
        rewards = np.zeros(20)
        many, _ = agent.predict(observations, reward=rewards)
        few, _ = agent.predict(observations[:3], reward=rewards[:3])
        assert many[:3] == pytest.approx(few, abs=1e-5)
        frozen = agent._acting._model  # type: ignore[attr-defined]
        assert sorted(frozen._sessions) == [1, 2]
        assert [one.get_session_options().intra_op_num_threads for _, one in sorted(frozen._sessions.items())] == [1, 2]
    finally:
        torch.set_num_threads(before)


def test_a_frozen_window_is_as_long_as_the_agent_reads() -> None:
    """Two of four steps: the graph takes windows of two, and acts as PyTorch does on the newest two."""
    agent = make_agent()
    agent.history = 2
    wanted = play(agent, "window")
    short = frozen.freeze(agent.model, "window", "dt-test", 2)
    whole = frozen.freeze(agent.model, "window", "dt-test")
    assert short.data != whole.data
    lengths = [entry.shape[1] for entry in short._session().get_inputs()]
    assert lengths == [2] * len(lengths)
    agent._network = short
    agent.history = 2  # acts with the frozen network from now on
    np.testing.assert_allclose(play(agent, "window"), wanted, atol=1e-4)
