"""The papers' statements about Markov matrices in numbers, and that the checks notice where they do not hold."""

from __future__ import annotations

import math

import pytest
import torch

from agentzoo.errors import ConfigError
from agentzoo.nn.markov import markov_statistics
from agentzoo.research.analysis.theorems import (
    diagonal_of_random_tokens,
    largest_step,
    ratio_of_random_tokens,
    updates_that_keep_a_markov_matrix,
)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def tied(dim: int, size: int) -> torch.Tensor:
    w = torch.randn(dim, size, generator=generator(), dtype=torch.float64)
    return w @ w.T


@pytest.mark.parametrize("kind", ["identity", "tied", "negative", "untied"])
def test_the_mean_over_random_tokens_is_the_trace_on_the_diagonal_and_nothing_beside(kind: str) -> None:
    matrix = {
        "identity": torch.eye(32).double(),
        "tied": tied(48, 8),
        "negative": -tied(48, 8),
        "untied": torch.randn(32, 32, generator=generator(), dtype=torch.float64),
    }[kind]
    found = diagonal_of_random_tokens(matrix, generator())
    assert found.holds()
    assert found.trace == pytest.approx(float(matrix.trace()))
    assert found.diagonal_error < 0.2 * abs(found.trace) + 1.0  # five of them leave room to be wrong in


def test_the_check_of_the_trace_can_fail() -> None:
    found = diagonal_of_random_tokens(torch.eye(32).double(), generator())
    assert not found._replace(trace=found.trace + 6 * found.diagonal_error).holds()
    assert not found._replace(beside=found.beside + 11 * found.beside_error).holds()


def test_the_measured_ratio_of_tied_gaussians() -> None:
    """Head size 64, 768 numbers: 9.6 to 9.8 by the approximation; and the identity, where tr/‖·‖ is sqrt(d)."""
    found = ratio_of_random_tokens(tied(768, 64), generator(), tokens=30, draws=40)
    assert 9.4 < found.approximation < 10.0
    assert found.mean == pytest.approx(found.approximation, rel=0.05)
    assert found.quantiles[0] < found.quantiles[1] < found.quantiles[2]
    assert "does not say" in found.warning
    identity = ratio_of_random_tokens(torch.eye(64).double(), generator())
    assert identity.approximation == pytest.approx(10.03, abs=0.01)  # 8 / sqrt(2/π)


def test_a_twentieth_of_the_measured_ratios_lies_beyond_each_outer_quantile() -> None:
    matrix = torch.eye(16).double() + 0.1
    found = ratio_of_random_tokens(matrix, generator(), tokens=10, draws=100)
    tokens = torch.randn(100, 10, 16, generator=generator(), dtype=torch.float64)
    size = (tokens @ matrix @ tokens.mT).abs()
    diagonal = size.diagonal(dim1=1, dim2=2).sum(1)
    ratios = (diagonal / 10) / ((size.sum((1, 2)) - diagonal) / 90)
    assert found.mean == pytest.approx(float(ratios.mean()))
    assert [int((ratios < quantile).sum()) for quantile in found.quantiles] == [5, 50, 95]


def test_a_markov_matrix_does_not_bound_the_measured_ratio() -> None:
    """What the warning says: ratio(A) is 101 here, D/O of random tokens about 4.5."""
    matrix = torch.eye(64).double() + 0.01
    assert markov_statistics(matrix).ratio == pytest.approx(101.0)
    assert ratio_of_random_tokens(matrix, generator()).mean < 15.0


def test_updates_that_keep_a_matrix_worked_out_by_hand() -> None:
    """A = I + 0.01: ratio 101, ρ = 93; beside 0.01; smallest diagonal entry 1.01."""
    matrix = torch.eye(64).double() + 0.01
    found = updates_that_keep_a_markov_matrix(matrix, step=1e-3)
    assert found.from_ratio == pytest.approx(93 / 9 * 0.01 / 1e-3)  # 103.3
    assert found.from_diagonal == pytest.approx(1010.0)
    assert found.updates == 102  # the largest K below 103
    diagonal = updates_that_keep_a_markov_matrix(torch.eye(64), step=1e-3)  # ρ is infinite, ρ · 0 nothing
    assert (diagonal.updates, diagonal.from_ratio) == (110, pytest.approx(1 / 9 / 1e-3))
    as_in_paper = updates_that_keep_a_markov_matrix(matrix)
    assert as_in_paper.step == pytest.approx(1e-10)
    assert as_in_paper.updates > 1e8


def test_the_smallest_diagonal_entry_bounds_the_updates() -> None:
    matrix = torch.eye(64).double() + 0.01
    matrix[3, 3] = 0.05
    found = updates_that_keep_a_markov_matrix(matrix, step=1e-3)
    assert found.from_diagonal == pytest.approx(50.0)
    assert found.from_ratio > 100.0
    assert found.updates == math.floor(found.from_diagonal) - 1


def test_the_largest_step_by_hand() -> None:
    after = torch.tensor([[0.0, -6.0], [1.0, 2.0]])
    assert largest_step(torch.zeros(2, 2), after, updates=2) == 3.0


def test_within_the_bound_no_update_breaks_the_matrix() -> None:
    """The worst case: all entries beside the diagonal grow, all on it shrink, by the step each update."""
    matrix = torch.eye(16).double() + 0.01
    step = 1e-4
    bound = updates_that_keep_a_markov_matrix(matrix, step).updates
    towards = 1 - 2 * torch.eye(16).double()
    after = matrix + bound * step * towards
    assert largest_step(matrix, after, bound) == pytest.approx(step)
    assert markov_statistics(after).positive
    far = matrix + 10 * bound * step * towards
    assert not markov_statistics(far).is_markov()


def test_what_is_not_markov_has_nothing_to_keep() -> None:
    with pytest.raises(ConfigError, match="not a Markov matrix at threshold 8"):
        updates_that_keep_a_markov_matrix(-torch.eye(8).double())
    with pytest.raises(ConfigError, match="step must be positive"):
        updates_that_keep_a_markov_matrix(torch.eye(8).double() + 0.01, step=0.0)
    with pytest.raises(ConfigError, match="too small: the number of updates is infinite"):
        updates_that_keep_a_markov_matrix(torch.eye(8) * 1e10, step=1e-300)
    with pytest.raises(ConfigError, match="the matrix is 0, so it has no ratio"):
        ratio_of_random_tokens(torch.zeros(8, 8), generator())
