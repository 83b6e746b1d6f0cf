"""bfloat16 as a GPU computes it, on a machine without one.

Autocast on a GPU gives float32 for some operations where autocast on a CPU stays in bfloat16, so a backward pass
written by hand can meet both types. Here those operations are given float32 inputs, as the GPU's autocast does.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch
from conftest import config_of, env_of, io_of, random_batch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from agentzoo.registry import families, get_family

# Those that networks use of https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32"
FLOAT32 = {
    *("__pow__", "cosine_similarity", "cross_entropy", "cumprod", "cumsum", "exp", "expm1", "layer_norm", "log"),
    *("log1p", "log_softmax", "mse_loss", "norm", "normalize", "pow", "prod", "reciprocal", "rsqrt", "smooth_l1_loss"),
    *("softmax", "softplus", "sum", "tan"),
}


class _AsOnAGPU(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_autocast_enabled("cpu") and getattr(func, "__name__", "") in FLOAT32:
            args, kwargs = tuple(map(_raised, args)), {name: _raised(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _raised(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value


@pytest.mark.parametrize("family", sorted(families()))
def test_gradients_in_bfloat16_are_near_those_in_float32(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTZOO_COMPILE", "0")  # the C scan is for CPUs
    env = gym.make(env_of(family))
    io = io_of(env, 4)
    env.close()
    torch.manual_seed(0)
    model = get_family(family).model(config_of(family), io).train()
    model.begin_step(0, 100)
    batch = random_batch(io, [4, 4, 2, 1, 3])

    def gradient(bfloat16: bool) -> tuple[float, Tensor]:
        model.zero_grad()
        torch.manual_seed(1)  # dropout
        with _AsOnAGPU():
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
                loss = torch.stack(list(model.loss(batch).values())).sum()
            loss.backward()
        return float(loss.detach()), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    (loss, exact), (rounded_loss, rounded) = gradient(False), gradient(True)
    assert rounded_loss == pytest.approx(loss, rel=0.03)
    assert float((rounded - exact).norm()) < 0.1 * float(exact.norm())
