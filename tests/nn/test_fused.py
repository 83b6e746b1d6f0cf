"""Attention's weights and GELU in C say what PyTorch says, forwards and backwards."""

from __future__ import annotations

import math
import os
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import gelu

from agentzoo.nn.attention import CausalAttention, causal_bias
from agentzoo.nn.dropout import Dropout
from agentzoo.nn.native import compiled
from agentzoo.nn.native.fused import causal_weights, fuses, gelu_tanh

needs_compiler = pytest.mark.skipif(compiled.library() is None, reason="there is no C compiler here")


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler here")
@pytest.mark.skipif(os.environ.get(compiled.SWITCH) == "0", reason="switched off")
def test_the_sources_compile() -> None:
    """A mistake in them would send all to PyTorch, and every test of C would be skipped."""
    assert compiled.library() is not None


def weighed(scores: Tensor, factor: float, read: tuple[int, int, int] | None) -> Tensor:
    """The same without dropout, by PyTorch."""
    return (scores * factor + causal_bias(scores.shape[-1], read, scores.dtype, scores.device)).softmax(dim=-1)


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 40), start=st.integers(0, 2), step=st.integers(1, 3), seed=st.integers(0, 99))
def test_weights_and_their_gradient_without_dropout(length: int, start: int, step: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    read = (min(start, length - 1), length, step)
    queries = len(range(*read))
    scores = 10.0 * torch.randn(2, 3, queries, length, generator=generator)
    grad = torch.randn(scores.shape, generator=generator)
    ours, theirs = (scores.clone().requires_grad_() for _ in range(2))
    found, expected = causal_weights(ours, 0.3, 0.0, read), weighed(theirs, 0.3, read)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    found.backward(grad)
    expected.backward(grad)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-5)


@needs_compiler
def test_weights_worked_out_by_hand() -> None:
    """The second token weighs scores ln 1 and ln 3, doubled by the factor: 1 to 9."""
    scores = torch.tensor([[[5.0, 7.0], [0.0, math.log(3.0)]]])
    torch.testing.assert_close(causal_weights(scores, 2.0, 0.0), torch.tensor([[[1.0, 0.0], [0.1, 0.9]]]))


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropped_weights_get_no_gradient_and_kept_ones_are_scaled(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    scores, grad = torch.randn(4, 2, 60, 60).to(dtype), torch.randn(4, 2, 60, 60).to(dtype)
    ours, theirs = scores.clone().requires_grad_(), scores.float().requires_grad_()
    found, shares = causal_weights(ours, 0.125, 0.4), weighed(theirs, 0.125, None)
    below = torch.ones(60, 60, dtype=torch.bool).tril()
    kept = found.detach() != 0
    assert not kept[..., ~below].any()
    assert kept[..., below].float().mean().item() == pytest.approx(0.6, abs=0.02)
    expected = shares * kept / 0.6
    near = {"atol": 1e-6, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 1e-4, "rtol": 2**-8}
    torch.testing.assert_close(found.float(), expected.detach(), **near)
    found.backward(grad)
    expected.backward(grad.float())
    assert ours.grad is not None
    assert ours.grad.dtype == dtype
    near["atol"] *= 10
    torch.testing.assert_close(ours.grad.float(), theirs.grad, **near)


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_rows_and_draw_what_one_would(threads: int) -> None:
    before = torch.get_num_threads()
    torch.manual_seed(3)
    scores = torch.randn(9, 4, 61, 61, requires_grad=True)
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(4)
        found = causal_weights(scores, 0.5, 0.2)
        (grad,) = torch.autograd.grad((found * found).sum(), scores)
    finally:
        torch.set_num_threads(before)
    kept = found.detach() != 0
    expected = weighed(scores, 0.5, None) * kept / 0.8
    (wanted,) = torch.autograd.grad((expected * expected).sum(), scores)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(grad, wanted, atol=1e-6, rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize("read", [None, (0, 4, 1), (0, 9, 3), (4, 10, 3), (-1, 1, 1)])
def test_scores_of_other_tokens_are_refused(read: tuple[int, int, int] | None) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        causal_weights(torch.zeros(1, 2, 5), 1.0, 0.0, read)


@needs_compiler
def test_what_is_not_finite_is_seen() -> None:
    scores = torch.zeros(1, 3, 3)
    scores[0, 1, 0] = math.nan
    found = causal_weights(scores, 1.0, 0.0)
    assert found[0, 1, :2].isnan().all()
    assert found[0, (0, 2)].isfinite().all()
    assert gelu_tanh(torch.tensor([math.nan])).isnan()


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gelu_and_its_slope(dtype: torch.dtype) -> None:
    x = torch.cat((torch.linspace(-12, 12, 2_003), torch.tensor([0.0, 1e-6, -1e-6, 100.0, -100.0]))).to(dtype)
    ours, theirs = x.clone().requires_grad_(), x.float().requires_grad_()
    found, expected = gelu_tanh(ours), gelu(theirs, approximate="tanh")
    found.sum().backward()
    expected.sum().backward()
    assert found.dtype == ours.grad.dtype == dtype  # type: ignore[union-attr]
    near = {"atol": 2e-6, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 1e-5, "rtol": 2**-8}
    torch.testing.assert_close(found.float(), expected, **near)
    torch.testing.assert_close(ours.grad.float(), theirs.grad, **near)  # type: ignore[union-attr]


@needs_compiler
@given(value=st.floats(width=32, allow_nan=False), count=st.integers(1, 9))
def test_bfloat16_is_rounded_as_pytorch_rounds(value: float, count: int) -> None:
    """Nothing is dropped, so that float32 in and bfloat16 out is a conversion."""
    x = torch.full((count,), value)
    zeros = torch.zeros(count, dtype=torch.bfloat16)
    drop = Dropout(1e-12)
    assert torch.equal(drop.add(x, zeros), x)  # their common type is float32
    halves = drop.add(x.bfloat16(), zeros)
    assert halves.dtype == torch.bfloat16
    assert torch.equal(halves, x.bfloat16())
    grad = torch.autograd.grad(drop.add(x.clone(), zeros.requires_grad_()), zeros, x)[0]
    assert torch.equal(grad, x.bfloat16())  # of the branch, rounded from the sum's float32


@needs_compiler
def test_a_residual_of_another_type_gets_its_gradient() -> None:
    torch.manual_seed(0)
    residual, branch = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7).bfloat16().requires_grad_()
    out = Dropout(0.5).add(residual, branch)
    assert out.dtype == torch.float32
    kept = (out - residual).detach() != 0
    out.sum().backward()
    assert torch.equal(residual.grad, torch.ones(5, 7))  # type: ignore[arg-type]
    assert torch.equal(branch.grad, (2.0 * kept).bfloat16())  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_learns_the_same_with_and_without_c(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mean over draws of dropout, both paths give the output of no dropout."""
    torch.manual_seed(0)
    attention = CausalAttention(16, 2, 0.2)
    x = torch.randn(1, 9, 16).expand(4_000, -1, -1)
    means = []
    for path in ("C", "PyTorch"):
        if path == "PyTorch":
            monkeypatch.setattr("agentzoo.nn.dropout.fuses", lambda *_: False)
        torch.manual_seed(1)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            means.append(attention(x, slice(1, None, 3)).float().mean(0))
    whole = attention.eval()(x[:1], slice(1, None, 3))[0]
    for mean in means:
        torch.testing.assert_close(mean, whole.detach(), atol=0.01, rtol=0.0)


def test_tensors_that_c_does_not_read_are_left_to_pytorch() -> None:
    assert not fuses(torch.zeros(2, dtype=torch.float64))
    assert not fuses(torch.zeros(2, device="meta"))
    seen = []
    torch.func.vmap(lambda row: (seen.append(fuses(row)), row)[1])(torch.zeros(2, 2))
    assert seen == [False]
