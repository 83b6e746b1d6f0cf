"""Staging what is measured: nothing is lost to a picture, and a kept measurement counts only if it is the same one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import SMALL, make_agent
from typer.testing import CliRunner

from agentzoo.agent import Agent
from agentzoo.checkpoint import swap_in
from agentzoo.cli import app
from agentzoo.config import AgentConfig
from agentzoo.errors import SpaceError, UnknownNameError
from agentzoo.evaluation.results import Result, Results
from agentzoo.hub.card import card_text
from agentzoo.hub.stage import RESULT, measured, stage
from agentzoo.hub.verify import check_files
from agentzoo.recipe import Recipe
from agentzoo.training import log


def finished(folder: Path, dataset: str, env: str = "Hopper-v5", family: str = "bc") -> Path:
    """A run of an untrained network on the shipped Hopper episodes."""
    made = make_agent("Hopper-v5", SMALL[family])
    recipe = made.recipe
    assert recipe is not None
    evaluation = recipe.eval.model_copy(update={"env": env, "target_return": 100.0, "episodes": 2})
    recipe = recipe.replace(data=recipe.data.model_copy(update={"dataset": dataset}), eval=evaluation)
    agent = Agent(made.model, AgentConfig.of(recipe, made.config.io), recipe)
    agent.save_pretrained(folder)
    columns = [*log.COLUMNS, "eval_return", "eval_score", "action_mse"]
    log.start_log(folder, columns, 0)
    log.append_row(folder, columns, {"step": 10, "loss": 0.1, "action_mse": 0.1, "seconds": 1.0})
    return folder


class Blind(gym.Wrapper[Any, Any, Any, Any]):
    """A Hopper that renders nothing."""

    def render(self) -> Any:
        return None


def blind_hopper(render_mode: str | None = None) -> gym.Env[Any, Any]:
    return Blind(gym.make("Hopper-v5", max_episode_steps=20, render_mode=render_mode))


@pytest.mark.slow
def test_an_agent_that_heeds_no_target_in_an_environment_without_pictures_is_staged(
    tiny_hopper: str, tmp_path: Path
) -> None:
    gym.register("tests/Blind-v0", entry_point=blind_hopper)
    try:
        run = finished(tmp_path / "run", tiny_hopper, "tests/Blind-v0")
        heard: list[str] = []
        folder = stage(run, tmp_path / "zoo", "a test machine", sweep_episodes=1, note=heard.append)
    finally:
        del gym.registry["tests/Blind-v0"]
    assert any("renders nothing" in what for what in heard)
    results = Results.from_json((folder / "results.json").read_text(), "results.json")
    assert results.spearman is None
    assert (results.plotted, results.filmed) == (True, False)
    assert "replay.mp4" not in card_text(folder)
    assert all(check.holds is not False for check in check_files(folder)[2])
    for name in ("targets.png", "training_log.csv"):  # what a Hub's cache and the wheel leave out
        (folder / name).unlink()
    assert all(check.holds is not False for check in check_files(folder)[2])


def test_a_kept_measurement_counts_only_if_it_asked_the_same(tiny_hopper: str, tmp_path: Path) -> None:
    run = finished(tmp_path / "run", tiny_hopper)
    heard: list[str] = []
    first = measured(run, 2, heard.append)
    assert measured(run, 2, heard.append) == first
    assert len(heard) == 1
    other = first.model_copy(update={"target_return": 5.0})
    (run / RESULT).write_text(other.to_json())
    assert measured(run, 2, heard.append).target_return == 100.0
    assert len(heard) == 2
    assert Result.from_json((run / RESULT).read_text(), "kept").target_return == 100.0


def test_a_folder_is_replaced_and_comes_back_if_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, target = tmp_path / "new", tmp_path / "target"
    for folder, text in ((new, "new"), (target, "old")):
        folder.mkdir()
        (folder / "file").write_text(text)
    with pytest.raises(OSError, match="nothing"):
        swap_in(tmp_path / "nothing", target)
    assert (target / "file").read_text() == "old"
    swap_in(new, target)
    assert (target / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["target"]  # noqa: PTH208


def test_a_recipe_file_trains_what_it_says_and_a_wrong_environment_is_found_at_once(
    tiny_hopper: str, tmp_path: Path
) -> None:
    run = finished(tmp_path / "run", tiny_hopper, family="dt")
    recipe = Recipe.from_json((run / "train_config.json").read_text(), "recipe")
    settings = ["--set", "train.steps=2", "--set", "eval.every=0", "--device", "cpu", "--out", str(tmp_path / "again")]
    done = CliRunner().invoke(app, ["train", str(run / "train_config.json"), *settings])
    assert done.exit_code == 0, done.output
    trained = Agent.from_pretrained(tmp_path / "again")
    assert trained.recipe is not None
    assert trained.recipe.model == recipe.model
    assert np.isfinite(trained.predict(np.zeros(11, np.float32))[0]).all()
    for env, error in (("Hoper-v5", UnknownNameError), ("Walker2d-v5", SpaceError)):
        wrong = ["--set", "eval.every=1", "--set", f"eval.env={env}", "--out", str(tmp_path / "wrong")]
        done = CliRunner().invoke(app, ["train", str(run / "train_config.json"), *wrong])
        assert isinstance(done.exception, error), done.output
        assert not (tmp_path / "wrong").exists()
