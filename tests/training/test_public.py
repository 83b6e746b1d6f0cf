"""Recipes for Minari's public datasets, on small local ones of the same spec: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import agentzoo
from agentzoo.data.making.collect import Rollout
from agentzoo.data.minari import write_dataset
from agentzoo.recipe import load_recipe
from agentzoo.recipes.public import RECIPES

QUICK = ("train.steps=2", "train.warmup_steps=1", "eval.every=0", "model.embed_dim=16", "model.n_layers=1")


def box(size: int, bound: float = np.inf, kind: str = "float64") -> gym.spaces.Box:
    return gym.spaces.Box(-bound, bound, (size,), np.dtype(kind).type)


def goals(size: int, goal: gym.Space[Any]) -> gym.spaces.Dict:
    return gym.spaces.Dict({"observation": box(size), "achieved_goal": goal, "desired_goal": goal})


# recipe -> the spaces of its dataset's environment, and how many numbers its network reads
KITCHEN = gym.spaces.Dict({"kettle": box(7), "microwave": box(1)})
SPECS = {
    "dt-mujoco-hopper-medium": (box(11), box(3, 1.0, "float32"), 11),
    "dt-mujoco-ant-expert": (box(105), box(8, 1.0, "float32"), 105),
    "dt-antmaze-umaze": (goals(27, box(2)), box(8, 1.0, "float32"), 29),
    "dt-pen-human": (box(45), box(24, 1.0, "float32"), 45),
    "dt-kitchen-complete": (goals(59, KITCHEN), box(9, 1.0, "float64"), 59),
}


def sampled(space: gym.Space[Any], length: int) -> Any:
    """(length, ...) of normal numbers in the space's own form."""
    if isinstance(space, gym.spaces.Dict):
        return {key: sampled(inner, length) for key, inner in space.items()}
    return np.random.default_rng(0).normal(size=(length, *space.shape)).astype(space.dtype)


@pytest.mark.parametrize("name", SPECS)
def test_a_public_recipe_trains_on_data_of_its_spec(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    observation, action, size = SPECS[name]
    length = 6
    ends = np.arange(length) == length - 1
    moves = np.clip(sampled(action, length), -1.0, 1.0)
    one = Rollout(0, sampled(observation, length + 1), moves, np.ones(length), ends, np.zeros(length, bool))
    write_dataset(
        load_recipe(name).data.dataset,
        [one, one],
        observation_space=observation,
        action_space=action,
        author="a test",
        description="Of the same spec.",
        algorithm_name="none",
    )
    agent = agentzoo.train(name, target="max", settings=QUICK, out=tmp_path / "run", device="cpu")
    assert agent.config.io.observation.size == size
    assert agent.config.io.action.size == action.shape[0]
    assert agent.target_return == 6.0


def test_every_public_dataset_has_a_recipe_with_its_references() -> None:
    assert len(RECIPES) == 4 * 3 + 6 + 3 + 3
    assert RECIPES["dt-pen-cloned"].eval.reference == (96.262799, 3076.8331017826877)
    assert RECIPES["dt-kitchen-mixed"].eval.reference == (0.0, 4.0)
    assert RECIPES["dt-antmaze-large-diverse"].eval.env == "AntMaze_Large_Diverse_GR-v4"
    assert {recipe.data.dataset.split("/")[0] for recipe in RECIPES.values()} == {"mujoco", "D4RL"}
