"""What bounds on simplices allow for rounding, against sums in rational numbers; it is far below tolerances."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
import torch
from numpy import ndarray

from bidual.numerics.rounding import UNIT
from bidual.polar.sphere import simplex_bounds as sb
from bidual.polar.sphere.oracle import Sphere, _Search
from bidual.polar.sphere.simplex_bounds import SimplexBounds
from bidual.polar.sphere.simplex_rounding import of_interpolation, raised
from helpers.draws import normal
from helpers.polar_cases import orthogonal_to
from helpers.simplex_cases import cells_of


def steep_at_centre(n: int, r: int, c: int, seed: int) -> tuple[ndarray, ndarray, ndarray]:
    """A narrow cell, rows that are positive on it, and V with much cancellation, so that f is near one, and linear."""
    rng = np.random.default_rng(seed)
    m = rng.standard_normal(r)
    m /= np.linalg.norm(m)
    X = rng.standard_normal((n, r))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X *= np.sign(X @ m)[:, None]
    V = 30 * rng.standard_normal((n, c))
    V -= X @ np.linalg.lstsq(X, V, rcond=None)[0]
    V += X @ np.linalg.solve(X.T @ X, np.outer(m, np.ones(c) / c**0.5))
    corners = m + 1e-9 * rng.uniform(-1, 1, (1, r, r))
    return X, V, corners / np.linalg.norm(corners, axis=2, keepdims=True)


def exact_square(X: ndarray, V: ndarray, u: ndarray) -> Fraction:
    """f(u)^2 / |u|^2."""
    U = [Fraction(float(t)) for t in u]
    hidden = [max(sum(Fraction(float(s)) * t for s, t in zip(x, U, strict=True)), Fraction(0)) for x in X]
    z = [sum((Fraction(float(s)) * t for s, t in zip(v, hidden, strict=True)), Fraction(0)) for v in V.T]
    return sum(t * t for t in z) / sum(t * t for t in U)


@pytest.mark.parametrize(("n", "r", "c"), [(200, 3, 1), (200, 3, 3), (60, 5, 2), (12, 2, 8)])
def test_bounds_hold_to_the_last_bit_and_without_the_allowance_they_do_not(n: int, r: int, c: int) -> None:
    beyond = 0
    for seed in range(12):
        X, V, corners = steep_at_centre(n, r, c, seed)
        found = SimplexBounds.of(X, V)(cells_of(corners, c, n), 0.0)
        bound, square = float(found.simplices.bound[0]), exact_square(X, V, corners[0].mean(0))
        upper = raised(bound, X, V, 0, float(found.stretch[0]))
        assert square <= Fraction(upper) ** 2
        assert upper <= float(square) ** 0.5 + 1e-9
        beyond += square > Fraction(bound) ** 2
    assert beyond


@pytest.mark.parametrize("c", [1, 3])
def test_interpolation_is_paid_for_on_slivers(c: int) -> None:
    """Corners that nearly agree: slopes are huge, and every value at the corners is kept."""
    rng = np.random.default_rng(c)
    X, V = rng.standard_normal((20, 3)), rng.standard_normal((20, c))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for width in (1e-3, 1e-7, 1e-11, 1e-14):
        m = np.linalg.svd(X[:2])[2][2]  # where two rows vanish
        corners = m + width * rng.uniform(-1, 1, (10, 3, 3))
        corners[:, 2] = corners[:, 1] + 1e-3 * (corners[:, 2] - corners[:, 1])
        corners /= np.linalg.norm(corners, axis=2, keepdims=True)
        found = SimplexBounds.of(X, V)(cells_of(corners, c, 20), 0.0)
        for k, cell in enumerate(corners):
            upper = Fraction(raised(float(found.simplices.bound[k]), X, V, 0, float(found.stretch[k])))
            assert max(exact_square(X, V, p) for p in cell) <= upper**2


@pytest.mark.parametrize("seed", range(5))
def test_copies_of_a_row_are_added_without_loss(seed: int) -> None:
    """n times the same row: f is |sum_i v_i| |x| times the cosine, known in rational numbers."""
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(np.tile(rng.standard_normal((1, 3)), (150, 1)))
    V = torch.from_numpy(rng.standard_normal((150, 1)))
    V = V / V.abs().max()
    oracle = Sphere(X, tol=1e-9)
    upper = oracle._steepest(V, 0.0, None).bracket.upper
    total = sum(Fraction(v) for v in V[:, 0].tolist())
    square = total**2 * sum(Fraction(x) ** 2 for x in oracle.X[0].tolist())
    assert square <= Fraction(upper) ** 2 <= square * (1 + Fraction(1e-9)) ** 2


@pytest.mark.parametrize(("r", "c"), [(3, 1), (3, 3), (4, 2), (5, 1)])
def test_allowances_are_far_below_the_tightest_tolerance(r: int, c: int) -> None:
    X = torch.nn.functional.normalize(normal(250, r, seed=2))
    V = orthogonal_to(X, normal(250, c, seed=3))
    run = _Search(Sphere(X), X.numpy(), V.numpy(), 0.0)
    run.note(np.random.default_rng(0).standard_normal((500, r)))
    assert raised(run.lower, X.numpy(), V.numpy(), 35 * r, r**0.5) - run.lower <= 1e-10 * run.lower


def planar(X: ndarray, V: ndarray) -> mp.mpf:
    """max |V^T (X u)_+| over unit u of the plane, with 40 digits: the top of every arc's form, or the arc's ends."""
    with mp.workdps(40):
        normals = [mp.atan2(x[1], x[0]) for x in X.tolist() if any(x)]
        ends = sorted((a + s * mp.pi / 2) % (2 * mp.pi) for a in normals for s in (1, -1))
        rows = [(list(map(mp.mpf, x)), list(map(mp.mpf, v))) for x, v in zip(X.tolist(), V.tolist(), strict=True)]
        best = mp.mpf(0)
        for low, high in zip(ends, [*ends[1:], ends[0] + 2 * mp.pi], strict=True):
            u = (mp.cos((low + high) / 2), mp.sin((low + high) / 2))
            active = [(x, v) for x, v in rows if x[0] * u[0] + x[1] * u[1] > 0]
            G = [[mp.fsum(x[j] * v[k] for x, v in active) for j in (0, 1)] for k in range(V.shape[1])]
            a, b, d = (mp.fsum(g[i] * g[j] for g in G) for i, j in ((0, 0), (0, 1), (1, 1)))
            phase, size = mp.atan2(2 * b, a - d), mp.hypot((a - d) / 2, b)
            turns = mp.ceil((low - phase / 2) / mp.pi)
            inside = phase / 2 + turns * mp.pi <= high
            tops = [size] if inside else [size * mp.cos(2 * t - phase) for t in (low, high)]
            best = max(best, (a + d) / 2 + max(tops))
        return mp.sqrt(best)


@pytest.mark.parametrize("case", ["plain", "cancelling", "near copies", "uneven"])
@pytest.mark.parametrize("c", [1, 2])
def test_brackets_hold_the_maximum_over_the_circle(c: int, case: str) -> None:
    X, V = normal(24, 2, seed=5), normal(24, c, seed=6)
    if case == "cancelling":
        V = orthogonal_to(X, V)
    if case == "near copies":
        X[8:16], X[16:] = X[:8] * (1 + 2.0**-52), -X[:8]
        X[8:16, 1] *= 1 + 2.0**-50
    if case == "uneven":
        V = V * 10.0 ** torch.arange(-12, 12, dtype=torch.float64)[:, None]
    found, best = Sphere(X, tol=1e-9).steepest(V).bracket, planar(X.numpy(), V.numpy())
    assert best <= found.upper <= best * (1 + 1.1e-9)
    assert found.lower <= best * (1 + 1e-14)


def test_a_reflection_is_as_wide_as_the_entries_that_are_counted() -> None:
    """|I - 2 h h^T / |h|^2|, entry by entry, has a norm of at most three."""
    g = np.random.default_rng(0).standard_normal((50, 6))
    frames = sb._frame(g / np.linalg.norm(g, axis=1, keepdims=True))
    assert np.linalg.norm(np.abs(frames[:, :, 1:6]), 2, axis=(1, 2)).max() <= 3


SHAPES = [(1, 1, 1), (3, 2, 40), (3, 40, 2), (900, 2, 2), (2, 300, 1), (2, 1, 300)]


@pytest.mark.parametrize(("n", "r", "c"), SHAPES)
@pytest.mark.parametrize(("depth", "stretch"), [(0, 1.0), (0, 50.0), (5000, 1.0)])
def test_the_allowance_is_what_the_ways_to_combine_bounds_add_up_to(
    n: int, r: int, c: int, depth: int, stretch: float
) -> None:
    """Rows with |v_i| |x_i| = 1, so that S = n, and T = 0: the counts of the page, way by way, are paid for, with few
    roundings to spare."""
    X, V = np.eye(1, r).repeat(n, 0), np.eye(1, c).repeat(n, 0)
    by_caps, by_sides = 8 * r + 6 * c + 44 + n + 2 * r + 4 * c + 28, 5 * r + 2 * c + 33 + n + 4 * r + 10 * c + 34
    behind = 2**0.5 * n + 6 * r + 10 * c + 38
    on_simplices = n + r + 4 + max(by_caps, by_sides, behind)
    needed = (stretch * on_simplices + r**0.5 * (4 * depth + r)) * UNIT * n
    assert needed <= raised(0.0, X, V, depth, stretch) <= 1.5 * needed


def test_a_bound_is_rounded_up_where_nothing_else_is_to_pay() -> None:
    X, V = np.ones((2, 2)), np.zeros((2, 2))
    assert 1 + 8 * UNIT <= raised(1.0, X, V, 3, 1.0) <= 1 + 40 * UNIT


@pytest.mark.parametrize(("r", "c"), [(1, 1), (2, 30), (30, 2), (500, 1), (1, 500)])
@pytest.mark.parametrize("stretch", [1.0, 4.0])
def test_interpolation_pays_for_what_it_misses_and_for_its_length(r: int, c: int, stretch: float) -> None:
    """T of length five, by the errors of G u and of what is done with G; and residuals, with their own rounding."""
    through = np.zeros((2, r, c))
    through[0, 0, 0], through[0, -1, -1] = (5.0, 5.0) if r * c == 1 else (3.0, 4.0)
    missed, wide = np.array([0.0, 1.0]), np.array([stretch, stretch])
    of_length, of_residual = of_interpolation(missed, through, wide).tolist()
    needed = 5 * stretch * (r + 4 + 8 * r + 6 * c + 44) * UNIT
    assert needed <= of_length <= 1.05 * needed
    assert (r + c) * UNIT <= of_residual / stretch - 1 <= (r + c + 32) * UNIT
    assert np.array_equal(of_interpolation(missed[::-1], through[::-1], wide), [of_residual, of_length])
