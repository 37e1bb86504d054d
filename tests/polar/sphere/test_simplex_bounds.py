"""Bounds on simplices as a whole: what a call fixes, keeps, improves and proves, against samples of the cells."""

from dataclasses import replace

import numpy as np
import pytest

from bidual.numerics.rounding import gamma
from bidual.polar.sphere import simplex_bounds as sb
from bidual.polar.sphere.caps import Cap
from bidual.polar.sphere.simplex_bounds import SimplexBounds, _Form, _Rows
from bidual.polar.sphere.simplices import Simplices
from helpers.simplex_cases import SHAPES, UNIT, N, data, form, narrow, on_cells, reflected_axes


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


def test_rows_are_mixed_only_if_both_signs_occur() -> None:
    at = np.array([[[1.0, -1.0, 0.0, 0.0, 2.0, 0.0], [3.0, -2.0, 1.0, -1.0, -6.0, 0.0]]])  # one cell, two corners
    rows = _Rows.of(np.ones((1, 6, 2)), np.full((1, 6, 3), 7.0), at)
    assert rows.mixed.tolist() == [[False, False, False, False, True, False]]
    assert rows.high.tolist() == [[3, -1, 1, 0, 2, 0]]
    assert rows.low.tolist() == [[1, -2, 0, -1, -6, 0]]
    assert rows.chord[0, [2, 3, 4, 5]].tolist() == [1, 0, 0.25, 0]
    assert np.array_equal(rows.V[0].any(1), rows.mixed[0])
    assert (rows.V[0, 4] == 7).all()
    assert (rows.X == 1).all()
    assert np.isfinite(rows.chord).all()


@pytest.mark.parametrize("theta", [0.0, 0.3, 1.0])
def test_errors_are_the_largest_distance_to_the_linear_functions(theta: float) -> None:
    at = np.array([[[3.0, 3.0], [-2.0, -2.0]]])
    rows = _Rows.of(np.ones((1, 2, 2)), np.ones((1, 2, 1)), at)
    found = rows.errors(np.full((1, 2), theta), np.array([[True, False]]))[0]
    mu = np.linspace(0, 1, 1001)  # the weight of the corner where the row is 3
    t = 3 * mu - 2 * (1 - mu)
    assert found[0] == pytest.approx(np.abs(3 * mu - np.maximum(t, 0)).max(), rel=1e-12)
    assert found[1] == pytest.approx(np.abs(theta * t - np.maximum(t, 0)).max(), rel=1e-12)


@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-7])
def test_interpolation_says_what_it_misses(width: float) -> None:
    corners = narrow(3, 1, 8, width).corners
    values = np.random.default_rng(1).standard_normal((8, 3, 2))
    through, missed = sb._interpolate(corners, values)
    assert through.shape == (8, 3, 2)
    size = np.linalg.norm(through.reshape(8, -1), axis=1)
    exact = values.astype(np.longdouble) - corners.astype(np.longdouble) @ through.astype(np.longdouble)
    assert (np.abs(np.sqrt((exact**2).sum(2)).max(1) - missed) <= gamma(4) * size).all()


def test_corners_that_have_become_one_are_no_error() -> None:
    corners = np.array([[[0.6, 0.8], [0.6, 0.8]], [[1.0, 0.0], [0.0, 1.0]]])
    through, missed = sb._interpolate(corners, np.array([[[2.0], [2.0]], [[3.0], [4.0]]]))
    assert np.allclose(through[:, :, 0], [[1.2, 1.6], [3.0, 4.0]], rtol=1e-14)
    assert (missed <= 1e-14).all()
    assert sb._interpolate(corners, np.array([[[2.0], [3.0]], [[3.0], [4.0]]]))[1][0] >= 0.5


@pytest.mark.parametrize("c", [1, 2, 4, 30])
def test_a_frame_is_orthonormal_to_the_rounding_that_is_said(c: int) -> None:
    g = np.concatenate([np.random.default_rng(c).standard_normal((5, c)), np.eye(c), -np.eye(c)])
    g /= np.linalg.norm(g, axis=1, keepdims=True)
    frame = sb._frame(g)
    assert frame.shape == (len(g), c, 2 * c - 1)
    assert np.array_equal(frame[:, :, 0], -g)
    assert np.array_equal(frame[:, :, 1:c], -frame[:, :, c:])
    for k, e in enumerate(g.astype(np.longdouble)):
        want = reflected_axes(e / np.sqrt((e**2).sum()))
        if c > 1:
            off = (frame[k, :, 1:c] - np.stack(want, 1)).astype(float)
            assert np.linalg.norm(off, 2) <= gamma(5 * c + 14)
            assert np.linalg.norm(np.stack(want, 1).astype(float).T @ g[k]) <= 1e-15 * c


@pytest.mark.parametrize("scale", [1.0, 1e-160, 3e-162, 1e-300, 5e-324])
def test_directions_are_of_length_one_at_any_scale(scale: float) -> None:
    z = scale * np.array([[1.0, 2.0, -2.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]])
    g, value = sb._direction(z)
    assert np.abs(np.linalg.norm(g, axis=1) - 1).max() <= 6 * UNIT
    assert g[2].tolist() == [1, 0, 0]
    assert np.allclose(g[[0, 1, 3]], [[1 / 3, 2 / 3, -2 / 3], [0, 1, 0], [0.6, 0, 0.8]], rtol=1e-15)
    assert np.allclose(value, scale * np.array([3, 1, 0, 5]), rtol=1e-15)


def test_g_is_the_first_axis_where_the_objective_vanishes() -> None:
    corners, at = np.eye(2)[None], np.zeros((1, 2, 1))
    rows = _Rows.of(np.zeros((1, 1, 2)), np.ones((1, 1, 3)), at)
    found = _Form.of(corners, np.zeros((1, 3, 2)), rows, at)
    assert found.g.tolist() == [[1, 0, 0]]
    assert found.value.tolist() == [0]
    bound, candidates = found.bound(rows.chord)
    assert bound.tolist() == [0]
    assert np.allclose(candidates, np.sqrt([[0.5, 0.5]]))


def test_the_bound_contains_the_rounding_of_the_interpolation() -> None:
    found, _ = form(3, 2, 4)
    bound = found.bound(found.rows.chord)[0]
    raised = _Form(**{**vars(found), "rounding": found.rounding + 0.5})
    assert np.allclose(raised.bound(found.rows.chord)[0] - bound, 0.5, rtol=1e-12)
