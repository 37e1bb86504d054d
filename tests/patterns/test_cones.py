"""Only the rows that bound a cone are kept, judged by linear programs; least squares over cones, judged by scipy."""

import numpy as np
import pytest
from scipy.optimize import linprog, nnls

from bidual.numerics import linear_algebra
from bidual.patterns import enumerate as enumerate_patterns
from bidual.patterns.cones import irredundant, needed_rows, non_negative_least_squares
from helpers.draws import normal


def bounds_the_cone(A: np.ndarray, row: int) -> bool:
    """Whether some u violates this row of A u >= 0 and no other."""
    others = np.delete(A, row, axis=0)
    return linprog(A[row], A_ub=-others, b_ub=np.zeros(len(others)), bounds=[(-1, 1)] * A.shape[1]).fun < -1e-9


@pytest.mark.parametrize(("n", "d"), [(7, 1), (9, 2), (7, 3), (6, 4), (3, 5)])
def test_facets_of_all_patterns_are_those_of_linear_programming(n: int, d: int) -> None:
    X = normal(n, d)
    patterns = enumerate_patterns(X).active.numpy()
    needed = needed_rows(X.numpy(), patterns, complete=True)
    for D, rows in zip(patterns, needed, strict=True):
        A = np.where(D, 1.0, -1.0)[:, None] * X.numpy()
        if d > 1:  # all rows are one hyperplane of a line
            assert [bounds_the_cone(A, row) for row in range(n)] == rows.tolist()
        assert len(irredundant(A)) == rows.sum()


def test_repeated_opposite_and_zero_rows_are_written_once() -> None:
    X = np.array([[1.0, 0.0], [2.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    patterns = np.array([[1, 1, 0, 1, 1], [0, 0, 1, 1, 1], [1, 1, 0, 0, 1], [0, 0, 1, 0, 1]], dtype=bool)
    for complete in (False, True):
        assert needed_rows(X, patterns, complete=complete).tolist() == [[True, False, False, True, False]] * 4


def test_a_pattern_on_a_hyperplane_keeps_both_sides() -> None:
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    assert needed_rows(X, np.array([[True, True, True]])).tolist() == [[True, True, True]]


def test_without_the_promise_of_completeness_nothing_that_could_matter_is_dropped() -> None:
    X = normal(7, 3).numpy()
    assert needed_rows(X, (X @ np.ones(3) >= 0)[None]).all()


def test_irredundant_rows_describe_the_same_cone() -> None:
    A, u = normal(12, 3).numpy(), normal(500, 3).numpy()
    A = np.where(A @ u[0] >= 0, 1.0, -1.0)[:, None] * A
    assert ((u @ A.T).min(1) >= 0).tolist() == ((u @ irredundant(A).T).min(1) >= 0).tolist()


def test_least_squares_that_run_in_circles_are_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def cycles(*_: object, **__: object) -> None:
        raise RuntimeError("Maximum number of iterations reached.")

    rows, b = np.eye(2), np.array([1.0, -1.0])
    np.testing.assert_allclose(linear_algebra.nonnegative_multipliers(rows, b), [1.0, 0.0], atol=1e-15)
    monkeypatch.setattr(linear_algebra, "nnls", cycles)
    assert not linear_algebra.nonnegative_multipliers(rows, b).any()


@pytest.mark.parametrize(("d", "f"), [(1, 1), (2, 2), (3, 5), (4, 3), (6, 9), (5, 20)])
def test_non_negative_least_squares_is_that_of_scipy(d, f):
    A, b = normal(200, d, f, seed=d), normal(200, d, seed=f)
    x = non_negative_least_squares(A, b)
    assert bool((x >= 0).all())
    for one, (left, right) in zip(x, zip(A.numpy(), b.numpy(), strict=True), strict=True):
        residual = np.linalg.norm(left @ one.numpy() - right)
        assert residual == pytest.approx(nnls(left, right)[1], rel=1e-9, abs=1e-9)
