"""The compiled scan equals the loop, also where numbers are extreme, and refuses what it cannot read."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from agentzoo.nn.native import compiled
from agentzoo.nn.native.scan import ScanInputs, active_path, selective_scan
from nn.cases import random_inputs

compiled_only = pytest.mark.skipif(compiled.library() is None, reason="there is no C compiler here")


@compiled_only
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 7, 8, 5), (2, 20, 9, 3), (2, 47, 21, 16), (20, 60, 256, 16)])
def test_compiled_scan_and_its_gradients_equal_the_loop_in_float64(shape: tuple[int, int, int, int]) -> None:
    """Widths that fill the compiled code's vectors, are shorter, and leave a rest; lengths of one chunk, of several and
    with a rest; the last is shared by threads.
    """
    inputs = random_inputs(*shape, torch.float32, grad=True)
    exact_inputs = ScanInputs(*(t.detach().double().requires_grad_() for t in inputs))
    grad = torch.randn(shape[:3], generator=torch.Generator().manual_seed(1))
    exact, y = selective_scan(exact_inputs, "loop"), selective_scan(inputs, "compiled")
    with torch.no_grad():  # keeps nothing for a backward pass
        assert torch.equal(selective_scan(inputs, "compiled"), y)
    pairs = [(y, exact)]
    pairs += zip(torch.autograd.grad(y, inputs, grad), torch.autograd.grad(exact, exact_inputs, grad), strict=True)
    for name, (found, wanted) in zip(("y", *inputs._fields), pairs, strict=True):
        assert found.shape == wanted.shape
        assert float((found - wanted).detach().norm()) <= 1e-5 * float(wanted.detach().norm()), name


@compiled_only
def test_compiled_scan_at_extreme_steps() -> None:
    """A step of 100 forgets all (e^-400 is 0, not a small number of the wrong sign); one of e^-40 changes nothing."""
    inputs = random_inputs(1, 5, 8, 2, torch.float32)
    delta = torch.full_like(inputs.delta, -40.0)
    delta[:, 2] = 100.0
    inputs = inputs._replace(delta=delta, delta_bias=torch.zeros(8), A=torch.full((8, 2), -4.0))
    y = selective_scan(inputs, "compiled")
    assert torch.allclose(y, selective_scan(inputs, "loop"), rtol=1e-5, atol=1e-6)
    broken = inputs._replace(x=inputs.x.index_fill(2, torch.tensor([3]), math.nan))
    assert selective_scan(broken, "compiled").isnan().flatten(0, 1).all(0).tolist() == [i == 3 for i in range(8)]


@compiled_only
def test_compiled_scan_gives_the_same_bits_every_time_and_second_derivatives() -> None:
    inputs = random_inputs(64, 20, 64, 16, torch.float32, grad=True)
    once, again = (torch.autograd.grad(selective_scan(inputs, "compiled").square().sum(), inputs) for _ in range(2))
    assert all(map(torch.equal, once, again))
    few = ScanInputs(*(t.detach().requires_grad_() for t in random_inputs(2, 4, 8, 3, torch.float32)))
    seconds = []
    for path in ("compiled", "loop"):
        (first,) = torch.autograd.grad(selective_scan(few, path).square().sum(), few.delta, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), few.x)[0])
    assert float((seconds[0] - seconds[1]).norm() / seconds[1].norm()) < 1e-4


@compiled_only
def test_compiled_scan_refuses_what_would_be_read_past_its_end() -> None:
    inputs = random_inputs(2, 5, 8, 3, torch.float32)
    for name, value in (("B", inputs.B[:1]), ("D", inputs.D[:4]), ("z", inputs.z[:, :3]), ("A", inputs.A[:4])):
        with pytest.raises(ValueError, match="the compiled scan of x"):
            selective_scan(inputs._replace(**{name: value}), "compiled")


@compiled_only
def test_compiled_scan_keeps_every_kind_of_nan() -> None:
    inputs = random_inputs(2, 5, 8, 3, torch.float32)
    for bits in (0x7FC00000, 0x7FC00001, 0x7FFFFFFF):
        delta = inputs.delta.clone()
        delta[0, 2, 3] = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
        y = selective_scan(inputs._replace(delta=delta), "compiled")
        assert y[0, 2:, 3].isnan().all()
        assert y.isnan().sum() == 3


def test_without_a_compiler_the_blocked_scan_takes_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inputs = random_inputs(2, 5, 8, 3, torch.float32)
    blocked = selective_scan(inputs, "blocked")
    compiled.library.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    try:
        assert compiled.library() is None
        assert torch.equal(selective_scan(inputs), blocked)
        assert active_path("cpu") == "PyTorch blocked scan (cpu; a C compiler makes it faster)"
        with pytest.raises(RuntimeError, match="a C compiler"):
            selective_scan(inputs, "compiled")
    finally:
        compiled.library.cache_clear()
