"""Branch and bound on the sphere: its bracket holds the exact one and closes, also at the dual point of a network."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.polar import Faces, RidgeSearch, steepness
from bidual.polar.ascents import ascend
from bidual.polar.sphere import simplex_bounds
from bidual.polar.sphere.oracle import Sphere, _Search
from bidual.polar.sphere.simplex_bounds import SimplexBounds
from bidual.polar.sphere.simplices import Simplices, join
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration
from helpers.draws import normal
from helpers.polar_cases import CASES, steepest

ROUNDING = 1e-9


def residuals(X: Tensor, c: int, seed: int = 0) -> Tensor:
    """What is left of a smooth target after a linear fit: nearly orthogonal to X, so everything cancels."""
    Y = torch.sin(X @ normal(X.shape[1], c, seed=seed)) + 0.1 * normal(len(X), c, seed=seed + 1)
    return Y - X @ torch.linalg.lstsq(X, Y).solution


def agrees(X: Tensor, V: Tensor, tol: float = 1e-6) -> None:
    exact, found = Faces(X).steepest(V).bracket, Sphere(X, tol=tol).steepest(V).bracket
    assert exact.lower <= found.upper <= found.lower * (1 + 1.01 * tol) + 1e-12
    assert found.lower <= exact.upper


@pytest.mark.parametrize("case", CASES)
def test_bracket_closes_on_brute_force(case: str) -> None:
    X, V = CASES[case]
    found = Sphere(X).steepest(V).bracket
    best = steepest(case)
    assert found.lower <= best * (1 + 1e-9)
    assert best <= found.upper <= best * (1 + 2e-6)


@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize(("n", "r"), [(30, 2), (14, 3), (8, 4)])
def test_faces_agrees(n: int, r: int, c: int) -> None:
    X = normal(n, r, seed=r)
    agrees(X, normal(n, c, seed=5))
    agrees(X, residuals(X, c))


@pytest.mark.parametrize("c", [1, 2])
def test_faces_agrees_with_a_bias_ties_and_zero_rows(c: int) -> None:
    X = normal(12, 3, seed=3)
    X[:, 2] = 1
    X[4:6], X[6], X[7] = X[:2], -X[2], 0
    agrees(X, residuals(X, c, 4))


@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize("r", [2, 3, 5])
def test_no_point_of_a_cell_exceeds_its_bound(r: int, c: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(r + c)
    X, V = rng.standard_normal((20, r)), rng.standard_normal((20, c))
    V -= X @ np.linalg.lstsq(X, V, rcond=None)[0]
    bounds, cells = SimplexBounds.of(X, V), Simplices.orthants(20, r, c)
    for _ in range(8):
        found = bounds(cells, 1e-3)  # a low threshold: every bound is improved
        with monkeypatch.context() as everywhere:
            everywhere.setattr(simplex_bounds, "_REACH", 1e9)
            wide = bounds(cells, 1e-3)
        mu = rng.exponential(size=(200, len(cells), r)) * (rng.random((200, len(cells), r)) < 0.6)
        u = np.einsum("qmk,mkr->qmr", mu, cells.corners)
        u /= np.maximum(np.linalg.norm(u, axis=2, keepdims=True), 1e-300)
        f = np.linalg.norm(np.maximum(u @ X.T, 0) @ V, axis=2).max(0)
        assert (f <= found.simplices.bound * (1 + ROUNDING)).all()
        assert (f <= wide.simplices.bound * (1 + ROUNDING)).all()
        cells = wide.simplices.take(rng.permutation(len(cells))[:64]).packed(20).halved()


@pytest.mark.parametrize("seed", range(4))
def test_narrow_cells_are_bounded_too(seed: int) -> None:
    """A constant column a million times the feature: all kinks are within 1e-6 of one another, on cells of 1e-9."""
    X = normal(40, 2, seed=seed)
    X[:, 1] = 1
    X, V = X * torch.tensor([1e-3, 1e3], dtype=torch.float64), normal(40, 1, seed=seed + 50)
    V = V - X @ torch.linalg.lstsq(X, V).solution
    exact, found = Faces(X).steepest(V).bracket, Sphere(X).steepest(V).bracket
    assert exact.lower <= found.upper <= exact.lower * (1 + 1e-4)


def test_values_at_the_centres_are_the_objective() -> None:
    X, V = normal(15, 3).numpy(), normal(15, 2, seed=1).numpy()
    cells = Simplices.orthants(15, 3, 2)
    for _ in range(3):
        found = SimplexBounds.of(X, V)(cells, 0.1)
        direct = np.linalg.norm(np.maximum(found.centres @ X.T, 0) @ V, axis=1)
        assert np.allclose(found.values, direct, rtol=1e-12)
        half = len(cells) // 2
        parts = [found.simplices.take(slice(half)).packed(15), found.simplices.take(slice(half, None)).packed(15)]
        cells = join(parts, 15).halved()


@pytest.mark.parametrize("c", [1, 2])
def test_it_proves_a_trained_network_optimal(c: int) -> None:
    X = normal(60, 3, seed=6)
    X[:, 2] = 1
    Y = torch.sin(2 * X[:, :1]) * X[:, 1:2] + 0.2 * normal(60, c, seed=7)
    problem = ReluProblem(X, Datafit(Squared(), Y, None, True), 0.05)
    done = solve(problem, ColumnGeneration(Faces(X)), Limits(1e-7))
    found = Sphere(X, tol=1e-6).steepest(done.dual_point, problem.beta, done.neurons)
    exact = Faces(X).steepest(done.dual_point).bracket
    assert exact.lower <= found.bracket.upper <= problem.beta * (1 + 1e-5)


def test_it_trains() -> None:
    X = normal(80, 3, seed=8)
    X[:, 2] = 1
    Y = torch.sin(2 * X[:, :1]) * X[:, 1:2]
    problem = ReluProblem(X, Datafit(Squared(), Y, None, True), 0.3)
    done = solve(problem, ColumnGeneration(Sphere(X, tol=3e-4)), Limits(1e-3))
    assert done.certificate.relative_gap <= 1e-3


@pytest.mark.parametrize("limits", [{"max_time": 0.0}, {"max_simplices": 10}, {"max_simplices": 300}])
def test_bracket_is_true_whenever_it_stops(limits: dict[str, float]) -> None:
    X, V = CASES["rank 3"]
    bracket = Sphere(X, **limits).steepest(V).bracket
    assert bracket.lower <= steepest("rank 3") * (1 + 1e-9)
    assert steepest("rank 3") <= bracket.upper < np.inf


def test_it_stops_once_nothing_can_exceed_the_threshold() -> None:
    X, V = CASES["rank 3"]
    best = steepest("rank 3")
    found = Sphere(X).steepest(V, above=1.2 * best)
    assert best <= found.bracket.upper <= 1.2 * best * (1 + 1e-6)


def test_it_lists_steep_directions_best_first() -> None:
    X, V = normal(40, 3, seed=1), normal(40, 2, seed=2)
    level = 0.8 * Sphere(X).steepest(V).bracket.lower
    found = Sphere(X).steepest(V, above=level)
    assert len(found.values) > 10
    assert bool((found.values > level).all())
    assert bool((found.values.diff() <= 0).all())
    assert torch.allclose(steepness(X, V, found.neurons), found.values)
    assert torch.allclose(found.neurons.norm(dim=1), torch.ones(len(found.values), dtype=torch.float64))


def test_ascent_never_goes_down_and_finds_ridges() -> None:
    X = normal(40, 3, seed=4)
    V = residuals(X, 1, 2)
    U = normal(200, 3, seed=9)
    climbed = ascend(X, V, U)
    assert bool((steepness(X, V, climbed) >= steepness(X, V, U) * (1 - 1e-12)).all())
    assert float(steepness(X, V, climbed).max()) >= Faces(X).steepest(V).bracket.lower * (1 - 1e-3)


def test_ridge_search_is_a_lower_bound_that_is_nearly_reached() -> None:
    X = normal(40, 3, seed=4)
    V = residuals(X, 2, 2)
    found, exact = RidgeSearch(X, starts=64).steepest(V), Faces(X).steepest(V).bracket
    assert found.bracket.upper == float("inf")
    assert exact.lower * (1 - 1e-3) <= found.bracket.lower <= exact.upper


def test_a_tolerance_beyond_rounding_is_refused() -> None:
    with pytest.raises(ValueError, match="tol must be at least"):
        Sphere(normal(5, 2), tol=1e-12)


EPS = float(np.finfo(np.float64).eps)


def run(n: int = 8, r: int = 3, c: int = 2, above: float = 0.0, **settings: float) -> _Search:
    oracle = Sphere(normal(n, r), **settings)  # type: ignore[arg-type]
    return _Search(oracle, oracle._reduced.samples, normal(n, c, seed=1).numpy(), above)


# the oracle


@pytest.mark.parametrize("r", [1, 2, 3])
def test_rank_is_that_of_the_data(r: int) -> None:
    assert Sphere(normal(9, r) @ normal(r, 5, seed=1))._reduced.rank == r


# thresholds and limits


def test_a_stopped_search_proves_less_and_stops_soon() -> None:
    X, V = normal(30, 4), normal(30, 2, seed=1)
    full, few = Sphere(X)._steepest(V, 0.0, None).bracket, Sphere(X, max_simplices=16)._steepest(V, 0.0, None).bracket
    assert few.upper > full.upper
    assert few.lower <= full.upper
    asked = run(30, 4, max_simplices=16)
    asked.search()
    assert 16 < asked.seen <= 48
    assert asked.queue


@pytest.mark.parametrize("c", [1, 2])
def test_a_search_that_ends_has_closed_every_cell(c: int) -> None:
    asked = run(10, 3, c, tol=1e-4)
    asked.search()
    assert not asked.queue
    assert asked.seen > 8
    assert asked.lower <= asked.upper <= asked.threshold * (1 + 1e-15)
    U = np.random.default_rng(0).standard_normal((20000, 3))
    f = np.linalg.norm(np.maximum(U @ asked.X.T, 0) @ asked.V, axis=1) / np.linalg.norm(U, axis=1)
    assert f.max() <= asked.upper
    assert asked.lower <= f.max() * 1.01


# the queue


# the list of directions


def test_noted_directions_are_evaluated_and_sorted() -> None:
    asked = run()
    U = np.random.default_rng(1).standard_normal((7, 3))
    asked.note(U)
    f = [np.linalg.norm(asked.V.T @ np.maximum(asked.X @ u, 0)) for u in U]
    assert np.allclose(asked.values, sorted(f, reverse=True))
    assert np.array_equal(asked.directions, U[np.argsort(f)[::-1]])
    assert asked.lower == pytest.approx(max(f))
    asked.note(U[:1] * 1e-3)
    assert asked.lower == pytest.approx(max(f))
    assert len(asked.values) == 8
    assert asked.values[-1] == pytest.approx(1e-3 * f[0])


def test_directions_of_one_box_are_listed_once_by_the_best() -> None:
    asked = run()
    u = np.array([[0.50, 0.30, -0.20]])
    asked.note(np.concatenate([u, u * 1.001, u * 0.999, u + np.array([0, 0, 0.01])]))
    assert len(asked.values) == 2
    assert any(np.array_equal(row, u[0] * 1.001) for row in asked.directions)
    asked.note(u * 1.002)
    assert len(asked.values) == 2
    assert any(np.array_equal(row, u[0] * 1.002) for row in asked.directions)
