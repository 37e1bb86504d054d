"""The exact oracle against brute force cone by cone, and the search that must never pass for one."""

from fractions import Fraction
from math import inf, sqrt

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy import ndarray
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.forms import eigen_error, form_error, principal, steeper
from bidual.numerics.rounding import gamma
from bidual.patterns.arrangement import Arrangement
from bidual.polar import Faces, LocalSearch, SteepestNeurons, steepness
from bidual.polar.exact.faces import Tops, _Solid, _two_directions
from bidual.problems.certificate import Scope, certify, judge
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.testing import own_checks_only
from bidual.training.relu.column_generation import ColumnGeneration
from helpers.draws import normal
from oracles.pattern_oracle import steepest


def one_hot(n: int, c: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.arange(n) % c, c).double()


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def check_peaks(X: Tensor, V: Tensor, peaks: SteepestNeurons) -> None:
    """The listed directions are unit vectors, best first, with the values that they have; the best is ``lower``."""
    assert torch.allclose(peaks.values, steepness(X, V, peaks.neurons), rtol=1e-12, atol=1e-12 * peaks.bracket.lower)
    assert torch.allclose(torch.linalg.vector_norm(peaks.neurons, dim=1), X.new_ones(()), rtol=1e-9)
    assert bool((peaks.values.diff() <= 0).all())
    if len(peaks.values):
        assert float(peaks.values[0]) == peaks.bracket.lower


def check_exact(X: Tensor, V: Tensor, best: float | None = None) -> float:
    """The bracket holds the brute-force value and is narrow, for every ``above``; the search stays below it."""
    best = steepest(X.numpy(), V.numpy()) if best is None else best
    oracle = Faces(X)
    size = float(torch.linalg.vector_norm(X) * torch.linalg.vector_norm(V))
    for above in (0.0, 0.5 * best, best, 2.0 * best):
        peaks = oracle.steepest(V, above)
        assert peaks.bracket.upper >= best * (1 - 1e-12)
        assert peaks.bracket.upper <= max(best, above) * (1 + 1e-6) + 1e-9 * size
        assert peaks.bracket.lower <= peaks.bracket.upper
        if above < best:
            assert peaks.bracket.lower >= best * (1 - 1e-6) - 1e-9 * size
        check_peaks(X, V, peaks)
    found = LocalSearch(X, starts=30).steepest(V)
    check_peaks(X, V, found)
    assert found.bracket.lower <= oracle.steepest(V).bracket.upper
    assert found.bracket.upper in (0.0, inf)
    return best


@pytest.mark.parametrize("c", [1, 2, 3, 4])
@pytest.mark.parametrize(("n", "r"), [(8, 1), (8, 2), (7, 3), (6, 4), (3, 5)])
def test_generic_data(n: int, r: int, c: int) -> None:
    check_exact(normal(n, r, seed=c), normal(n, c, seed=100 + r))


WHITE = torch.linalg.svd(normal(7, 3), full_matrices=False)[0]
DEGENERATE: dict[str, tuple[Tensor, Tensor]] = {
    "repeated rows": (normal(3, 3).repeat(2, 1), normal(6, 2, seed=1)),
    "opposite rows": (torch.cat([normal(3, 3), -normal(3, 3)]), normal(6, 3, seed=1)),
    "zero rows": (torch.cat([normal(4, 3), torch.zeros(2, 3, dtype=torch.float64)]), normal(6, 2, seed=1)),
    "collinear rows": (normal(6, 1) @ normal(1, 3, seed=1), normal(6, 2, seed=2)),
    "rank two in four": (normal(7, 2) @ normal(2, 4, seed=1), normal(7, 3, seed=2)),
    "grid": (matrix([1, 0], [0, 1], [1, 1], [1, -1], [2, 1], [-1, -1]), matrix([1], [1], [-2], [1], [0], [3])),
    "grid in space": (
        matrix([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]),
        matrix([1, 0], [0, 1], [1, 1], [-1, 0], [0, -1], [1, -1]),
    ),
    "identity and one-hot": (torch.eye(4, dtype=torch.float64), one_hot(4, 2)),
    "identity and minus one-hot": (torch.eye(4, dtype=torch.float64), -one_hot(4, 2)),
    "identity and identity": (torch.eye(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)),
    "whitened and one-hot": (WHITE, one_hot(7, 3)),
    "whitened and orthogonal": (WHITE, WHITE),
    "flat forms": (torch.eye(3, dtype=torch.float64).repeat(2, 1), torch.eye(3, dtype=torch.float64).repeat(2, 1)),
    "nearly flat forms": (torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64) + 1e-9 * normal(3, 3)),
    "all positive": (normal(7, 3).abs(), normal(7, 2, seed=1)),
    "a constant column": (torch.cat([normal(7, 2), torch.ones(7, 1, dtype=torch.float64)], 1), normal(7, 2, seed=1)),
    "one sample": (normal(1, 3), normal(1, 2)),
    "one column": (normal(6, 1), normal(6, 3)),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data(name: str) -> None:
    check_exact(*DEGENERATE[name])


@pytest.mark.parametrize("size", [1e-13, 1e-11, 1e-9, 1e-6])
@pytest.mark.parametrize("name", ["grid", "grid in space", "repeated rows", "flat forms"])
def test_data_close_to_degenerate(name: str, size: float) -> None:
    X, V = DEGENERATE[name]
    check_exact(X + size * normal(*X.shape, seed=5), V + size * normal(*V.shape, seed=6))


def test_closed_forms() -> None:
    eye, counts = torch.eye(6, dtype=torch.float64), torch.tensor([3, 2, 1])
    classes = torch.nn.functional.one_hot(torch.repeat_interleave(torch.arange(3), counts)).double()
    assert check_exact(eye, classes, best=3**0.5) > 0  # the largest class
    assert check_exact(eye, -torch.ones(6, 1, dtype=torch.float64), best=6**0.5) > 0
    assert check_exact(2 * eye, torch.tensor([[1.0, -1.0, 2.0, 0, 0, 0]], dtype=torch.float64).T, best=2 * 5**0.5) > 0


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_small_integers(data: st.DataObject) -> None:
    n, d, c = (data.draw(st.integers(1, most)) for most in (5, 3, 3))
    integers = st.integers(-2, 2).map(float)
    X = data.draw(arrays(np.float64, (n, d), elements=integers).filter(np.any))
    V = data.draw(arrays(np.float64, (n, c), elements=integers).filter(np.any))
    check_exact(torch.tensor(X), torch.tensor(V))


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("name", ["grid in space", "whitened and one-hot", "zero rows"])
def test_the_scale_of_the_data_is_only_a_factor(name: str, scale: float) -> None:
    X, V = DEGENERATE[name]
    best = steepest(X.numpy(), V.numpy())
    check_exact(scale * X, V, scale * best)
    check_exact(X, scale * V, scale * best)
    check_exact(scale * X, scale * V, scale**2 * best)


def test_rows_of_very_different_lengths() -> None:
    X = normal(6, 3) * torch.tensor([1e6, 1e-6, 1.0, 1e3, 1e-3, 1.0], dtype=torch.float64)[:, None]
    check_exact(X, normal(6, 2, seed=1))
    check_exact(X, normal(6, 2, seed=1) / torch.linalg.vector_norm(X, dim=1, keepdim=True))


@pytest.mark.parametrize("oracle", [Faces, LocalSearch])
def test_nothing_to_climb(oracle: type) -> None:
    for X, V in [
        (torch.zeros(3, 2), normal(3, 2)),
        (normal(3, 2), torch.zeros(3, 2)),
        (torch.zeros(3, 0), normal(3, 1)),
    ]:
        peaks = oracle(X.double()).steepest(V.double())
        assert (peaks.bracket.lower, peaks.bracket.upper, len(peaks.values)) == (0.0, 0.0, 0)
    with own_checks_only(), pytest.raises(ValueError, match="one row per sample"):
        oracle(normal(3, 2)).steepest(normal(4, 1))


def test_seeds_are_climbed_from_and_never_lower_the_search() -> None:
    X, V = normal(12, 4), normal(12, 2, seed=1)
    best = Faces(X).steepest(V)
    search = LocalSearch(X, starts=1, seed=1)
    assert search.steepest(V, 0.0, best.neurons[:1]).bracket.lower >= best.bracket.lower * (1 - 1e-12)


class NaiveSearch(LocalSearch):
    """From random starts only, as in the notes (papers-checked, section 5)."""

    def _starts(self, V: Tensor) -> Tensor:
        return torch.randn(self.starts, self.X.shape[1], generator=self._generator, dtype=torch.float64)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        return super()._steepest(V, above, None)


def test_what_a_search_found_is_never_an_upper_bound() -> None:
    """De-meaned whitened data, three classes of ten: a search sees a gap of 1e-6 where 3 % are left."""
    n, optimum = 30, 5.246976  # attained by an explicit network
    X = torch.linalg.svd(torch.eye(n, dtype=torch.float64) - 1 / n)[0][:, : n - 1]
    Y = torch.nn.functional.one_hot(torch.arange(n) // 10).double()
    problem = ReluProblem(X, Datafit(Squared(), Y, None, False), 0.5)
    oracle = NaiveSearch(X, starts=20, seed=3)
    done = solve(problem, ColumnGeneration(oracle), Limits(1e-5))
    Z, V = done.Z, done.dual_point
    peaks = oracle.steepest(V)
    believed = judge(done.problem, Z, V, lambda W: max(peaks.bracket.lower, problem.beta), Scope.ALL_PATTERNS)
    assert done.search_gap <= 1e-5
    assert believed.dual > 1.005 * optimum  # a false bound, if one trusted the search
    assert peaks.bracket.upper == inf
    assert done.certificate.dual == certify(done.problem, Z, [V], oracle=oracle).dual == 0
    assert done.certificate.relative_gap == 1
    better = solve(problem, ColumnGeneration(LocalSearch(X)), Limits(1e-5))
    assert better.certificate.primal == pytest.approx(optimum, rel=1e-5)


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
    top, gap, u, _ = principal(G)
    s, rows = np.linalg.svd(G)[1:]
    s = np.concatenate([s, np.zeros((6, 2))], 1)
    assert top == pytest.approx(s[:, 0] ** 2, rel=1e-12)
    assert gap == pytest.approx(s[:, 0] ** 2 - s[:, 1] ** 2, rel=1e-10)
    assert np.abs((u * rows[:, 0]).sum(1)) == pytest.approx(1, rel=1e-12)
    assert np.linalg.norm(u, axis=1) == pytest.approx(1, rel=1e-12)


def test_the_square_of_one_row_is_bounded_in_fractions() -> None:
    for k in (2, 3, 5):
        G = np.random.default_rng(k).standard_normal((40, 1, k))
        top, _, _, rounding = principal(G)
        exact = [sum(Fraction(x) ** 2 for x in row[0].tolist()) for row in G]
        assert all(square <= Fraction(bound) for square, bound in zip(exact, top.tolist(), strict=True))
        assert all(
            Fraction(bound) - square <= 2 * Fraction(r) for square, bound, r in zip(exact, top, rounding, strict=True)
        )


@pytest.mark.parametrize(("n", "c", "r"), [(5, 1, 2), (5, 3, 2), (9, 1, 3), (6, 2, 4)])
def test_the_allowance_is_at_least_that_of_its_parts_and_not_many_times_more(n: int, c: int, r: int) -> None:
    """Forms, lengths, angles, and r^2 + 2 r^1.5 + 4 r + 16 roundings for every dimension that a flat can have less."""
    oracle, V = Faces(normal(n, r)), normal(n, c, seed=1)
    size = float(V.norm(dim=1).sum())
    flats = sum(r * r + 2 * r**1.5 + 4 * r + 16 for _ in range(1, r))
    parts = form_error(V.numpy()) + gamma(2 * c + 20 + 2 * flats) * size
    assert parts <= oracle._allowance(V) <= 3 * parts
    assert oracle._allowance(4 * V) == pytest.approx(4 * oracle._allowance(V), rel=1e-12)


def test_faces_of_every_dimension_raise_the_bound_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle, V = Faces(normal(5, 4)), normal(5, 1, seed=1)
    asked = list[float]()

    def tops(self: _Solid, V: ndarray, known: float, threshold: float) -> Tops:
        asked.append(known)
        return Tops(np.zeros((0, 4)), np.zeros(0), known + 1)

    monkeypatch.setattr(_Solid, "tops", tops)
    found = oracle._tops(V.numpy(), 0.0)
    assert len(asked) > 2
    assert np.diff(asked) == pytest.approx(1.0)
    assert found.upper == asked[-1] + 1


@pytest.mark.parametrize("c", [1, 2])
def test_zero_matrices_and_none_have_principal_vectors(c: int) -> None:
    top, gap, u, off = principal(np.zeros((2, c, 3)))
    assert top.tolist() == gap.tolist() == off.tolist() == [0.0, 0.0]
    assert np.isfinite(u).all()
    assert [part.shape for part in principal(np.zeros((0, c, 3)))] == [(0,), (0,), (0, 3), (0,)]


def test_a_solid_has_one_cell_of_every_pair() -> None:
    X = unit(6, 3)
    X[2] = 0
    made = solid(X)
    U = np.random.default_rng(1).standard_normal((4000, 3))
    patterns = {tuple(row) for row in (U @ X.T > 0).tolist()}
    mine = {tuple(row) for row in made.active.tolist()}
    opposite = {tuple(row) for row in (~made.active & (made.lengths > 0)).tolist()}
    assert not mine & opposite
    assert mine | opposite == patterns
    assert made.lengths == pytest.approx([1, 1, 0, 1, 1, 1], rel=1e-14)
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


def test_flat_forms_raise_the_bound_by_their_gap_only() -> None:
    """On the positive octant |V^T u| is one, two or three directions being as good, up to 1e-9."""
    made = solid(np.eye(3))
    flat = made.tops(np.eye(3), 1.0, 0.5)
    assert 1 <= flat.upper <= 1 + 1e-12
    near = made.tops(np.diag([1.0, 1.0, 1 + 1e-9]), 1.0, 0.5)
    assert 1 + 1e-9 <= near.upper <= 1 + 3e-9
    apart = made.tops(np.diag([1.0, 1.0, 1.5]), 1.5, 0.5)
    assert apart.upper == pytest.approx(1.5, abs=1e-12)


def test_rank_is_that_of_the_data() -> None:
    assert Faces(normal(6, 2) @ normal(2, 5, seed=1)).rank == 2


def test_enumeration_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="100000 samples of rank 9 have up to"):
        Faces(torch.ones(1, 9, dtype=torch.float64).new_ones(1, 9).repeat(100_000, 1) + normal(100_000, 9))


def test_the_allowance_covers_what_the_rank_cut_dropped() -> None:
    X = torch.cat([normal(6, 2), 1e-12 * normal(6, 1, seed=1)], 1)
    oracle, V = Faces(X), normal(6, 2, seed=2)
    dropped = oracle.X - torch.from_numpy(oracle._reduced.samples @ oracle._reduced.basis.T)
    cost = float(torch.linalg.matrix_norm(dropped, 2) * torch.linalg.matrix_norm(V, 2))
    assert oracle.rank == 2
    assert cost <= oracle._allowance(V) <= 3 * cost + 1e-13


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
    top, gap, u, rounding = principal(G)
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
    assert eigen_error(Q, values, W)[0] <= 1e-13
    for wrong, vectors in ((values + 1e-6, W), (values, W @ turn), (values, W * (1 + 1e-6))):
        made = (vectors * wrong[:, None, :]) @ vectors.transpose(0, 2, 1)
        assert eigen_error(Q, wrong, vectors)[0] >= 0.9 * np.linalg.norm(Q - made, 2, axis=(1, 2))[0] >= 1e-8


@pytest.mark.parametrize(("c", "k"), [(1, 3), (2, 3), (6, 4)])
def test_no_matrix_that_is_steep_is_left_out_and_few_others_are_kept(c: int, k: int) -> None:
    G = np.random.default_rng(k).standard_normal((500, c, k))
    norms = np.linalg.norm(G, 2, axis=(1, 2))
    for threshold in (0.0, *norms[:20], 1e-100):
        kept = steeper(G, float(threshold))
        assert set(np.flatnonzero(norms >= threshold * (1 - 1e-15))) <= set(kept) or threshold == 0
        assert np.all(norms[kept] >= 0.7 * threshold)
    assert steeper(G, inf).tolist() == []


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
