"""Behaviour policies small enough to make in a moment, and a Minari folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which Minari keeps its datasets."""
    folder = tmp_path / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    return folder


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sources folder with untrained policies for Hopper, whose episodes are a few dozen steps long."""
    from sb3_contrib import TQC
    from stable_baselines3 import SAC

    folder = tmp_path_factory.mktemp("sources")
    for algorithm, name in ((SAC, "sac-hopper-medium"), (TQC, "tqc-hopper-expert")):
        model = algorithm("MlpPolicy", gym.make("Hopper-v5"), buffer_size=10, seed=0, policy_kwargs={"net_arch": [16]})
        model.save(folder / name)
    return folder
