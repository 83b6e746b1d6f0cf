"""Dropout draws what it should."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from agentzoo.nn.dropout import Dropout

P = 0.1


def drawn(seed: int = 0, count: int = 1_000_003, p: float = P) -> torch.Tensor:
    torch.manual_seed(seed)
    return Dropout(p)(torch.ones(count)) > 0


def test_the_right_share_is_kept_at_the_right_scale() -> None:
    torch.manual_seed(0)
    drop, x = Dropout(P), torch.ones(1000, 1001)  # no multiple of what is drawn at once
    y = drop(x)
    assert (y > 0).float().mean().item() == pytest.approx(0.9, abs=1e-3)  # three standard errors of a million
    assert y.max().item() == pytest.approx(1 / 0.9, rel=1e-4)
    assert y.mean().item() == pytest.approx(1.0, abs=2e-3)
    assert not torch.equal(y, drop(x))
    assert torch.equal(drop.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_the_same_seed_draws_the_same_and_another_something_else() -> None:
    assert torch.equal(drawn(3), drawn(3))
    agree = (drawn(3) == drawn(4)).float().mean().item()
    assert agree == pytest.approx(0.9**2 + 0.1**2, abs=2e-3)


def test_neighbours_and_lanes_are_independent() -> None:
    """How many of 16 neighbours are dropped is binomial, and every place of them is dropped as often."""
    blocks = ~drawn(5, 16 * 50_000, 0.5).view(-1, 16)
    counts = np.bincount(blocks.sum(1).numpy(), minlength=17)
    expected = np.array([math.comb(16, k) for k in range(17)]) / 2**16 * len(blocks)
    inner = slice(3, 14)
    scale = counts[inner].sum() / expected[inner].sum()
    assert chisquare(counts[inner], expected[inner] * scale).pvalue > 1e-4
    assert chisquare(blocks.sum(0).numpy()).pvalue > 1e-4
    shifted = [(blocks.flatten()[:-lag] == blocks.flatten()[lag:]).float().mean().item() for lag in (1, 7, 8, 64)]
    assert shifted == pytest.approx([0.5] * 4, abs=3e-3)


def test_the_gradient_passes_where_a_number_was_kept() -> None:
    torch.manual_seed(1)
    x, residual = torch.randn(7, 13, requires_grad=True), torch.randn(7, 13, requires_grad=True)
    y = Dropout(0.5).add(residual, x)
    kept = (y - residual).detach() / x.detach()
    assert set(kept.round(decimals=4).unique().tolist()) == {0.0, 2.0}
    weight = torch.randn(7, 13)
    gx, gr = torch.autograd.grad((y * weight).sum(), (x, residual), create_graph=True)
    torch.testing.assert_close(gx, weight * kept, atol=1e-5, rtol=1e-5)
    assert torch.equal(gr, weight)


def test_what_is_not_contiguous_is_dropped_in_its_own_order() -> None:
    torch.manual_seed(2)
    x = torch.arange(1.0, 25.0).view(4, 6).t()
    y = Dropout(0.5)(x)
    assert y.shape == x.shape
    assert ((y == 0) | (y == 2 * x)).all()


@settings(max_examples=30, deadline=None)
@given(count=st.integers(0, 40), p=st.floats(0.0, 0.999))
def test_any_size_and_probability(count: int, p: float) -> None:
    x = torch.ones(count)
    y = Dropout(p)(x)
    assert ((y == 0) | torch.isclose(y, torch.tensor(1 / (1 - p)), rtol=1e-1)).all()
    y = Dropout(p).add(x, torch.zeros(count))
    assert torch.equal(y, x)


def test_everything_may_be_dropped() -> None:
    assert not Dropout(1.0)(torch.ones(99)).any()


def test_transforms_of_functions_may_drop_too() -> None:
    drop, x = Dropout(0.5), torch.ones(8, 4)
    grad = torch.func.grad(lambda values: drop(values).sum())(x)
    assert set(grad.unique().tolist()) <= {0.0, 2.0}
