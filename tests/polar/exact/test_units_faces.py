"""The walk over faces, piece by piece, against every cell's own eigenvector and closed forms."""

from math import inf, sqrt

import mpmath
import numpy as np
import pytest
import torch
from numpy import ndarray

from bidual.numerics.rounding import UNIT
from bidual.patterns.arrangement import Arrangement
from bidual.polar.base import steepness
from bidual.polar.exact import faces
from bidual.polar.exact.faces import Faces, _eigen_error, _principal, _Solid, _steeper, _two_directions
from helpers.draws import normal


def unit(n: int, d: int, seed: int = 0) -> ndarray:
    return torch.nn.functional.normalize(normal(n, d, seed=seed), dim=1).numpy()


def solid(X: ndarray) -> _Solid:
    arrangement = Arrangement(X)
    return _Solid.of(arrangement.whole, arrangement)


def interior_maxima(X: ndarray, V: ndarray) -> ndarray:
    """The values of the cells whose top eigenvector lies in them, lowest first; cells found by many directions."""
    U = np.random.default_rng(0).standard_normal((4000, X.shape[1]))
    values = []
    for active in np.unique(U @ X.T > 0, axis=0):
        G = V[active].T @ X[active]
        u = np.linalg.svd(G)[2][0]
        signs = np.where(active, 1, -1)
        if (signs * (X @ u) >= 0).all() or (signs * (X @ u) <= 0).all():
            values.append(np.linalg.norm(G @ u))
    return np.sort(values)


def climb(X: ndarray, V: ndarray, U: ndarray) -> ndarray:
    return np.linalg.norm(np.maximum(U @ X.T, 0) @ V, axis=1)


def test_rank_one_has_two_directions() -> None:
    samples, V = np.array([[2.0], [-1.0], [3.0]]), np.array([[1.0, 0.0], [5.0, 0.0], [0.0, 2.0]])
    found = _two_directions(samples, V)
    assert found.directions.tolist() == [[1.0], [-1.0]]
    assert found.values == pytest.approx([sqrt(40), 5], rel=1e-15)
    assert found.upper == found.values[0]
    assert _two_directions(-samples, V).upper == pytest.approx(sqrt(40), rel=1e-15)


@pytest.mark.parametrize("c", [1, 2, 4])
def test_the_principal_vector_is_the_top_right_singular_vector(c: int) -> None:
    G = np.random.default_rng(c).standard_normal((6, c, 3))
    top, gap, u, _ = _principal(G)
    s, rows = np.linalg.svd(G)[1:]
    s = np.concatenate([s, np.zeros((6, 2))], 1)
    assert top == pytest.approx(s[:, 0] ** 2, rel=1e-12)
    assert gap == pytest.approx(s[:, 0] ** 2 - s[:, 1] ** 2, rel=1e-10)
    assert np.abs((u * rows[:, 0]).sum(1)) == pytest.approx(1, rel=1e-12)
    assert np.linalg.norm(u, axis=1) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("c", [1, 2])
def test_zero_matrices_and_none_have_principal_vectors(c: int) -> None:
    top, gap, u, off = _principal(np.zeros((2, c, 3)))
    assert top.tolist() == gap.tolist() == off.tolist() == [0.0, 0.0]
    assert np.isfinite(u).all()
    assert [part.shape for part in _principal(np.zeros((0, c, 3)))] == [(0,), (0,), (0, 3), (0,)]


def test_a_solid_has_one_cell_of_every_pair() -> None:
    X = unit(6, 3)
    X[2] = 0
    made = solid(X)
    U = np.random.default_rng(1).standard_normal((4000, 3))
    patterns = {tuple(row) for row in (U @ X.T > 0).tolist()}
    mine = {tuple(row) for row in made.active.tolist()}
    opposite = {tuple(row) for row in (~made.active & ~made.vanishing).tolist()}
    assert not mine & opposite
    assert mine | opposite == patterns
    assert made.lengths == pytest.approx([1, 1, 0, 1, 1, 1], rel=1e-14)
    assert made.vanishing.tolist() == [False, False, True, False, False, False]
    assert np.array_equal(made.rows, X)


@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_the_interior_maxima_of_a_solid_are_those_of_its_cells(c: int, seed: int) -> None:
    X, V = unit(6, 3, seed), normal(6, c, seed=seed + 50).numpy()
    expected = interior_maxima(X, V)
    found = solid(X).tops(V, 0.0, 1e-6)
    assert np.sort(found.values) == pytest.approx(expected[expected > 1e-6], rel=1e-9)
    assert climb(X, V, found.directions) == pytest.approx(found.values, rel=1e-9)
    assert np.linalg.norm(found.directions, axis=1) == pytest.approx(1, rel=1e-12)
    assert np.all(np.diff(found.values) <= 0)
    assert found.upper == pytest.approx(expected.max(initial=0), rel=1e-9)


@pytest.mark.parametrize("share", [0.3, 0.8, 2.0])
def test_what_is_not_beyond_the_threshold_is_left_out(share: float) -> None:
    X, V = unit(7, 3, 1), normal(7, 2, seed=3).numpy()
    every = solid(X).tops(V, 0.0, 1e-6)
    threshold = share * every.values.max()
    some = solid(X).tops(V, threshold, threshold)
    assert some.values == pytest.approx(every.values[every.values > threshold], rel=1e-12)
    assert some.directions.shape == (len(some.values), 3)
    assert some.upper == pytest.approx(max(threshold, every.upper), rel=1e-12)


def test_a_bound_that_is_known_is_kept() -> None:
    X, V = unit(7, 3, 1), normal(7, 2, seed=3).numpy()
    every = solid(X).tops(V, 0.0, 1e-6)
    assert solid(X).tops(V, 2 * every.upper, 1e-6).upper == 2 * every.upper
    assert solid(X).tops(V, 2 * every.upper, 1e-6).values == pytest.approx(every.values, rel=1e-14)


def test_solids_are_walked_by_chunks_that_cover_them() -> None:
    made = solid(unit(5, 3))
    p = len(made.active)
    assert made._chunks() == [slice(0, 800_000)]
    assert made._chunks(20) == [slice(i, i + 4) for i in range(0, p, 4)]
    assert made._chunks(1) == [slice(i, i + 1) for i in range(p)]


def test_chunks_of_a_solid_change_nothing_but_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    X, V = unit(7, 3, 1), normal(7, 2, seed=3).numpy()
    once = solid(X).tops(V, 0.0, 1e-6)
    monkeypatch.setattr(_Solid, "_chunks", lambda self: [slice(i, i + 3) for i in range(0, len(self.active), 3)])
    parts = solid(X).tops(V, 0.0, 1e-6)
    assert np.sort(parts.values) == pytest.approx(np.sort(once.values), rel=1e-12)
    assert climb(X, V, parts.directions) == pytest.approx(parts.values, rel=1e-9)
    assert parts.upper == pytest.approx(once.upper, rel=1e-12)


def corner() -> tuple[_Solid, ndarray]:
    """Three axes; all positive in the first cell, its index and antipode."""
    made = solid(np.eye(3))
    return made, np.array([int(np.flatnonzero(made.active.all(1))[0])])


@pytest.mark.parametrize("antipodal", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_vector_or_its_opposite_is_turned_into_its_cell(antipodal: bool, sign: int) -> None:
    made, cell = corner()
    u = np.array([[0.6, 0.0, 0.8]])
    inside, turned = made._inside(made.active, cell + antipodal * len(made.active), np.zeros(1), sign * u)
    assert inside.tolist() == [True]
    assert turned.tolist() == (-u if antipodal else u).tolist()


@pytest.mark.parametrize(("off", "expected"), [(0.9e-3, True), (1e-3, True), (1.1e-3, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_vector_is_in_its_cell_up_to_the_slack(off: float, expected: bool, sign: int) -> None:
    made, cell = corner()
    u = sign * np.array([[0.6, -off, 0.8]])
    inside, turned = made._inside(made.active, cell, np.array([1e-3]), u)
    assert inside.tolist() == [expected]
    assert np.array_equal(turned, sign * u if expected else u)


def test_the_slack_of_a_row_is_an_angle() -> None:
    made, cell = corner()
    made = _Solid(made.basis, made.rows / 10, made.lengths / 10, made.active, made.vanishing)
    u = np.array([[0.6, -0.5e-3, 0.8], [0.6, -2e-3, 0.8]])
    assert made._inside(made.active, np.repeat(cell, 2), np.full(2, 1e-3), u)[0].tolist() == [True, False]


def down(made: _Solid, top: ndarray, u: ndarray, known: float, batch: int) -> tuple[list[float], float]:
    cell = np.repeat(corner()[1], len(top))
    found = made._climb_down(made.active, cell, top, np.zeros(len(top)), u, known, batch)
    assert found.directions.shape == (len(found.values), 3)
    return found.values.tolist(), found.upper


@pytest.mark.parametrize("batch", [1, 2, 3, 10])
def test_tops_outside_their_cells_are_dropped(batch: int) -> None:
    top, u = np.array([16.0, 9.0, 4.0, 1.0]), np.array([[1.0, -1, 0], [1, 0, 0], [-1, 1, 0], [0, 0, 1]])
    assert down(corner()[0], top, u, 0.0, batch) == ([3.0, 1.0], 3.0)
    assert down(corner()[0], top, u, 3.5, batch) == ([3.0, 1.0], 3.5)
    assert down(corner()[0], top[:0], u[:0], 0.5, batch) == ([], 0.5)


@pytest.mark.parametrize(("known", "expected"), [(0.0, [4.0, 3.0]), (4.0, [4.0, 3.0]), (9.0, [4.0, 3.0])])
def test_the_walk_stops_when_the_list_is_full_and_the_bound_cannot_rise(
    known: float, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faces, "LISTED", 2)
    top, u = np.array([16.0, 9.0, 4.0, 1.0]), np.tile([[1.0, 0.0, 0.0]], (4, 1))
    assert down(corner()[0], top, u, known, 1) == (expected, max(known, 4.0))


def test_the_walk_goes_on_while_nothing_was_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faces, "LISTED", 1)
    top, u = np.array([16.0, 9.0, 4.0, 1.0]), np.array([[1.0, -1, 0], [1, -1, 0], [1, 0, 0], [0, 0, 1]])
    assert down(corner()[0], top, u, 5.0, 1) == ([2.0], 5.0)


def test_flat_forms_raise_the_bound_by_their_gap_only() -> None:
    """On the positive octant |V^T u| is one, two or three directions being as good, up to 1e-9."""
    made = solid(np.eye(3))
    flat = made.tops(np.eye(3), 1.0, 0.5)
    assert 1 <= flat.upper <= 1 + 1e-12
    near = made.tops(np.diag([1.0, 1.0, 1 + 1e-9]), 1.0, 0.5)
    assert 1 + 1e-9 <= near.upper <= 1 + 3e-9
    apart = made.tops(np.diag([1.0, 1.0, 1.5]), 1.5, 0.5)
    assert apart.upper == pytest.approx(1.5, abs=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_flats_of_all_dimensions_are_walked(d: int) -> None:
    oracle = Faces(torch.from_numpy(unit(5, d)))
    assert oracle.rank == d
    assert [made.basis.shape[1] for made in oracle._solids] == [3] * {3: 1, 4: 5}.get(d, 0) + [4] * (d == 4)
    assert (oracle._planes is None) is (d < 2)
    if oracle._planes is not None:
        assert len(oracle._planes.basis) == {2: 1, 3: 5, 4: 10}[d]


def test_rank_is_that_of_the_data() -> None:
    assert Faces(normal(6, 2) @ normal(2, 5, seed=1)).rank == 2


def test_too_many_cells_are_refused_and_many_samples_of_a_plane_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(faces, "check_enumerable", lambda n, r: asked.append((n, r)))
    Faces(normal(9, 2))
    assert asked == []
    Faces(normal(9, 3))
    Faces(normal(8, 3) @ normal(3, 6, seed=1))
    assert asked == [(9, 3), (8, 3)]


def test_enumeration_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="100000 samples of rank 9 have up to"):
        Faces(torch.ones(1, 9, dtype=torch.float64).new_ones(1, 9).repeat(100_000, 1) + normal(100_000, 9))


def test_arcs_too_narrow_to_be_swept_are_accounted_for() -> None:
    X = torch.tensor([[1.0, 0.0], [1.0, 5e-12], [0.6, 0.8]], dtype=torch.float64)
    oracle = Faces(X)
    assert oracle._planes is not None
    assert oracle._planes.narrow == pytest.approx(5e-12, rel=1e-3)
    V = normal(3, 2)
    assert oracle._allowance(V) >= 16 * 4.9e-12 * float(V.norm(dim=1).sum())


@pytest.mark.parametrize(("n", "c", "r"), [(5, 2, 2), (6, 1, 3)])
def test_the_allowance_counts_roundings_and_merged_rows(n: int, c: int, r: int) -> None:
    oracle, V = Faces(normal(n, r)), normal(n, c, seed=1)
    size = float(V.norm(dim=1).sum())
    merged = 2 * r * oracle._arrangement.spread
    steps = 4 * n + 2 * c + 4 * r**3 + 24 * r + 96
    assert oracle._allowance(V) == pytest.approx((steps * UNIT + merged) * size, rel=1e-9, abs=0)
    oracle._arrangement.coarseness = 0.25
    assert oracle._allowance(V) == pytest.approx(8 * r * 0.25 * size, rel=1e-9)


def test_the_allowance_covers_what_the_rank_cut_dropped() -> None:
    X = torch.cat([normal(6, 2), 1e-12 * normal(6, 1, seed=1)], 1)
    oracle, V = Faces(X), normal(6, 2, seed=2)
    dropped = oracle.X - torch.from_numpy(oracle._reduced.samples @ oracle._reduced.basis.T)
    cost = float(torch.linalg.matrix_norm(dropped, 2) * torch.linalg.matrix_norm(V, 2))
    assert oracle.rank == 2
    assert cost <= oracle._allowance(V) <= 3 * cost + 1e-13


@pytest.mark.parametrize(("d", "c"), [(1, 2), (2, 2), (3, 1), (3, 3), (4, 2)])
def test_the_bracket_holds_the_best_of_many_directions(d: int, c: int) -> None:
    X, V = normal(6, d), normal(6, c, seed=1)
    peaks = Faces(X).steepest(V)
    best = float(steepness(X, V, normal(20_000, d, seed=2)).max())
    assert best * (1 - 1e-12) <= peaks.bracket.lower <= peaks.bracket.upper <= best * 1.05
    assert peaks.bracket.upper - peaks.bracket.lower <= 1e-10 * best
    assert peaks.neurons.dtype == peaks.values.dtype == torch.float64
    assert torch.equal(peaks.values, peaks.values.sort(descending=True).values)


def test_seeds_are_listed_among_the_directions_that_were_found() -> None:
    X, V = normal(6, 3), normal(6, 2, seed=1)
    oracle, seeds = Faces(X), torch.nn.functional.normalize(normal(50, 3, seed=5))
    alone, both = oracle.steepest(V, 0.0), oracle.steepest(V, 0.0, seeds)
    assert len(both.values) == len(alone.values) + int((steepness(X, V, seeds) > 0).sum())
    assert steepness(X, V, both.neurons) == pytest.approx(both.values, rel=1e-12)
    assert both.bracket.upper == alone.bracket.upper


@pytest.mark.parametrize("d", [2, 3])
def test_only_what_exceeds_above_is_listed(d: int) -> None:
    X, V = normal(6, d), normal(6, 2, seed=1)
    oracle = Faces(X)
    every = oracle.steepest(V)
    above = 0.8 * every.bracket.lower
    some = oracle.steepest(V, above)
    assert len(some.values) >= 1
    assert bool((some.values > above).all())
    assert some.bracket.lower == pytest.approx(every.bracket.lower, rel=1e-12)
    assert some.bracket.upper == pytest.approx(every.bracket.upper, rel=1e-12)


@pytest.mark.parametrize("d", [3, 4])
def test_what_is_not_above_is_not_looked_at(d: int) -> None:
    X, V = normal(6, d), normal(6, 2, seed=1)
    best = Faces(X).steepest(V).bracket.upper
    far = Faces(X).steepest(V, 2 * best)
    assert far.bracket.upper == pytest.approx(2 * best, rel=1e-9)
    assert len(far.values) >= 1
    assert Faces(X)._tops(V.numpy(), inf).upper == inf


@pytest.mark.parametrize("seed", range(4))
def test_interior_maxima_beyond_above_are_listed_all(seed: int) -> None:
    """With ``above`` positive all peaks of cells are listed, without only those that raise the bound."""
    X, V = unit(6, 3, seed), normal(6, 1, seed=seed + 50).numpy()
    expected = interior_maxima(X, V)
    above = 0.3 * expected.max(initial=1.0)
    values = Faces(torch.from_numpy(X))._tops(V, above).values
    assert all(np.abs(values - peak).min() <= 1e-9 * peak for peak in expected[expected > above])
    assert values.min() > above


def near_ties(p: int, c: int, k: int) -> ndarray:
    """Matrices with singular values that agree to many digits, of any scale."""
    rng = np.random.default_rng(p)
    G = rng.standard_normal((p, c, k)) * 10.0 ** rng.uniform(-3, 3, (p, 1, 1))
    U, s, W = np.linalg.svd(G, full_matrices=False)
    s[::2] = s[::2, :1] * (1 - 10.0 ** rng.uniform(-16, -6, (len(s[::2]), 1)) * np.arange(s.shape[1]))
    return np.asarray((U * s[:, None, :]) @ W)


@pytest.mark.parametrize(("c", "k"), [(2, 3), (5, 3), (3, 5)])
def test_eigenvalues_and_vectors_are_off_by_less_than_was_measured(c: int, k: int) -> None:
    G = near_ties(12, c, k)
    top, gap, u, rounding = _principal(G)
    assert np.all(rounding <= 1e-12 * top)
    with mpmath.workdps(40):
        for form, value, distance, vector, error in zip(G, top, gap, u, rounding, strict=True):
            Q = mpmath.matrix(form.T.tolist()) * mpmath.matrix(form.tolist())
            exact, vectors = mpmath.eigsy(Q)
            assert exact[k - 1] <= value <= exact[k - 1] + 2.1 * error
            assert abs(exact[k - 1] - exact[k - 2] - distance) <= 2 * error
            if distance > 16 * error:
                u, e = mpmath.matrix(vector.tolist()), vectors[:, k - 1]
                sine = mpmath.norm(u - (e.T * u)[0] * e) / mpmath.norm(u)
                assert sine <= 4 * error / distance


def test_a_wrong_decomposition_is_noticed() -> None:
    """Vectors that were turned by 1e-6, and values that are off by as much, are off by no less than is said."""
    rng = np.random.default_rng(0)
    Q = rng.standard_normal((1, 3, 3))
    Q = Q + Q.transpose(0, 2, 1)
    values, W = np.linalg.eigh(Q)
    turn = np.linalg.qr(np.eye(3) + 1e-6 * rng.standard_normal((3, 3)))[0]
    assert _eigen_error(Q, values, W)[0] <= 1e-13
    for wrong, vectors in ((values + 1e-6, W), (values, W @ turn), (values, W * (1 + 1e-6))):
        made = (vectors * wrong[:, None, :]) @ vectors.transpose(0, 2, 1)
        assert _eigen_error(Q, wrong, vectors)[0] >= 0.9 * np.linalg.norm(Q - made, 2, axis=(1, 2))[0] >= 1e-8


@pytest.mark.parametrize(("c", "k"), [(1, 3), (2, 3), (6, 4)])
def test_no_matrix_that_is_steep_is_left_out_and_few_others_are_kept(c: int, k: int) -> None:
    G = np.random.default_rng(k).standard_normal((500, c, k))
    norms = np.linalg.norm(G, 2, axis=(1, 2))
    for threshold in (0.0, *norms[:20], 1e-100):
        kept = _steeper(G, float(threshold))
        assert set(np.flatnonzero(norms >= threshold * (1 - 1e-15))) <= set(kept) or threshold == 0
        assert np.all(norms[kept] >= 0.7 * threshold)
    assert _steeper(G, inf).tolist() == []


def test_a_flat_that_rounding_tells_apart_is_known_twice() -> None:
    """x_1 and x_2 are parallel up to 1e-9, so where both vanish is known to 1e-7 from either side only."""
    X = unit(6, 4, 3)
    X[1] = X[0] + 1e-9 * unit(1, 4, 9)[0]
    X[1] /= np.linalg.norm(X[1])
    arrangement = Arrangement(X)
    both = [flat for flat in arrangement.flats(2) if flat.vanishing[:2].all()]
    assert len(both) == 2
    assert 1e-10 < np.linalg.norm(both[0].basis - both[1].basis @ (both[1].basis.T @ both[0].basis)) < 1e-4
    assert len(arrangement.flats(2)) < 2 * 15
    assert len(Arrangement(unit(6, 4, 3)).flats(2)) == 15
    assert 0 < arrangement.spread <= 1e-13


@pytest.mark.parametrize("gap", [1e-6, 1e-9, 1e-10])
@pytest.mark.parametrize("d", [2, 3, 4])
def test_nearly_parallel_samples_keep_the_bracket_closed_and_right(gap: float, d: int) -> None:
    X = unit(6, d, 3)
    X[1:3] = X[0] + gap * unit(2, d, 9)
    V = normal(6, 2, seed=4)
    oracle = Faces(torch.from_numpy(X))
    found = oracle.steepest(V)
    U = found.neurons.numpy().astype(np.longdouble)
    hidden = np.maximum(U @ X.T.astype(np.longdouble), 0) @ V.numpy().astype(np.longdouble)
    best = np.sqrt((hidden**2).sum(1) / (U**2).sum(1)).max()
    assert oracle._planes is not None
    merged = max(oracle._arrangement.coarseness, oracle._planes.narrow)
    assert best <= found.bracket.upper <= float(best) * (1 + 1e-12 + 200 * merged)
