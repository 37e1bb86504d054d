"""The parts of the bounds on simplices, against plain loops over cells, rows and corners."""

import numpy as np
import pytest
from numpy import ndarray

from bidual.numerics.rounding import gamma
from bidual.polar.sphere import simplex_bounds as sb
from bidual.polar.sphere.caps import Cap
from bidual.polar.sphere.simplex_bounds import _Form, _Rows
from helpers.simplex_cases import SHAPES, UNIT, N, data, form, form_on_cap, narrow, projected, reflected_axes


def test_parts_are_taken_of_every_field() -> None:
    whole, _ = form(3, 2, 5)
    which = np.array([3, 0])
    part = whole.take(which)
    for name in ("corners", "value", "g", "w", "G", "rounding", "back", "aside"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[which])
    for name in Cap._fields:
        assert np.array_equal(getattr(part.cap, name), getattr(whole.cap, name)[which])
    for name in _Rows._fields:
        assert np.array_equal(getattr(part.rows, name), getattr(whole.rows, name)[which])


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


def test_interpolation_counts_what_a_poor_solver_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of the residual at the worst corner of each cell."""
    monkeypatch.setattr(np.linalg, "solve", lambda A, b: np.zeros_like(b))
    values = np.zeros((3, 2, 2))
    values[0, 1], values[2, 0], values[2, 1] = (3, 4), (1, 0), (0, 2)
    assert sb._interpolate(np.tile(np.eye(2), (3, 1, 1)), values)[1].tolist() == [5, 0, 2]


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


@pytest.mark.parametrize("size", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("r", [2, 3, 4])
def test_the_worst_edge_costs_most(r: int, size: float) -> None:
    m, (X, V) = 250, data(r, 2)
    corners = narrow(r, 2, m, 0.5).corners
    at = corners @ X.T
    rows = _Rows.of(np.tile(X, (m, 1, 1)), np.tile(V, (m, 1, 1)), at)
    found = sb._worst_edge(corners, rows, at, size)
    for p, edge in zip(corners, found, strict=True):
        costs = {}
        for j in range(r):
            for k in range(j + 1, r):
                costs[r * j + k] = size * np.sum((p[j] - p[k]) ** 2) / 2
                for x, v in zip(X, V, strict=True):
                    h, low = max(p @ x), min(p @ x)
                    if h > 0 > low:
                        costs[r * j + k] += np.linalg.norm(v) * (x @ (p[j] - p[k])) ** 2 / (h - low)
        assert costs[edge] == max(costs.values()) or costs[edge] == pytest.approx(max(costs.values()), rel=1e-12)


def test_a_cell_of_one_corner_has_the_edge_zero_and_ties_go_to_the_first() -> None:
    rows = _Rows.of(np.ones((2, 1, 1)), np.ones((2, 1, 1)), np.array([[[1.0]], [[-1.0]]]))
    assert sb._worst_edge(np.array([[[1.0]], [[-1.0]]]), rows, np.ones((2, 1, 1)), 1.0).tolist() == [0, 0]
    at = np.zeros((1, 3, 1))
    assert sb._worst_edge(np.eye(3)[None], _Rows.of(np.zeros((1, 1, 3)), np.ones((1, 1, 1)), at), at, 1.0)[0] == 1


@pytest.mark.parametrize("width", [0.1, 0.5])
@pytest.mark.parametrize(("r", "c"), SHAPES)
def test_a_form_holds_what_the_notes_say(r: int, c: int, width: float) -> None:
    X, V = data(r, c)
    found, fixed = form(r, c, 8, width)
    for k, p in enumerate(found.corners):
        at = p @ X.T
        mixed = [i for i in range(N) if at[:, i].max() > 0 > at[:, i].min()]
        m = p.sum(0) / np.linalg.norm(p.sum(0))
        z = fixed[k] @ m + sum((max(X[i] @ m, 0) * V[i] for i in mixed), np.zeros(c))
        assert found.value[k] == pytest.approx(np.linalg.norm(z), rel=1e-12)
        g = z / np.linalg.norm(z)
        assert np.allclose(found.g[k], g, atol=1e-13)
        assert np.allclose(found.w[k], [V[i] @ g if i in mixed else 0 for i in range(N)], atol=1e-12)
        s = 1 / found.cap.cosine[k]
        convex = np.zeros((r, c))  # at the corners, of the rows of w_i >= 0
        for i in mixed:
            if V[i] @ g >= 0:
                convex += np.outer(np.maximum(at[:, i], 0), V[i])
        assert np.allclose(found.G[k] @ p.T, fixed[k] @ p.T + convex.T, atol=1e-11)

        def most(e: ndarray, k: int = k, p: ndarray = p, at: ndarray = at, mixed: list[int] = mixed, s: float = s):
            total = p @ fixed[k].T @ e
            for i in mixed:
                h, low = at[:, i].max(), at[:, i].min()
                w = V[i] @ e
                total = total + (w * np.maximum(at[:, i], 0) if w >= 0 else w * h / (h - low) * at[:, i])
            return s * max(total.max(), 0)

        assert found.back[k] == pytest.approx(most(-g), rel=1e-10, abs=1e-12)
        aside = [max(most(e), most(-e)) for e in reflected_axes(g)]
        assert found.aside[k] == pytest.approx(np.linalg.norm(aside), rel=1e-10, abs=1e-12)


def test_g_is_the_first_axis_where_the_objective_vanishes() -> None:
    corners, at = np.eye(2)[None], np.zeros((1, 2, 1))
    rows = _Rows.of(np.zeros((1, 1, 2)), np.ones((1, 1, 3)), at)
    found = _Form.of(corners, np.zeros((1, 3, 2)), rows, at)
    assert found.g.tolist() == [[1, 0, 0]]
    assert found.value.tolist() == [0]
    bound, candidates = found.bound(rows.chord)
    assert bound.tolist() == [0]
    assert np.allclose(candidates, np.sqrt([[0.5, 0.5]]))


def accelerated(form: _Form, k: int, theta: ndarray, steps: int) -> ndarray:
    """Beck & Teboulle's method on half the squared length of the projection, for one cell."""
    w, X, b = form.w[k], form.rows.X[k], np.arctan2(form.cap.sine[k], form.cap.cosine[k])
    y, t, lipschitz = theta, 1.0, sum(w[i] ** 2 * (X[i] @ X[i]) for i in range(len(w)) if w[i] < 0)
    for _ in range(steps):
        a = form.g[k] @ form.G[k] + sum(y[i] * w[i] * X[i] for i in range(len(w)) if w[i] < 0)
        p = projected(a, form.cap.centre[k], b)
        slope = np.array([w[i] * (X[i] @ p) if w[i] < 0 else 0.0 for i in range(len(w))])
        x = np.minimum(np.maximum(y - slope / lipschitz, 0), 1)
        t, before = (1 + (1 + 4 * t * t) ** 0.5) / 2, t
        y, theta = x + (before - 1) / t * (x - theta), x
    return theta


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7])
@pytest.mark.parametrize(("r", "c"), [(3, 1), (3, 2)])
def test_theta_moves_by_accelerated_projected_gradients(r: int, c: int, steps: int) -> None:
    found, _ = form(r, c, 6, 0.5, seed=1)
    moved = found.improved(found.rows.chord, steps)
    assert (found.w < 0).any()
    for k in range(6):
        if (found.w[k] < 0).any():
            assert np.allclose(moved[k], accelerated(found, k, found.rows.chord[k], steps), atol=1e-10)
    assert ((moved >= 0) & (moved <= 1))[found.rows.mixed].all()
    assert steps < 1 or not np.array_equal(moved, found.rows.chord)


def test_theta_stays_where_no_row_is_concave() -> None:
    corners = narrow(2, 1, 3, 0.5).corners
    X = np.random.default_rng(0).standard_normal((4, 2))
    at = corners @ X.T
    rows = _Rows.of(np.tile(X, (3, 1, 1)), np.ones((3, 4, 1)), at)
    found = _Form.of(
        corners, np.tile(np.ones((1, 2)), (3, 1, 1)) * np.sign(corners.sum((1, 2)))[:, None, None], rows, at
    )
    only = found.take(np.flatnonzero((found.w >= 0).all(1)))
    assert len(only.value)
    mixed = only.rows.mixed
    assert mixed.any()
    assert np.array_equal(only.improved(only.rows.chord, 5)[mixed], only.rows.chord[mixed])


@pytest.mark.parametrize("width", [0.15, 0.5])
@pytest.mark.parametrize(("r", "c"), SHAPES)
@pytest.mark.parametrize("share", [None, 0.0, 0.7])
def test_the_bound_is_that_of_the_notes(r: int, c: int, width: float, share: float | None) -> None:
    X, V = data(r, c, 2)
    found, _ = form(r, c, 8, width, 2)
    theta = found.rows.chord if share is None else np.full_like(found.w, share)
    bound, candidates = found.bound(theta)
    for k, p in enumerate(found.corners):
        s, g, at, mixed = 1 / found.cap.cosine[k], found.g[k], p @ X.T, found.rows.mixed[k]
        G, E = found.G[k].copy(), 0.0
        for i in np.flatnonzero(mixed):
            h, low, w = at[:, i].max(), -at[:, i].min(), V[i] @ g
            if w < 0:
                G += theta[k, i] * np.outer(V[i], X[i])
            d = s * h * low / (h + low) if w >= 0 else s * max((1 - theta[k, i]) * h, theta[k, i] * low)
            E += np.linalg.norm(V[i] - w * g) * d
        a = G.T @ g
        m, b = found.cap.centre[k], np.arctan2(found.cap.sine[k], found.cap.cosine[k])
        nearest = projected(a, m, b)
        ahead = min(np.linalg.norm(nearest), s * max((p @ a).max(), 0))
        if c == 1:
            want = max(ahead, found.back[k])
        else:
            P = np.eye(c) - np.outer(g, g)
            A = s * max(np.linalg.norm(P @ G @ q) for q in p)
            square = min(s**2 * max(np.linalg.norm(G @ q) ** 2 for q in p), form_on_cap(G, m, b))
            A = min(A, np.sqrt(square))
            aside = min(found.aside[k], A + E)
            forward = min(square + 2 * E * A + E**2, ahead**2 + aside**2)
            want = np.sqrt(max(forward, found.back[k] ** 2 + aside**2))
        loose = min(r, c) ** (1 / 16) if min(r, c) > 2 else 1  # of |R|^2 by three squarings
        assert want * (1 - 1e-11) <= bound[k] <= want * np.sqrt(loose) * (1 + 1e-11)
        length = np.linalg.norm(nearest)
        assert np.allclose(candidates[k], nearest / length if length > 0 else found.cap.centre[k], atol=1e-12)


def test_the_bound_contains_the_rounding_of_the_interpolation() -> None:
    found, _ = form(3, 2, 4)
    bound = found.bound(found.rows.chord)[0]
    raised = _Form(**{**vars(found), "rounding": found.rounding + 0.5})
    assert np.allclose(raised.bound(found.rows.chord)[0] - bound, 0.5, rtol=1e-12)
