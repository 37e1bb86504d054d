"""Projection onto cones, against cvxpy and the definition."""

import cvxpy as cp
import numpy as np
import pytest
import torch

from bidual.papers.methods.cone_projection import Cones
from bidual.patterns import activations, sample_gates
from helpers.draws import normal


@pytest.mark.parametrize("d", [2, 3, 5])
def test_projection_is_that_of_cvxpy(d):
    X, U = normal(15, d), normal(6, d, 3, seed=1)
    patterns = activations(X, sample_gates(X, 6, torch.Generator().manual_seed(0)))
    U = U[: len(patterns)]
    onto = Cones.of(X, patterns).project(U)
    for p, pattern in enumerate(patterns):
        K = (2.0 * pattern.double() - 1)[:, None].numpy() * X.numpy()
        for j in range(3):
            u = cp.Variable(d)
            model = cp.Problem(cp.Minimize(cp.sum_squares(u - U[p, :, j].numpy())), [K @ u >= 0])
            model.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
            np.testing.assert_allclose(onto[p, :, j].numpy(), u.value, atol=2e-5)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_projected_points_lie_inside_and_leave_a_polar_remainder(d):
    """Moreau: u = u+ + u- with u+ in the cone, u- in its polar, and <u+, u-> = 0."""
    X = normal(20, d, seed=3)
    patterns = activations(X, sample_gates(X, 8, torch.Generator().manual_seed(1)))
    cones, U = Cones.of(X, patterns), 10 * normal(len(patterns), d, 50, seed=4)
    onto = cones.project(U)
    signed = (2 * patterns.double() - 1)[:, :, None] * (X @ onto)
    assert float(signed.min()) >= -1e-10
    assert float((onto * (U - onto)).sum(1).abs().max()) <= 1e-10
    inside = cones.project(normal(len(patterns), d, 50, seed=5))
    assert float((inside * (U - onto)).sum(1).max()) <= 1e-9
    torch.testing.assert_close(cones.project(onto), onto, atol=1e-12, rtol=0)
    assert bool(cones.contains(onto).all())


def test_a_clamp_is_not_the_projection():
    """Dropping the negative parts of K u and solving back leaves the cone or overshoots; the projection does not."""
    X, U = normal(9, 3), normal(1, 3, 40, seed=2)
    pattern = activations(X, normal(3, 1, seed=5))
    onto = Cones.of(X, pattern).project(U)
    K = (2 * pattern[0].double() - 1)[:, None] * X
    clamped = torch.linalg.lstsq(K, (K @ U[0]).clamp(min=0)).solution
    assert float((K @ onto[0]).min()) >= -1e-12
    assert float((K @ clamped).min()) < -1e-3


def test_cones_without_interior():
    """Rows x and -x, both on: the cone is the plane x u = 0."""
    X = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0], [0, 1.0, 0]], dtype=torch.float64)
    cones = Cones.of(X, torch.ones(1, 3, dtype=torch.bool))
    U = torch.tensor([[[3.0, -2.0], [-1.0, 5.0], [4.0, 1.0]]], dtype=torch.float64)
    expected = torch.tensor([[[0.0, 0.0], [0.0, 5.0], [4.0, 1.0]]], dtype=torch.float64)
    torch.testing.assert_close(cones.project(U), expected)
