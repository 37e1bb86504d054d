import cvxpy as cp
import numpy as np
import pytest
import torch

from bidual.numerics.simplex import onto_simplex

rng = np.random.default_rng(0)


def nearest(p: np.ndarray) -> np.ndarray:
    q = cp.Variable(len(p))
    cp.Problem(cp.Minimize(cp.sum_squares(q - p)), [q >= 0, cp.sum(q) == 1]).solve(cp.CLARABEL)
    return q.value


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_it_is_the_nearest_point(scale: float) -> None:
    P = scale * rng.standard_normal((6, 5)) + rng.standard_normal((6, 1))
    np.testing.assert_allclose(onto_simplex(torch.tensor(P)), [nearest(p) for p in P], atol=1e-6)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e8, 1e300])
def test_optimality_of_rows_of_every_size(size: float) -> None:
    """p - q is the same number where q > 0, and at most that number elsewhere; 1 is lost beside large numbers."""
    P = torch.tensor(size * rng.standard_normal((50, 4)))
    Q = onto_simplex(P)
    torch.testing.assert_close(Q.sum(1), torch.ones(50, dtype=torch.float64), rtol=1e-15, atol=0)
    level = ((P - Q) * Q).sum(1, keepdim=True)
    slack = 1e-15 * (1 + size * 4)
    assert bool((Q >= 0).all())
    assert bool((level + slack >= P - Q).all())
    assert bool((((P - Q) - level).abs()[Q > 1e-9] <= slack).all())


def test_points_of_the_simplex_stay_and_equal_entries_stay_equal() -> None:
    rows = [[0.25, 0.75, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(onto_simplex(torch.tensor(rows, dtype=torch.float64)), rows, atol=1e-16)
    same = onto_simplex(torch.tensor([[7.0, 7.0, -3.0]], dtype=torch.float64))
    assert same.tolist() == [[0.5, 0.5, 0.0]]
