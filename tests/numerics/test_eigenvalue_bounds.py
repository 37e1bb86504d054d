"""Proved eigenvalues hold for the stored entries: extended precision, and matrices of known spectra, say so."""

import math

import mpmath
import numpy as np
import pytest
import torch

from bidual.numerics.eigenvalue_bounds import largest_eigenvalues, least_eigenvalues, orthogonality_error, symmetric
from helpers.draws import normal


def exact(M: torch.Tensor) -> list[mpmath.mpf]:
    """All eigenvalues, to forty digits."""
    with mpmath.workdps(40):
        return sorted(mpmath.eigsy(mpmath.matrix(M.tolist()), eigvals_only=True))


@pytest.mark.parametrize("scale", [1e-290, 1e-100, 1.0, 1e100, 1e290])
@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_bounds_hold_and_are_tight(k: int, scale: float) -> None:
    M = scale * symmetric(normal(6, k, k, seed=k))
    low, high = least_eigenvalues(M), largest_eigenvalues(M)
    for i in range(len(M)):
        values, size = exact(M[i]), k * float(M[i].abs().max())
        assert values[0] >= mpmath.mpf(float(low[i]))
        assert values[-1] <= mpmath.mpf(float(high[i]))
        assert float(values[0]) - float(low[i]) <= 1e-12 * size
        assert float(high[i]) - float(values[-1]) <= 1e-12 * size


@pytest.mark.parametrize("seed", range(10))
def test_singular_matrices_are_not_called_positive(seed: int) -> None:
    B = normal(8, 3, seed=seed)
    M = symmetric(B @ B.T)[None]
    assert exact(M[0])[0] >= mpmath.mpf(float(least_eigenvalues(M)))
    assert float(least_eigenvalues(M)) >= -1e-13 * float(torch.linalg.vector_norm(M))


def test_an_eigenvalue_that_was_guessed_wrong_is_not_believed() -> None:
    M = torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64))[None]
    for guess, found in ((4.0, 4.0), (3.9, math.sqrt(17)), (-1.0, math.sqrt(17))):  # the Frobenius norm is what is left
        bound = float(largest_eigenvalues(M, torch.tensor([guess], dtype=torch.float64)))
        assert found <= bound <= found * (1 + 1e-13)


def test_single_precision_has_its_own_rounding() -> None:
    M = symmetric(normal(4, 6, 6).to(torch.float32))
    for matrix, low in zip(M, least_eigenvalues(M).tolist(), strict=True):
        assert 0 <= float(exact(matrix)[0]) - low <= 1e-4


def test_what_is_not_finite_has_no_bound() -> None:
    M = torch.stack([torch.eye(2), torch.full((2, 2), torch.nan), torch.full((2, 2), torch.inf)]).to(torch.float64)
    assert torch.isfinite(least_eigenvalues(M)).tolist() == [True, False, False]
    assert float(least_eigenvalues(M)[1]) == -math.inf == -float(largest_eigenvalues(M)[2])
    assert least_eigenvalues(torch.zeros(0, 3, 3, dtype=torch.float64)).shape == (0,)


@pytest.mark.parametrize("shape", [(5, 5), (40, 7), (3, 1), (4, 0)])
def test_orthogonality_is_measured(shape: tuple[int, int]) -> None:
    Q = torch.linalg.qr(normal(*shape)).Q
    assert orthogonality_error(Q) <= 1e-13
    bent = Q * (1 + 1e-9)
    wide = bent.numpy().astype(np.longdouble)
    off = np.sqrt(((wide.T @ wide - np.eye(shape[1])) ** 2).sum())
    assert off <= orthogonality_error(bent) <= off + 1e-13
