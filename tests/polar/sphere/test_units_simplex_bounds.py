"""Bounds on simplices as a whole: what a call fixes, keeps, improves and proves, against samples of the cells."""

from dataclasses import replace

import numpy as np
import pytest
from numpy import ndarray

from bidual.polar.sphere.caps import Cap
from bidual.polar.sphere.simplex_bounds import SimplexBounds, _Form
from bidual.polar.sphere.simplices import Simplices
from helpers.simplex_cases import SHAPES, N, data, form, narrow, on_cells


@pytest.mark.parametrize("c", [1, 2])
def test_of_appends_a_zero_row(c: int) -> None:
    X, V = data(3, c)
    bounds = SimplexBounds.of(X, V)
    assert bounds.X.shape == (N + 1, 3)
    assert bounds.V.shape == (N + 1, c)
    assert np.array_equal(bounds.X[:N], X)
    assert np.array_equal(bounds.V[:N], V)
    assert not any(A[N].any() for A in (bounds.X, bounds.V, bounds.M))
    assert np.array_equal(bounds.M[:N], [np.outer(v, x).ravel() for x, v in zip(X, V, strict=True)])
    assert (bounds.steps, bounds.reach) == (10, 1.5)


@pytest.mark.parametrize(("r", "c"), SHAPES)
def test_a_call_fixes_rows_of_one_sign_and_keeps_the_others(r: int, c: int) -> None:
    X, V = data(r, c, 4)
    X[0] = 0
    cells = narrow(r, c, 7, 0.3, 4)
    found = SimplexBounds.of(X, V)(cells, 0.5)
    again = SimplexBounds.of(X, V)(found.simplices, 0.5)
    assert np.allclose(again.simplices.fixed, found.simplices.fixed, rtol=1e-14)
    assert np.array_equal(again.simplices.rows, found.simplices.rows)
    for k, p in enumerate(cells.corners):
        at = p @ X.T
        fixed = sum((np.outer(V[i], X[i]) for i in range(N) if at[:, i].min() >= 0), np.zeros((c, r)))
        assert np.allclose(found.simplices.fixed[k], fixed, atol=1e-13)
        mixed = (at.max(0) > 0) & (at.min(0) < 0)
        assert found.simplices.rows[k].tolist() == [i if mixed[i] else N for i in range(N)]
    direct = np.linalg.norm(np.maximum(found.centres @ X.T, 0) @ V, axis=1)
    assert np.allclose(found.values, direct, rtol=1e-12)
    assert np.array_equal(found.centres, Cap.around(cells.corners).centre)
    assert np.array_equal(found.simplices.corners, cells.corners)


@pytest.mark.parametrize(("r", "c"), SHAPES)
@pytest.mark.parametrize("width", [0.02, 0.4])
def test_bounds_hold_and_close_with_the_square_of_the_width(r: int, c: int, width: float) -> None:
    X, V = data(r, c, 6)
    cells = narrow(r, c, 30, width, 6)
    found = SimplexBounds.of(X, V)(cells, 1e-3)
    f = np.linalg.norm(np.maximum(on_cells(cells.corners) @ X.T, 0) @ V, axis=2).max(1)
    assert (f <= found.simplices.bound * (1 + 1e-12)).all()
    size = np.abs(X).sum() * np.abs(V).sum()
    assert (found.simplices.bound <= f + (width + width**2) * size).all()


def test_a_smaller_bound_that_was_known_is_kept_and_one_that_is_not_a_number_proves_nothing() -> None:
    X, V = data(3, 2)
    cells = narrow(3, 2, 4, 0.3)
    free = SimplexBounds.of(X, V)(cells, 0.5).simplices.bound
    known = np.array([free[0] / 2, free[1] * 2, np.inf, np.inf])
    with np.errstate(invalid="ignore"):
        part = replace(cells, fixed=cells.fixed * np.array([1, 1, 1, np.nan])[:, None, None], bound=known)
        found = SimplexBounds.of(X, V)(part, 0.0).simplices.bound
    assert found[:3].tolist() == [free[0] / 2, free[1], free[2]]
    assert found[3] == np.inf


def plain_and_improved(r: int = 3, c: int = 1) -> tuple[SimplexBounds, _Form, ndarray, ndarray]:
    """A form, its bounds at the chord, and those after ten steps."""
    found, _ = form(r, c, 12, 0.4, 7)
    bounds = SimplexBounds.of(*data(r, c, 7))
    return bounds, found, found.bound(found.rows.chord)[0], found.bound(found.improved(found.rows.chord, 10))[0]


@pytest.mark.parametrize("c", [1, 2])
def test_only_bounds_near_the_threshold_are_improved(c: int) -> None:
    bounds, found, plain, better = plain_and_improved(3, c)
    improves = np.flatnonzero(better < plain * (1 - 1e-9))
    assert len(improves)
    for k in improves[:3]:
        at = {
            t: bounds._bound(found, t)[0][k] for t in (plain[k], plain[k] * 0.99, plain[k] * 0.7, plain[k] * 0.6, 0.0)
        }
        assert at == {
            plain[k]: plain[k],
            plain[k] * 0.99: better[k],
            plain[k] * 0.7: better[k],
            plain[k] * 0.6: plain[k],
            0.0: plain[k],
        }
        wide = replace(bounds, reach=2.0)
        assert wide._bound(found, plain[k] / 2)[0][k] == better[k]
        few = replace(bounds, steps=1)._bound(found, 0.9 * plain[k])[0][k]
        assert few == min(plain[k], found.bound(found.improved(found.rows.chord, 1))[0][k])


@pytest.mark.parametrize("c", [1, 2])
def test_an_improvement_never_raises_a_bound_and_moves_the_candidates(c: int) -> None:
    bounds, found, plain, better = plain_and_improved(3, c)
    wide = replace(bounds, reach=1e9)
    bound, candidates = wide._bound(found, 1e-3)
    assert np.array_equal(bound, np.minimum(plain, better))
    assert np.array_equal(candidates, found.bound(found.improved(found.rows.chord, 10))[1])
    assert np.array_equal(bounds._bound(found, np.inf)[1], found.bound(found.rows.chord)[1])


def test_a_call_passes_the_threshold_on() -> None:
    X, V = data(3, 2, 8)
    cells, bounds = narrow(3, 2, 200, 0.4, 8), SimplexBounds.of(X, V)
    low, high = bounds(cells, 0.0).simplices, bounds(cells, 1e6).simplices
    assert np.array_equal(low.bound, high.bound)
    assert (low.edge != high.edge).any()
    near = bounds(cells, float(np.median(low.bound)) / 1.2).simplices
    assert (near.bound <= low.bound).all()
    assert (near.bound < low.bound).any()
    lengths = np.linalg.norm(cells.corners[:, [0, 0, 1]] - cells.corners[:, [1, 2, 2]], axis=2)
    assert np.array_equal(high.edge, np.array([1, 2, 5])[lengths.argmax(1)])


@pytest.mark.parametrize("tiny", [1.6e-162, 3e-162, 1e-161])
def test_tiny_values_at_the_centre_do_not_shrink_the_bound(tiny: float) -> None:
    """At the first orthant's centre only a row of tiny v is active: its square has no digits. f is 0.6 at a corner."""
    X, V = np.array([[0.6, -0.8], [1.0, 0.0]]), np.array([[1.0], [tiny * 2**0.5]])
    found = SimplexBounds.of(X, V)(Simplices.orthants(2, 2, 1), 0.5)
    assert 0.6 * (1 - 1e-15) <= found.simplices.bound[0] <= 0.6 * (1 + 1e-13)


def test_cells_that_are_no_cells_prove_nothing_and_degenerate_ones_are_bounded() -> None:
    X, V = data(3, 2)
    cells = narrow(3, 2, 3, 0.3)
    corners = cells.corners.copy()
    corners[0, 1] = -corners[0, 0]
    corners[1, 1] = corners[1, 0]
    found = SimplexBounds.of(X, V)(replace(cells, corners=corners), 0.5)
    assert found.simplices.bound[0] == np.inf
    assert np.isnan(found.stretch[0])
    f = np.linalg.norm(np.maximum(on_cells(corners[1:]) @ X.T, 0) @ V, axis=2).max(1)
    assert (f <= found.simplices.bound[1:] * (1 + 1e-14)).all()
    assert np.isfinite(found.simplices.bound[1:]).all()
    assert np.array_equal(found.stretch[1:], 1 / Cap.around(corners).cosine[1:])
