"""A Hub of our own on this machine, which the real client talks to; nothing leaves, and nobody really waits."""

from __future__ import annotations

import json
import shutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import make_agent

from agentzoo.evaluation.results import DatasetFacts, Results, TrainingFacts, evaluate
from agentzoo.hub import staging_measurements
from agentzoo.hub.card import card_text
from agentzoo.nn.base import ModelConfig
from agentzoo.store.files import CARD, RESULTS, write_atomic
from hub.server import TOKEN, Hub, start

REPO = "tests/dt-test"


@pytest.fixture(scope="session")
def running_hub() -> Iterator[Hub]:
    hub = start()
    yield hub
    hub.shutdown()


class Clock(types.SimpleNamespace):
    """Stands in for `time` where the client and we wait: remembers how long, and does not."""


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    import time

    waited: list[float] = []
    clock = Clock(**{name: getattr(time, name) for name in dir(time) if not name.startswith("_")})
    clock.sleep = waited.append
    for module in ("huggingface_hub.utils._http", "huggingface_hub.file_download", "agentzoo.store.downloads"):
        monkeypatch.setattr(f"{module}.time", clock)
    return waited


@pytest.fixture
def hub(running_hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> Hub:
    """An empty Hub, an empty cache and a token that may write; the client's constants were read at its import."""
    running_hub.reset()
    constants = "huggingface_hub.constants"
    monkeypatch.setattr(f"{constants}.ENDPOINT", running_hub.url)
    monkeypatch.setattr(
        f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", running_hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(f"{constants}.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(f"{constants}.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(f"{constants}.HF_HUB_DISABLE_XET", True)  # uploads of another protocol, to another server
    monkeypatch.setattr(f"{constants}.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(f"{constants}.HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("AGENTZOO_ZOO", str(tmp_path / "zoo"))
    return running_hub


@pytest.fixture(autouse=True)
def short_films(monkeypatch: pytest.MonkeyPatch) -> None:
    """A film of the whole episode in fewer frames: to encode them is half of what staging takes here."""
    monkeypatch.setattr(staging_measurements, "FRAMES", 20)


@pytest.fixture(scope="session")
def made_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("made") / "dt-test")


@pytest.fixture
def folder(made_folder: Path, tmp_path: Path) -> Path:
    """A whole agent's folder to spoil: weights, recipe, a measurement on three episodes, card."""
    return Path(shutil.copytree(made_folder, tmp_path / "made" / "dt-test"))


def make_folder(path: Path, model: ModelConfig | None = None, env_id: str | None = None) -> Path:
    agent = make_agent(env_id, model)
    agent.save_pretrained(path)
    results = Results(
        headline=evaluate(agent, episodes=3, n_envs=3),
        dataset=DatasetFacts(
            dataset="tests/none-v0", steps=10, episodes=2, mean_return=5.0, best_return=6.0, made_by="By hand."
        ),
        training=TrainingFacts(seconds=60.0, parameters=123, hardware="a test machine"),
    )
    write_atomic(path / RESULTS, results.to_json())
    write_atomic(path / "training_log.csv", "step,loss\n1,0.5\n")
    write_atomic(path / CARD, card_text(path))
    return path


def cached_files(cache: Path) -> dict[str, bytes]:
    """What the cache holds of snapshots, by name; a broken link would raise."""
    return {
        path.name: path.read_bytes()
        for path in cache.rglob("*")
        if "snapshots" in path.parts and (path.is_symlink() or path.is_file())
    }


def edit(folder: Path, name: str, **changes: Any) -> None:
    """Set dotted fields of a JSON record."""
    tree = json.loads((folder / name).read_text())
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = tree
        for parent in parents:
            node = node[parent]
        node[last] = value
    (folder / name).write_text(json.dumps(tree))
