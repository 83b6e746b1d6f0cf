"""Numerical checks of the Markov-heads papers' statements about a matrix A. They are not proofs.

Source: Zhao et al., ICML 2025, theorem 4.3, corollary 4.4 and theorem 4.5. E holds i.i.d. standard normal numbers; each
row is a token embedding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from agentzoo.errors import ConfigError
from agentzoo.nn.markov import THRESHOLD, markov_statistics

WARNING = (
    "The theorem bounds a ratio of expectations of signed entries, whose denominator is 0. It does not say that the "
    "ratio of mean absolute entries exceeds r; use the measured value."
)


class RandomTokens(NamedTuple):
    """Theorem 4.3: E[E A Eᵀ] is tr(A) on the diagonal and 0 elsewhere."""

    trace: float
    diagonal: float  # mean over draws and entries
    diagonal_error: float  # its standard error
    beside: float  # signed mean of the rest
    beside_error: float

    def holds(self, errors: float = 5.0) -> bool:
        """Whether both hold within `errors` standard errors."""
        near = abs(self.diagonal - self.trace) <= errors * self.diagonal_error
        return near and abs(self.beside) <= errors * self.beside_error


class RandomRatio(NamedTuple):
    """Corollary 4.4: D / O, mean absolute diagonal to mean absolute rest of E A Eᵀ, over draws."""

    mean: float
    quantiles: tuple[float, float, float]  # 5, 50 and 95 %
    approximation: float  # |tr A| / (sqrt(2/π) ‖A‖_F)
    warning: str = WARNING


class UpdateBound(NamedTuple):
    """Theorem 4.5: the number of updates after which a Markov matrix is still one."""

    updates: int
    step: float  # assumed change of an entry per update
    from_ratio: float  # bound by condition (ii) alone
    from_diagonal: float  # bound by condition (i) alone


def _draws(matrix: Tensor, tokens: int, draws: int, generator: torch.Generator) -> Tensor:
    """(draws, tokens, tokens): E A Eᵀ."""
    embeddings = torch.randn(draws, tokens, len(matrix), generator=generator, dtype=torch.float64)
    return embeddings @ matrix.double() @ embeddings.transpose(1, 2)


def _beside(count: int) -> Tensor:
    return ~torch.eye(count, dtype=torch.bool)


def diagonal_of_random_tokens(
    matrix: Tensor, generator: torch.Generator, tokens: int = 20, draws: int = 400
) -> RandomTokens:
    """Theorem 4.3 by Monte Carlo; entries of one draw share tokens, so errors are taken over draws."""
    found = _draws(matrix, tokens, draws, generator)
    diagonal = found.diagonal(dim1=1, dim2=2).mean(1)
    rest = found[:, _beside(tokens)].mean(1)
    errors = [float(values.std() / draws**0.5) for values in (diagonal, rest)]
    trace = float(matrix.double().trace())
    return RandomTokens(trace, float(diagonal.mean()), errors[0], float(rest.mean()), errors[1])


def ratio_of_random_tokens(
    matrix: Tensor, generator: torch.Generator, tokens: int = 60, draws: int = 200
) -> RandomRatio:
    """Corollary 4.4 by Monte Carlo, with its analytic approximation.

    Raises:
        ConfigError: the matrix is 0, so every ratio is 0 / 0.
    """
    if not matrix.any():
        raise ConfigError("the matrix is 0, so it has no ratio.")
    found = _draws(matrix, tokens, draws, generator).abs()
    ratios = found.diagonal(dim1=1, dim2=2).mean(1) / found[:, _beside(tokens)].mean(1)
    low, middle, high = ratios.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)).tolist()
    exact = matrix.double()
    expected = abs(float(exact.trace())) / (math.sqrt(2 / math.pi) * float(exact.norm()))
    return RandomRatio(float(ratios.mean()), (low, middle, high), expected)


def updates_that_keep_a_markov_matrix(
    matrix: Tensor, step: float = 1e-4 * 1e-6, threshold: float = THRESHOLD
) -> UpdateBound:
    """Theorem 4.5: the largest K with `K < floor(min(ρ/(r+1) · mean|A_ij| / step, min A_ii / step))`.

    Args:
        step: how far an entry of A moves in one update. The default is as in the paper, learning rate 1e-4 times a
            bound 1e-6 on gradients; Adam moves a weight by about its learning rate however small the gradient, so
            measure it (`largest_step`) and pass that.

    Raises:
        ConfigError: not a Markov matrix, so there is nothing to keep, or a step that is not positive or so small that
            the number of updates cannot be computed.
    """
    found = markov_statistics(matrix.double())
    if not found.is_markov(threshold):
        raise ConfigError(
            f"not a Markov matrix at threshold {threshold:g}: ratio {found.ratio:.3g}, (i) {found.positive}."
        )
    if step <= 0:
        raise ConfigError(f"step must be positive, got {step}.")
    size = matrix.double().abs()
    beside = float(size[_beside(len(matrix))].mean())
    # equals the source's (ρ - r)/(r + 1) · mean|A_ij|, whose quotient ρ is undefined for a diagonal matrix
    from_ratio = (float(size.diagonal().mean()) - threshold * beside) / (threshold + 1) / step
    from_diagonal = float(matrix.double().diagonal().min()) / step
    if not math.isfinite(min(from_ratio, from_diagonal)):
        raise ConfigError(f"a step of {step:g} is too small: the number of updates is infinite.")
    return UpdateBound(max(math.floor(min(from_ratio, from_diagonal)) - 1, 0), step, from_ratio, from_diagonal)


def largest_step(before: Tensor, after: Tensor, updates: int = 1) -> float:
    """`max |A' - A|` per update, between two matrices `updates` apart."""
    return float((after.double() - before.double()).abs().max()) / updates
