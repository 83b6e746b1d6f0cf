"""What is no observation, reward, flag or environment at all gets one of our errors, not a library's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_agent

from agentzoo import evaluate
from agentzoo.errors import ShapeError, SpaceError

OBS = np.zeros(3, dtype=np.float32)


@pytest.mark.parametrize("wrong", ["yes", ["yes"], [None], torch.ones(1, requires_grad=True), {"a": 1}])
@pytest.mark.parametrize("name", ["episode_start", "reward"])
def test_no_truth_values_and_no_numbers_are_named(name: str, wrong: Any) -> None:
    with pytest.raises(ShapeError, match=f"^{name} "):
        make_agent().predict(OBS, **{name: wrong})


def test_a_tensor_is_read_and_one_with_grad_says_what_to_do() -> None:
    agent = make_agent()
    np.testing.assert_array_equal(agent.predict(torch.from_numpy(OBS))[0], agent.predict(OBS)[0])
    with pytest.raises(ShapeError, match=r"^obs is not an array of numbers: .* requires grad\. Use tensor\.detach\(\)"):
        agent.predict(torch.zeros(3, requires_grad=True))


@pytest.mark.parametrize("wrong", [3, [1], {"a": 1}, object])
def test_what_is_no_environment_is_named(wrong: Any) -> None:
    agent = make_agent()
    with pytest.raises(SpaceError, match=r"is not an environment; pass a gymnasium\.Env"):
        agent.set_env(wrong)
    with pytest.raises(SpaceError, match=r"is not an environment; pass a gymnasium\.Env"):
        evaluate(agent, wrong, 1)
