"""Networks whose weights are not float32, as after `agent.model.double()`."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from conftest import config_of, env_of, make_agent, random_batch
from torch import Tensor

from agentzoo.registry import families
from agentzoo.types import Batch


def _in(batch: Batch, dtype: torch.dtype) -> Batch:
    """The batch with all its floating-point numbers in this type."""
    parts = {field.name: getattr(batch, field.name) for field in fields(batch)}
    floats = {n: part.to(dtype) for n, part in parts.items() if isinstance(part, Tensor) and part.is_floating_point()}
    return replace(batch, **floats)


def _actions(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.mode()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-4), (torch.bfloat16, 0.2)])
@pytest.mark.parametrize("family", sorted(families()))
def test_a_network_acts_in_the_precision_of_its_weights_and_inputs(
    family: str, dtype: torch.dtype, tolerance: float
) -> None:
    model = make_agent(env_of(family), config_of(family)).model.eval()
    batch = random_batch(model.io, [4, 2, 1])
    with torch.no_grad():
        expected = _actions(model.act(batch))
        found = _actions(model.to(dtype).act(_in(batch, dtype)))
    error = (found - expected).abs().mean() / expected.abs().mean()
    assert error < tolerance
