"""The interior point in one small matrix per block."""

import numpy as np
import pytest
import torch

from bidual.gauges import Nuclear
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.small_matrices import cholesky, eigh, extreme_eigenvalues, product, transposed
from bidual.operators import GatedOperator
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers import InteriorPoint, QInteriorPoint
from bidual.solvers.driver import solve
from bidual.solvers.plan import solve_auto


def make(seed: int, d: int, c: int, fraction: float) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    X, G = (torch.randn(size, generator=generator, dtype=torch.float64) for size in ((40, d), (d, 12)))
    Y = torch.randn(40, c, generator=generator, dtype=torch.float64)
    problem = Problem(GatedOperator(X, (X @ G > 0).T, c), Datafit(Squared(), Y), Nuclear(), 1.0)
    return problem.with_beta(fraction * problem.beta_max)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("fraction", [0.5, 0.01, 1e-4])
def test_agrees_with_clarabel(d, fraction):
    problem = make(d, d, 3, fraction)
    found, other = solve(problem, QInteriorPoint(), Limits(1e-6)), solve(problem, InteriorPoint(), Limits(1e-7, 2))
    assert found.certificate.relative_gap <= 1e-6
    assert found.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fraction", [1e-10, 1e-13])
def test_beta_beyond_its_precision_is_left_to_others(seed, fraction):
    """It once raised an error of LAPACK; now it stops, and what comes back is sound."""
    problem = make(seed, 3, 2, fraction)
    solution = solve_auto(problem, Limits(1e-9, max_time=2.0))
    assert solution.certificate.dual <= solution.certificate.primal
    assert solution.certificate.recheck(problem)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_small_matrices_agree_with_lapack(d):
    R = np.random.default_rng(0).standard_normal((d, d, 7))
    A = product(R, transposed(R)) + 0.1 * np.eye(d)[:, :, None]
    stacked = np.moveaxis(A, 2, 0)
    values, vectors = eigh(A)
    assert np.allclose(np.moveaxis(cholesky(A), 2, 0), np.linalg.cholesky(stacked))
    assert np.allclose(product(vectors * values, transposed(vectors)), A)
    assert np.allclose(extreme_eigenvalues(A), (np.linalg.eigvalsh(stacked).min(), np.linalg.eigvalsh(stacked).max()))
