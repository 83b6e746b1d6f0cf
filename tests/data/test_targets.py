"""Target returns by rule."""

from __future__ import annotations

import numpy as np
import pytest

from agentzoo.data.targets import Target, choose_target
from agentzoo.errors import ConfigError
from agentzoo.recipe import Recipe, load_recipe

RETURNS = np.arange(0.0, 101.0)  # 0, 1, ..., 100


@pytest.mark.parametrize(
    ("wanted", "env", "target"),
    [
        ("max", "Hopper-v5", Target(100.0, "max")),
        ("p90", "Hopper-v5", Target(90.0, "p90")),
        ("d4rl", "Hopper-v5", Target(100.0, "max")),  # 3,600 is not reached
        ("d4rl", "Other-v0", Target(100.0, "max")),
        ("42.5", "Hopper-v5", Target(42.5, "number")),
    ],
)
def test_each_rule_gives_its_number(wanted: str, env: str, target: Target) -> None:
    assert choose_target(wanted, RETURNS, env, ()) == target


def test_the_constant_counts_where_the_data_reaches_it() -> None:
    assert choose_target("d4rl", np.array([10.0, 3600.0]), "Hopper-v5", ()) == Target(3600.0, "d4rl")
    module = "gymnasium.envs.mujoco:Hopper-v5"
    assert choose_target("d4rl", np.array([10.0, 3600.0]), module, ()) == Target(3600.0, "d4rl")
    assert choose_target("d4rl", np.array([10.0, 3599.0]), "Hopper-v5", ()) == Target(3599.0, "max")


def test_an_unknown_target_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="a number or one of d4rl, max, p90; got 'best'"):
        choose_target("best", RETURNS, "Hopper-v5", ())


@pytest.mark.parametrize("wanted", ["nan", "inf", "-Infinity", "5e9", "max"])
def test_a_target_that_no_recipe_holds_is_refused(wanted: str) -> None:
    returns = np.array([1.0, 2e9]) if wanted == "max" else RETURNS
    with pytest.raises(ConfigError, match=rf"target return is \S+ \({wanted}\); it must be a number from -1e\+09"):
        choose_target(wanted, returns, "Hopper-v5", ())


def test_options_make_another_task_without_a_constant() -> None:
    returns = np.array([10.0, 3700.0])
    assert choose_target("d4rl", returns, "Hopper-v5", ("width",)) == Target(3600.0, "d4rl")
    assert choose_target("d4rl", returns, "Hopper-v5", ("healthy_reward",)) == Target(3700.0, "max")


def test_a_recipe_keeps_the_rule_until_a_number_is_set() -> None:
    recipe = load_recipe("dt-hopper-medium")
    assert recipe.eval.target_rule == "max"
    assert "target_rule" not in recipe.with_target(Target(100.0, "number")).to_json()
    asked = recipe.with_target(Target(100.0, "max"))
    again = Recipe.from_json(asked.to_json(), "test")
    assert (again.eval.target_return, again.eval.target_rule) == (100.0, "max")
    assert again.override(["train.steps=3"]).eval.target_rule == "max"
    assert again.override(["eval.target_return=5.0"]).eval.target_rule == "number"
