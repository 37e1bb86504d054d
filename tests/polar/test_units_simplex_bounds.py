"""Every part of the bounds on simplices, against plain loops over cells, rows and corners, and against samples."""

import numpy as np
import pytest
from numpy import ndarray

from bidual.polar import simplex_bounds as sb
from bidual.polar.simplex_bounds import SimplexBounds, _apply, _Cap, _Form, _Rows
from bidual.polar.simplices import Simplices

EPS = float(np.finfo(np.float64).eps)
N = 9
SHAPES = [(2, 1), (2, 3), (3, 1), (3, 2), (4, 3)]  # r and c


def data(r: int, c: int, seed: int = 0) -> tuple[ndarray, ndarray]:
    rng = np.random.default_rng(seed + 10 * r + c)
    return rng.standard_normal((N, r)), rng.standard_normal((N, c))


def narrow(r: int, c: int, m: int, width: float, seed: int = 0) -> Simplices:
    """Cells around random directions, with every row of X undecided."""
    rng = np.random.default_rng(seed + 3)
    corners = rng.standard_normal((m, 1, r)) + width * rng.standard_normal((m, r, r))
    corners /= np.linalg.norm(corners, axis=2, keepdims=True)
    rows = np.tile(np.arange(N), (m, 1))
    return Simplices(corners, np.zeros((m, c, r)), rows, np.full(m, np.inf), np.zeros(m, dtype=np.int64))


def form(r: int, c: int, m: int = 6, width: float = 0.3, seed: int = 0) -> tuple[_Form, ndarray]:
    X, V = data(r, c, seed)
    corners = narrow(r, c, m, width, seed).corners
    fixed = 0.1 * np.random.default_rng(seed + 5).standard_normal((m, c, r))
    at = corners @ X.T
    rows = _Rows.of(np.tile(X, (m, 1, 1)), np.tile(V, (m, 1, 1)), at)
    return _Form.of(corners, fixed, rows, at), fixed


def on_cells(corners: ndarray, q: int = 300, seed: int = 0) -> ndarray:
    """(m, q, r) unit vectors of the cones, also on their boundary."""
    rng = np.random.default_rng(seed)
    mu = rng.exponential(size=(len(corners), q, corners.shape[1]))
    mu[:, q // 2 :] *= rng.random(mu[:, q // 2 :].shape) < 0.6
    mu[..., 0] += 1e-9
    u = mu @ corners
    return u / np.linalg.norm(u, axis=2, keepdims=True)


def on_caps(cap: _Cap, q: int = 400, seed: int = 0) -> ndarray:
    """(m, q, r) unit vectors of the caps, the first half on their boundary."""
    rng = np.random.default_rng(seed)
    m, r = cap.centre.shape
    t = rng.standard_normal((m, q, r))
    t -= (t @ cap.centre[:, :, None]) * cap.centre[:, None, :]
    t /= np.linalg.norm(t, axis=2, keepdims=True)
    b = np.arctan2(cap.sine, cap.cosine)[:, None] * np.where(np.arange(q) < q // 2, 1, rng.random(q))
    return np.cos(b)[..., None] * cap.centre[:, None, :] + np.sin(b)[..., None] * t


# caps


@pytest.mark.parametrize(("r", "width"), [(2, 0.3), (3, 0.3), (4, 1e-3), (3, 1e-7)])
def test_a_cap_is_the_smallest_around_the_mean_with_all_corners(r: int, width: float) -> None:
    corners = narrow(r, 1, 5, width).corners
    cap = _Cap.around(corners)
    for k, cell in enumerate(corners):
        wide = cell.astype(np.longdouble)
        centre = wide.mean(0) / np.linalg.norm(wide.mean(0))
        sine = max(np.linalg.norm(p - (p @ centre) * centre) for p in wide)
        assert np.allclose(cap.centre[k], centre.astype(float), rtol=0, atol=4 * EPS)
        assert sine + 2 * r * EPS <= cap.sine[k] <= sine + 7 * r * EPS
        assert cap.cosine[k] == pytest.approx(float(np.sqrt(1 - sine**2)), abs=20 * r * EPS)
        assert (cell @ centre).min() >= cap.cosine[k] - 4 * EPS


@pytest.mark.parametrize("r", [1, 2, 3])
def test_the_cap_of_a_point_is_as_wide_as_rounding(r: int) -> None:
    cap = _Cap.around(np.tile(np.eye(r)[:1], (2, r, 1)))
    assert np.allclose(cap.sine / (r * EPS), 4, atol=0.4)
    assert (cap.cosine == 1).all()
    assert np.array_equal(cap.centre, np.eye(r)[[0, 0]])


@pytest.mark.parametrize("r", [2, 3, 4])
def test_projection_to_the_cone_over_a_cap_leaves_an_obtuse_angle(r: int) -> None:
    rng = np.random.default_rng(r)
    cap = _Cap.around(narrow(r, 1, 40, 0.4).corners)
    a = 2 * rng.standard_normal((40, r)) + rng.choice([-3, 0, 3], size=(40, 1)) * cap.centre
    p = cap.project(a)
    along, length = (p * cap.centre).sum(1), np.linalg.norm(p, axis=1)
    assert (along >= length * cap.cosine - 1e-12).all()
    assert np.allclose(((a - p) * p).sum(1), 0, atol=1e-11)
    assert ((on_caps(cap) @ (a - p)[:, :, None]) <= 1e-11).all()
    assert len({0.0} & set(length)) == 1  # some a are in the polar cone
    assert (np.abs(p - a).max(1) == 0).any()  # some in the cone


def test_projection_of_the_axis_is_itself_and_of_its_negative_zero() -> None:
    cap = _Cap.around(np.array([[[1.0, 0.0], [0.0, 1.0]]]))
    assert np.allclose(cap.project(3 * cap.centre), 3 * cap.centre, rtol=1e-15)
    assert np.array_equal(cap.project(np.array([[-1.0, -1.0]])), np.zeros((1, 2)))
    assert np.array_equal(cap.project(np.zeros((1, 2))), np.zeros((1, 2)))
    assert np.allclose(cap.project(np.array([[2.0, -1.0]])), [[2.0, 0.0]], atol=1e-13)
    assert np.allclose(cap.project(np.array([[-1.0, 0.5]])), [[0.0, 0.5]], atol=1e-13)


def test_parts_are_taken_of_every_field() -> None:
    whole, _ = form(3, 2, 5)
    which = np.array([3, 0])
    part = whole.take(which)
    for name in ("corners", "value", "g", "w", "G", "rounding", "back", "aside"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[which])
    for name in _Cap._fields:
        assert np.array_equal(getattr(part.cap, name), getattr(whole.cap, name)[which])
    for name in _Rows._fields:
        assert np.array_equal(getattr(part.rows, name), getattr(whole.rows, name)[which])


# rows


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


# helpers


def test_apply_multiplies_each_cell_by_its_own_vector() -> None:
    rng = np.random.default_rng(0)
    A, x = rng.standard_normal((4, 2, 3)), rng.standard_normal((4, 3))
    assert np.allclose(_apply(A, x), [M @ v for M, v in zip(A, x, strict=True)], rtol=1e-15)


@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-7])
def test_interpolation_misses_no_corner_by_more_than_it_says(width: float) -> None:
    corners = narrow(3, 1, 8, width).corners
    values = np.random.default_rng(1).standard_normal((8, 3, 2))
    through, rounding = sb._interpolate(corners, values)
    assert through.shape == (8, 2, 3)
    size = np.linalg.norm(through.reshape(8, -1), axis=1)
    exact = values.astype(np.longdouble) - corners.astype(np.longdouble) @ through.astype(np.longdouble).swapaxes(1, 2)
    missed = np.sqrt((exact**2).sum(2)).max(1)
    assert (rounding >= missed + 8 * 3 * EPS * size).all()
    assert (rounding <= missed + 24 * 3 * EPS * size).all()


@pytest.mark.parametrize("r", [1, 2, 3])
def test_interpolation_at_the_axes_is_the_values_with_an_allowance_for_rounding(r: int) -> None:
    values = np.arange(2.0 * r).reshape(1, r, 2) + 1
    through, rounding = sb._interpolate(np.eye(r)[None], values)
    assert np.array_equal(through[0].T, values[0])
    assert rounding[0] / (r * EPS * np.linalg.norm(values)) == pytest.approx(16, abs=0.5)


def test_interpolation_counts_what_it_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poor solver: what it misses is the length of the residual at the worst corner of each cell."""
    monkeypatch.setattr(np.linalg, "solve", lambda A, b: np.zeros_like(b))
    values = np.zeros((3, 2, 2))
    values[0, 1], values[2, 0], values[2, 1] = (3, 4), (1, 0), (0, 2)
    assert sb._interpolate(np.tile(np.eye(2), (3, 1, 1)), values)[1].tolist() == [5, 0, 2]


@pytest.mark.parametrize("c", [1, 2, 4])
def test_a_frame_is_orthonormal_and_begins_with_minus_g(c: int) -> None:
    g = np.concatenate([np.random.default_rng(c).standard_normal((5, c)), np.eye(c), -np.eye(c)])
    g /= np.linalg.norm(g, axis=1, keepdims=True)
    frame = sb._frame(g)
    assert frame.shape == (len(g), c, 2 * c - 1)
    assert np.array_equal(frame[:, :, 0], -g)
    assert np.array_equal(frame[:, :, 1:c], -frame[:, :, c:])
    square = frame[:, :, :c]
    assert np.allclose(square.swapaxes(1, 2) @ square, np.eye(c), atol=1e-14)


@pytest.mark.parametrize(("r", "c"), SHAPES)
@pytest.mark.parametrize("width", [0.8, 0.1])
def test_a_form_on_a_cap_is_bounded_by_the_worst_angle(r: int, c: int, width: float) -> None:
    rng = np.random.default_rng(r + c)
    cap = _Cap.around(narrow(r, c, 12, width).corners)
    G = rng.standard_normal((12, c, r)) * rng.choice([0.1, 1, 3], size=(12, c, 1))
    found = sb._form_on_cap(G, cap)
    assert (((on_caps(cap) @ G.swapaxes(1, 2)) ** 2).sum(2).max(1) <= found * (1 + 1e-14)).all()
    for k in range(12):
        m, T = cap.centre[k], np.eye(r) - np.outer(cap.centre[k], cap.centre[k])
        b = np.linspace(0, np.arctan2(cap.sine[k], cap.cosine[k]), 4001)
        q, p = np.linalg.norm(G[k] @ m) ** 2, np.linalg.norm(T @ G[k].T @ G[k] @ m)
        top = np.linalg.norm(G[k] @ T, 2) ** 2
        best = (np.cos(b) ** 2 * q + 2 * np.sin(b) * np.cos(b) * p + np.sin(b) ** 2 * top).max()
        assert best * (1 - 1e-12) <= found[k] <= best * (1 + 1e-6)


@pytest.mark.parametrize(("r", "c"), [(2, 2), (4, 4), (3, 1)])
def test_a_form_on_a_cap_is_rounded_up(r: int, c: int) -> None:
    G, cap = np.eye(c, r)[None], _Cap(np.eye(1, r), np.zeros(1), np.ones(1))
    excess = (np.sqrt(sb._form_on_cap(G, cap)[0]) - 1) / (EPS * (r + c) * np.sqrt(c))
    assert excess == pytest.approx(16, abs=0.7)


def test_a_form_of_zero_is_zero() -> None:
    assert sb._form_on_cap(np.zeros((2, 2, 3)), _Cap.around(narrow(3, 2, 2, 0.2).corners)).tolist() == [0, 0]


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


# the form


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
        others = sb._frame(g[None])[0]
        aside = [max(most(others[:, q]), most(-others[:, q])) for q in range(1, c)]
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


def test_the_rounding_of_a_form_is_stretched_like_everything_else() -> None:
    found, _ = form(3, 2, 12, 0.6)
    through = found.G - form(3, 2, 12, 0.6)[1]
    size = np.linalg.norm(through.reshape(12, -1), axis=1) * 48 * EPS / found.cap.cosine
    assert (found.rounding >= 0.999 * size).all()
    assert (found.rounding <= 1.5 * size + 8 * EPS / found.cap.cosine).all()
    assert (found.cap.cosine < 0.8).any()


def accelerated(form: _Form, k: int, theta: ndarray, steps: int) -> ndarray:
    """Beck & Teboulle's method on half the squared length of the projection, for one cell."""
    cap = form.cap.take(np.array([k]))
    w, X = form.w[k], form.rows.X[k]
    y, t, lipschitz = theta, 1.0, sum(w[i] ** 2 * (X[i] @ X[i]) for i in range(len(w)) if w[i] < 0)
    for _ in range(steps):
        a = form.g[k] @ form.G[k] + sum(y[i] * w[i] * X[i] for i in range(len(w)) if w[i] < 0)
        p = cap.project(a[None])[0]
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
        nearest = found.cap.take(np.array([k])).project(a[None])[0]
        ahead = min(np.linalg.norm(nearest), s * max((p @ a).max(), 0))
        if c == 1:
            want = max(ahead, found.back[k])
        else:
            P = np.eye(c) - np.outer(g, g)
            A = s * max(np.linalg.norm(P @ G @ q) for q in p)
            form_on_cap = sb._form_on_cap(G[None], found.cap.take(np.array([k])))[0]
            square = min(s**2 * max(np.linalg.norm(G @ q) ** 2 for q in p), form_on_cap)
            aside = min(found.aside[k], A + E)
            forward = min(square + 2 * E * A + E**2, ahead**2 + aside**2)
            want = np.sqrt(max(forward, found.back[k] ** 2 + aside**2))
        assert bound[k] == pytest.approx(want, rel=1e-11)
        length = np.linalg.norm(nearest)
        assert np.allclose(candidates[k], nearest / length if length > 0 else found.cap.centre[k], atol=1e-12)


def test_the_bound_contains_the_rounding_of_the_interpolation() -> None:
    found, _ = form(3, 2, 4)
    bound = found.bound(found.rows.chord)[0]
    raised = _Form(**{**vars(found), "rounding": found.rounding + 0.5})
    assert np.allclose(raised.bound(found.rows.chord)[0] - bound, 0.5, rtol=1e-12)


# all together


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
    again = SimplexBounds.of(X, V)(found.cells, 0.5)
    assert np.allclose(again.cells.fixed, found.cells.fixed, rtol=1e-14)
    assert np.array_equal(again.cells.rows, found.cells.rows)
    for k, p in enumerate(cells.corners):
        at = p @ X.T
        fixed = sum((np.outer(V[i], X[i]) for i in range(N) if at[:, i].min() >= 0), np.zeros((c, r)))
        assert np.allclose(found.cells.fixed[k], fixed, atol=1e-13)
        mixed = (at.max(0) > 0) & (at.min(0) < 0)
        assert found.cells.rows[k].tolist() == [i if mixed[i] else N for i in range(N)]
    direct = np.linalg.norm(np.maximum(found.centres @ X.T, 0) @ V, axis=1)
    assert np.allclose(found.values, direct, rtol=1e-12)
    assert np.array_equal(found.centres, _Cap.around(cells.corners).centre)
    assert np.array_equal(found.cells.corners, cells.corners)


@pytest.mark.parametrize(("r", "c"), SHAPES)
@pytest.mark.parametrize("width", [0.02, 0.4])
def test_bounds_hold_and_close_with_the_square_of_the_width(r: int, c: int, width: float) -> None:
    X, V = data(r, c, 6)
    cells = narrow(r, c, 30, width, 6)
    found = SimplexBounds.of(X, V)(cells, 1e-3)
    f = np.linalg.norm(np.maximum(on_cells(cells.corners) @ X.T, 0) @ V, axis=2).max(1)
    assert (f <= found.cells.bound * (1 + 1e-12)).all()
    size = np.abs(X).sum() * np.abs(V).sum()
    assert (found.cells.bound <= f + (width + width**2) * size).all()


def test_a_smaller_bound_that_was_known_is_kept_and_one_that_is_not_a_number_proves_nothing() -> None:
    X, V = data(3, 2)
    cells = narrow(3, 2, 4, 0.3)
    free = SimplexBounds.of(X, V)(cells, 0.5).cells.bound
    known = np.array([free[0] / 2, free[1] * 2, np.inf, np.inf])
    corners = cells.corners.copy()
    corners[3] = np.eye(3) * [[1], [-1], [1]] * np.nan
    with np.errstate(invalid="ignore"):
        part = Simplices(
            cells.corners, cells.fixed * np.array([1, 1, 1, np.nan])[:, None, None], cells.rows, known, cells.edge
        )
        found = SimplexBounds.of(X, V)(part, 0.0).cells.bound
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
        wide = SimplexBounds(bounds.X, bounds.V, bounds.M, reach=2.0)
        assert wide._bound(found, plain[k] / 2)[0][k] == better[k]
        few = SimplexBounds(bounds.X, bounds.V, bounds.M, steps=1)._bound(found, 0.9 * plain[k])[0][k]
        assert few == min(plain[k], found.bound(found.improved(found.rows.chord, 1))[0][k])


@pytest.mark.parametrize("c", [1, 2])
def test_an_improvement_never_raises_a_bound_and_moves_the_candidates(c: int) -> None:
    bounds, found, plain, better = plain_and_improved(3, c)
    wide = SimplexBounds(bounds.X, bounds.V, bounds.M, reach=1e9)
    bound, candidates = wide._bound(found, 1e-3)
    assert np.array_equal(bound, np.minimum(plain, better))
    assert np.array_equal(candidates, found.bound(found.improved(found.rows.chord, 10))[1])
    assert np.array_equal(bounds._bound(found, np.inf)[1], found.bound(found.rows.chord)[1])


def test_a_call_passes_the_threshold_on() -> None:
    X, V = data(3, 2, 8)
    cells, bounds = narrow(3, 2, 200, 0.4, 8), SimplexBounds.of(X, V)
    low, high = bounds(cells, 0.0).cells, bounds(cells, 1e6).cells
    assert np.array_equal(low.bound, high.bound)
    assert (low.edge != high.edge).any()
    near = bounds(cells, float(np.median(low.bound)) / 1.2).cells
    assert (near.bound <= low.bound).all()
    assert (near.bound < low.bound).any()
    lengths = np.linalg.norm(cells.corners[:, [0, 0, 1]] - cells.corners[:, [1, 2, 2]], axis=2)
    assert np.array_equal(high.edge, np.array([1, 2, 5])[lengths.argmax(1)])
