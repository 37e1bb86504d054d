"""Regions of known signs: their variables, the forms on them, and bounds that are paid for with their rounding."""

import mpmath
import numpy as np
import pytest
import torch
from numpy import ndarray

from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_regions import SignRegion, _best_shift, _form, _Schur, _shifted, clipped
from helpers.polar_cases import inside

EPS = float(np.finfo(np.float64).eps)


def problem(n: int = 4, r: int = 2, c: int = 2, seed: int = 0) -> tuple[ndarray, ndarray, ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, r))
    return x / np.linalg.norm(x, 2), rng.standard_normal((n, c)), 0.1 * rng.standard_normal((2 * n, 2 * n))


def steepest(region: SignRegion, V: ndarray, q: int = 20000) -> float:
    U = np.random.default_rng(9).standard_normal((q, region.x.shape[1]))
    U = U[inside(region, U)]
    return float((np.linalg.norm(np.maximum(U @ region.x.T, 0) @ V, axis=1) / np.linalg.norm(U, axis=1)).max(initial=0))


@pytest.mark.parametrize("signs", [[0, 0, 0, 0], [1, -1, 0, 0], [1, 1, -1, -1]])
def test_h_maps_u_and_the_free_rows_to_both_parts(signs: list[int]) -> None:
    x = problem()[0]
    region = SignRegion(x, np.array(signs))
    u = np.array([0.3, -0.7])
    u_signed = np.where(region.signs == 0, 1, 0)
    a = np.where(region.signs > 0, x @ u, np.where(region.signs < 0, 0, np.maximum(x @ u, 0)))
    b = a - x @ u
    z = np.concatenate([u, a[u_signed == 1]])
    assert region.H.shape == (8, 2 + signs.count(0))
    assert np.allclose(region.H @ z, np.concatenate([a, b]), atol=1e-15)


def test_a_region_has_its_boundary_and_both_sides_of_free_rows() -> None:
    region = SignRegion(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([1, -1, 0]))
    U = np.array([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0], [0.0, -1.0], [1.0, 0.0], [0.0, 0.0]])
    assert inside(region, U).tolist() == [True, False, False, True, True, True]


def test_clipping_is_the_nearest_valid_multiplier() -> None:
    N = np.array([[1.0, -2.0, -3.0, 4.0], [4.0, -1.0, 2.0, -5.0], [-1.0, 0.0, 3.0, 1.0], [-6.0, -7.0, -2.0, -1.0]])
    before = N.copy()
    expected = [[1, 1, -2, 0], [1, 0, 1, -6], [-2, 1, 3, 0], [0, -6, 0, 0]]
    assert clipped(N).tolist() == expected
    assert np.array_equal(N, before)


@pytest.mark.parametrize("signs", [[0, 0, 0, 0], [1, -1, 0, 0]])
def test_the_form_is_the_square_plus_the_multipliers(signs: list[int]) -> None:
    x, V, N = problem()
    H = SignRegion(x, np.array(signs)).H
    z = np.random.default_rng(1).standard_normal(H.shape[1])
    h = H @ z
    found = _form(H, V, N + N.T)
    assert np.array_equal(found, found.T)
    assert z @ found @ z == pytest.approx(np.linalg.norm(V.T @ h[:4]) ** 2 + h @ (N + N.T) @ h, rel=1e-12)
    skew = _form(H, V, N)
    assert np.array_equal(skew, skew.T)
    assert z @ skew @ z == pytest.approx(np.linalg.norm(V.T @ h[:4]) ** 2 + h @ N @ h, rel=1e-12)


def test_a_shift_takes_off_a_multiple_of_the_products_of_both_parts() -> None:
    x, V, N = problem()
    region = SignRegion(x, np.array([0, 1, 0, 0]))
    form = _form(region.H, V, clipped(N))
    before = form.copy()
    z = np.random.default_rng(2).standard_normal(len(form))
    h = region.H @ z
    products = sum(h[i] * h[4 + i] for i in region.free)
    moved = _shifted(form, x[region.free], 0.7)
    assert np.array_equal(form, before)
    assert np.allclose(moved, moved.T, atol=1e-15)
    assert z @ moved @ z == pytest.approx(z @ form @ z - 0.7 * products, rel=1e-12)


def schur(form: ndarray, x: ndarray) -> _Schur:
    r = x.shape[1]
    values, vectors = np.linalg.eigh(form[r:, r:])
    return _Schur(form[:r, :r], vectors.T @ form[r:, :r], vectors.T @ x, values)


@pytest.mark.parametrize("shift", [0.5, 3.0, 50.0])
def test_a_level_makes_the_form_just_semidefinite(shift: float) -> None:
    x, V, N = problem()
    region = SignRegion.whole(x)
    form = _form(region.H, V, clipped(N))
    shift += float(np.linalg.eigvalsh(form[2:, 2:])[-1])
    level = schur(form, x).level(shift)
    E = np.diag(np.arange(len(form)) < 2).astype(float)
    assert np.linalg.eigvalsh(level * E - _shifted(form, x, shift))[0] == pytest.approx(0, abs=1e-10)
    assert np.linalg.eigvalsh((level - 1e-3) * E - _shifted(form, x, shift))[0] < -1e-7


def test_a_level_is_infinite_if_the_block_of_free_rows_is_not_negative() -> None:
    part = _Schur(np.eye(1), np.ones((2, 1)), np.ones((2, 1)), np.array([1.0, 2.0]))
    assert part.level(2.0) == np.inf
    assert part.level(1.5) == np.inf
    assert np.isfinite(part.level(2.5))
    assert part.level(3.0) == pytest.approx(1 + 2.5**2 / 2 + 2.5**2 / 1)
    empty = _Schur(np.diag([1.0, 4.0]), np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0))
    assert empty.level(0.0) == 4


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e4])
def test_the_best_shift_is_as_good_as_a_fine_scan(seed: int, scale: float) -> None:
    x, V, N = problem(5, 2, 2, seed)
    form = _form(SignRegion.whole(x).H, scale * V, scale**2 * clipped(N))
    shift, level = _best_shift(form, x)
    part = schur(form, x)
    assert level == pytest.approx(part.level(shift), rel=1e-12)
    least = max(float(part.values[-1]), 0.0)
    fine = [part.level(least + scale**2 * step) for step in np.logspace(-6, 4, 3000)]
    assert level <= min(fine) * (1 + 1e-5)
    assert level >= min(fine) * (1 - 1e-3)
    assert shift > least


def test_without_free_rows_there_is_no_shift() -> None:
    form = np.diag([3.0, 1.0])
    assert _best_shift(form, np.zeros((0, 2))) == (0.0, 3.0)


def test_a_negative_block_needs_no_more_than_a_small_shift() -> None:
    form = np.diag([1.0, -2.0])
    shift, level = _best_shift(form, np.array([[1.0]]))
    assert level == pytest.approx(1, rel=1e-6)
    assert 0 < shift < 0.1


def test_a_zero_form_has_a_level_near_zero() -> None:
    shift, level = _best_shift(np.zeros((2, 2)), np.array([[1.0]]))
    assert level == pytest.approx(0, abs=1e-250)
    assert 0 < shift < 1e-200


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("signs", [[0, 0, 0, 0], [1, -1, 0, 0], [1, 1, -1, -1]])
def test_a_bound_holds_whatever_the_multipliers_are(signs: list[int], seed: int) -> None:
    x, V, N = problem(seed=seed)
    region = SignRegion(x, np.array(signs))
    for multipliers in (np.zeros_like(N), N, -N, 10 * N):
        assert region.bound(V, multipliers) >= steepest(region, V) * (1 - 1e-12)


@pytest.mark.parametrize("c", [1, 2])
def test_a_cell_of_one_pattern_is_bounded_by_its_spectral_norm(c: int) -> None:
    x, V, N = problem(5, 3, c)
    region = SignRegion(x, np.array([1, -1, 1, 1, -1]))
    want = np.linalg.norm(V[[0, 2, 3]].T @ x[[0, 2, 3]], 2)
    found = region.bound(V, np.zeros_like(N))
    assert want <= found <= want * (1 + 1e-12)


def test_the_bound_of_one_row_is_its_length() -> None:
    """max |v (x u)_+| = |v| |x|; with the multiplier 0 the relaxation is exact."""
    found = SignRegion.whole(np.array([[3.0, 4.0]])).bound(np.array([[2.0]]), np.zeros((2, 2)))
    assert 10 <= found <= 10 * (1 + 1e-3)


def test_the_bound_is_the_level_of_the_best_shift_but_for_rounding() -> None:
    x, V, N = problem(5, 2, 2, 3)
    region = SignRegion.whole(x)
    level = _best_shift(_form(region.H, V, clipped(N)), x)[1]
    assert np.sqrt(level) <= region.bound(V, N) <= np.sqrt(level) * (1 + 1e-9)


def exact_least(region: SignRegion, V: ndarray, N: ndarray, shift: float, level: float) -> mpmath.mpf:
    """The least eigenvalue of M for the stored numbers, to forty digits."""
    with mpmath.workdps(40):
        H, n, f = mpmath.matrix(region.H.tolist()), len(V), len(region.free)
        inner = mpmath.matrix(N.tolist())
        inner[:n, :n] += mpmath.matrix(V.tolist()) * mpmath.matrix(V.tolist()).T
        for i in region.free.tolist():
            inner[i, n + i] -= mpmath.mpf(shift) / 2
            inner[n + i, i] -= mpmath.mpf(shift) / 2
        E = mpmath.diag([mpmath.mpf(level)] * region.x.shape[1] + [0] * f)
        return min(mpmath.eigsy(E - H.T * inner * H, eigvals_only=True))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("signs", [[0, 0, 0, 0, 0], [1, -1, 0, 0, 0], [1, -1, 1, 1, -1]])
@pytest.mark.parametrize("seed", range(4))
def test_no_eigenvalue_is_below_what_is_paid_for(seed: int, signs: list[int], scale: float) -> None:
    x, V, N = problem(5, 2, 2, seed)
    x[1] = x[0] * (1 + seed * EPS)  # a tie, or nearly
    region, N = SignRegion(x, np.array(signs)), clipped(scale * N)
    form = _form(region.H, V, N)
    shift, level = _best_shift(form, x[region.free])
    for lower in (level, 0.5 * level, 0.0):
        paid, least = region._excess(V, N, form, shift, lower), exact_least(region, V, N, shift, lower)
        assert least >= -mpmath.mpf(paid)
        size = (scale + shift + lower + np.linalg.norm(V) ** 2) * 4
        assert paid <= max(0.0, -float(least)) + 2e-13 * size


SPENT = [("N", 150, 1), ("N", 1, 1), ("V", 150, 1), ("V", 2, 400), ("level", 3, 1), ("shift", 3, 1)]


@pytest.mark.parametrize(("largest", "n", "c"), SPENT)
@pytest.mark.parametrize("sign", [0, 1])
def test_what_is_paid_covers_the_sizes_of_all_terms_and_is_not_exaggerated(
    largest: str, n: int, c: int, sign: int
) -> None:
    """N takes off what V adds, so that M is semidefinite and only rounding is paid for: four operations for every row,
    one for every output, and few for what is added last, each of the sum of the sizes."""
    sizes = {name: 1.0 if name == largest else 1e-4 for name in ("N", "V", "level", "shift")}
    x, V = np.full((n, 1), n**-0.5), np.full((n, c), (sizes["V"] / c) ** 0.5)
    region, N = SignRegion(x, np.full(n, sign)), -sizes["N"] * np.ones((2 * n, 2 * n))
    N[:n, :n] -= V @ V.T
    N[range(n), range(n)] -= 1e-3
    shift, level = sizes["shift"], sizes["level"] + sizes["shift"]
    H = np.abs(region.H)
    terms = H.T @ np.abs(N) @ H + (H[:n].T @ V) @ (V.T @ H[:n])
    last = level + (shift * (len(region.free) ** 0.5 + 1) if sign == 0 else 0)
    needed = EPS / 2 * ((4 * n + c) * np.linalg.norm(terms) + last)
    assert needed / 2 <= region._excess(V, N, _form(region.H, V, N), shift, level) <= 30 * needed


def test_halves_know_the_sign_of_their_row() -> None:
    region = SignRegion(problem()[0], np.array([0, -1, 0, 1]))
    assert [half.signs.tolist() for half in region.split(2)] == [[0, -1, 1, 1], [0, -1, -1, 1]]
    assert region.signs.tolist() == [0, -1, 0, 1]


def test_cancellation_is_paid_for() -> None:
    """Huge multipliers of opposite signs leave a form of the size of V: what they round to is not lost."""
    x, V, _ = problem(4, 2, 1, 3)
    region, N = SignRegion.whole(x), np.zeros((8, 8))
    N[np.arange(4), 4 + np.arange(4)] = N[4 + np.arange(4), np.arange(4)] = -1e12
    form = _form(region.H, V, N)
    shift, level = _best_shift(form, x)
    assert exact_least(region, V, N, shift, level) >= -mpmath.mpf(region._excess(V, N, form, shift, level))


@pytest.mark.parametrize(("n", "r"), [(40, 4), (120, 6)])
def test_rounding_costs_no_visible_digit(n: int, r: int) -> None:
    x, V, N = problem(n, r, 2, 1)
    V, N = V / np.linalg.norm(V), np.zeros_like(N)
    level = _best_shift(_form(SignRegion.whole(x).H, V, N), x)[1]
    assert np.sqrt(level) <= SignRegion.whole(x).bound(V, N) <= np.sqrt(level) * (1 + 1e-10)


def test_what_overflows_proves_nothing() -> None:
    x, V, N = problem()
    assert SignRegion.whole(x).bound(V, np.full_like(N, 1.5e308)) == np.inf
    assert SignRegion.whole(x).bound(1e200 * V, N) == np.inf


@pytest.mark.parametrize("norm", [3.0, 1e-280, 1e300, 0.1])
def test_a_bound_for_a_part_of_v_is_one_for_v(norm: float) -> None:
    """One row x = 1: |V^T a| = |V|, and W = V / norm is rounded."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        V, x = norm * rng.standard_normal((1, 3)), np.ones((1, 1))
        W = torch.from_numpy(V / norm)
        with mpmath.workdps(40):
            bound = float(mpmath.sqrt(sum(mpmath.mpf(w) ** 2 for w in W[0].tolist()))) * (1 + 1e-16)
            exact = mpmath.sqrt(sum(mpmath.mpf(v) ** 2 for v in V[0].tolist()))
            assert (
                exact <= mpmath.mpf(Scaled(x, x, 1.0, 0.0).in_units(bound, norm, W)) <= exact * (1 + mpmath.mpf(1e-14))
            )


def test_what_is_not_finite_proves_nothing() -> None:
    x, V, N = problem()
    for bad in (np.nan, np.inf):
        W, M = V.copy(), N.copy()
        W[0, 0], M[3, 1] = bad, bad
        assert SignRegion.whole(x).bound(W, N) == np.inf
        assert SignRegion.whole(x).bound(V, M) == np.inf


@pytest.mark.parametrize("shape", [(0, 2), (3, 0)])
def test_nothing_is_as_steep_as_zero(shape: tuple[int, int]) -> None:
    n = shape[0]
    assert SignRegion.whole(np.zeros(shape)).bound(np.ones((n, 1)), np.zeros((2 * n, 2 * n))) == 0
