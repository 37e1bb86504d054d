"""Local search: where it starts, how it climbs, when it stops, what it lists; ascent along ridges, by closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear

from bidual.gauges import Bracket
from bidual.numerics.norms import L2
from bidual.polar import LocalSearch, RidgeSearch, steepness
from bidual.polar.search import _concave_step, _objective, ascend, climbed
from helpers.draws import normal


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_climbing_takes_its_rounds_while_something_rises(rounds: int) -> None:
    made = []
    found = climbed(torch.ones(2, 1).double(), lambda U: U[:, 0], lambda U: made.append(1) or 2 * U, rounds, 0.0)
    assert len(made) == rounds
    assert found.bracket == Bracket(2.0**rounds, math.inf)


def test_climbing_goes_on_while_one_of_the_starts_rises() -> None:
    factors, made = torch.tensor([[1.0], [2.0]]).double(), []
    found = climbed(torch.ones(2, 1).double(), lambda U: U[:, 0], lambda U: made.append(1) or factors * U, 4, 0.0)
    assert len(made) == 4
    assert found.values.tolist() == [16.0, 1.0]
    assert found.neurons.tolist() == [[16.0], [1.0]]


def test_the_best_point_of_every_way_is_kept() -> None:
    """The first start falls at once, the second rises, falls and rises again a little."""
    ways = iter([[1.0, 5.0], [2.0, 3.0], [2.5, 4.0]])
    found = climbed(
        torch.tensor([[3.0], [2.0]]).double(),
        lambda U: U[:, 0],
        lambda U: torch.tensor(next(ways), dtype=torch.float64)[:, None],
        2,
        0.0,
    )
    assert found.values.tolist() == [5.0, 3.0]
    assert found.neurons.tolist() == [[5.0], [3.0]]
    assert found.bracket.lower == 5.0


@pytest.mark.parametrize(("above", "listed"), [(0.0, [4.0, 3.0, 2.0]), (2.0, [4.0, 3.0]), (3.5, [4.0]), (9.0, [4.0])])
def test_what_exceeds_the_threshold_is_listed_and_always_the_best(above: float, listed: list[float]) -> None:
    U = torch.tensor([[2.0], [4.0], [3.0]]).double()
    found = climbed(U, lambda W: W[:, 0], lambda W: W, 3, above)
    assert found.values.tolist() == listed
    assert found.neurons[:, 0].tolist() == listed


def test_a_feature_of_zeros_leaves_starts_finite() -> None:
    X = torch.cat([normal(5, 2), torch.zeros(5, 1).double()], 1)
    found = LocalSearch(X).steepest(normal(5, 2, seed=1))
    assert bool(torch.isfinite(found.neurons).all())
    assert found.bracket.lower > 0


def test_a_step_is_a_power_iteration_on_the_pattern() -> None:
    X, V, U = normal(8, 3), normal(8, 2, seed=1), L2.unit(normal(5, 3, seed=2))
    search = LocalSearch(X)
    for u, found in zip(U, search._climb(U, V), strict=True):
        active = search.X * (search.X @ u > 0)[:, None]
        image = active.T @ V @ V.T @ active @ u
        torch.testing.assert_close(found, image / torch.linalg.vector_norm(image))


def test_seeds_are_climbed_from_in_any_precision() -> None:
    """Few starts and no rounds: a seed that is the best direction known is what is found."""
    X, V = normal(40, 6), normal(40, 1, seed=1)
    best = LocalSearch(X).steepest(V)
    poor = LocalSearch(X, starts=6, rounds=0)
    found = poor.steepest(V, seeds=7 * best.neurons[:1].float())
    assert poor.steepest(V).bracket.lower < 0.999 * best.bracket.lower
    assert found.bracket.lower == pytest.approx(best.bracket.lower, rel=1e-6)
    assert found.neurons.dtype == torch.float64


def test_the_objective_and_its_direction() -> None:
    values, g = _objective(np.eye(2), np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([[1.0, 1.0], [-1.0, 0.5], [-1, -1]]))
    assert values == pytest.approx([5, 2, 0])
    assert g == pytest.approx(np.array([[0.6, 0.8], [0, 1], [0, 0]]))


def test_a_concave_step_without_falling_rows_goes_along_the_slope() -> None:
    X, w, hidden = normal(5, 3).numpy(), np.abs(normal(2, 5, seed=1).numpy()), normal(2, 5, seed=2).numpy()
    slope = (w * (hidden > 0)) @ X
    assert _concave_step(X, X.sum(0), w, hidden, 3) == pytest.approx(
        slope / np.linalg.norm(slope, axis=1, keepdims=True)
    )


def test_a_concave_step_stops_on_the_ridge() -> None:
    """b = (1, 1) and theta (0, -3): the shortest has theta = 1/3, on the ridge where the second row vanishes."""
    X, w = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, -3.0]])
    assert _concave_step(X, X.sum(0), w, np.array([[1.0, 1.0]]), 200) == pytest.approx(np.array([[1.0, 0.0]]), abs=1e-6)


@pytest.mark.parametrize("c", [1, 2])
def test_ascent_never_falls_and_keeps_directions_unit(c: int) -> None:
    X, V, U = normal(8, 3).numpy(), normal(8, c, seed=1).numpy(), normal(30, 3, seed=2).numpy()
    before, given = _objective(X, V, U / np.linalg.norm(U, axis=1, keepdims=True))[0], U.copy()
    found = ascend(X, V, U)
    assert np.all(_objective(X, V, found)[0] >= before * (1 - 1e-12))
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, rel=1e-12)
    assert np.array_equal(U, given)


def test_a_ridge_search_climbs_from_its_seeds_and_lists_what_is_above() -> None:
    """In many dimensions a few random starts do not find what a long search found."""
    X, V = normal(80, 30), normal(80, 1, seed=1)
    best = RidgeSearch(X, starts=400, seed=5).steepest(V)
    few = RidgeSearch(X, starts=4).steepest(V)
    seeded = RidgeSearch(X, starts=4).steepest(V, seeds=best.neurons[:1])
    assert few.bracket.lower < 0.999 * best.bracket.lower
    assert seeded.bracket.lower >= best.bracket.lower * (1 - 1e-9)
    assert len(RidgeSearch(X, starts=4).steepest(V, above=1e9).neurons) == 1
    assert RidgeSearch(X, starts=4).steepest(V).bracket.lower == few.bracket.lower


def test_starts_are_outputs_singular_vectors_samples_and_directions_each_with_both_signs() -> None:
    X, V = normal(50, 3) * torch.tensor([1.0, 30.0, 1.0]).double(), normal(50, 2, seed=1)
    search = LocalSearch(X, starts=3008)
    U, rows = search._starts(V), search.X
    assert U.shape == (3008, 3)
    outputs, singular, drawn = U[:4], U[4:8], U[8:]
    assert torch.equal(outputs, torch.cat([V.T @ rows, -V.T @ rows]))
    assert torch.equal(singular[:2], -singular[2:])
    torch.testing.assert_close((outputs[:2] @ singular[:2].T).square().sum(0), singular_values(V.T @ rows) ** 2)
    samples, directions = drawn[:1500], drawn[1500:]
    cosines = torch.nn.functional.normalize(samples) @ rows.T
    for sign in (1, -1):
        assert len((sign * cosines).argmax(1)[(sign * cosines).amax(1) > 1 - 1e-12].unique()) == 50
    assert bool((cosines.abs().amax(1) > 1 - 1e-12).all())
    reach = rows.square().mean(0) * directions.square().mean(0)  # every feature moves the rows alike
    torch.testing.assert_close(reach, torch.ones(3).double(), rtol=0.2, atol=0)


def singular_values(A: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(A @ A.T).flip(0).sqrt()


def test_a_ridge_search_draws_directions_along_which_the_rows_move_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[np.ndarray]()

    def told(X: np.ndarray, V: np.ndarray, U: np.ndarray) -> np.ndarray:
        seen.extend([X, U])
        return U

    monkeypatch.setattr("bidual.polar.search.ascend", told)
    X = normal(50, 3) * torch.tensor([1.0, 30.0, 5.0]).double()
    RidgeSearch(X, starts=2000).steepest(normal(50, 2, seed=1))
    rows, U = seen
    found, drawn, around = U[:-6000], U[-6000:-4000], U[-4000:]
    assert 1 <= len(found) <= 500
    assert np.linalg.norm(found, axis=1) == pytest.approx(1)  # by a local search
    assert (rows**2).mean(0) * (drawn**2).mean(0) == pytest.approx(1, rel=0.2)
    assert np.linalg.norm(around[:, None] - found[None], axis=2).min(1).max() < 2.5  # 0.6 away, a normal length


def test_a_ridge_search_where_nothing_is_steep_finds_nothing() -> None:
    X, V = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[2.0], [-1.0]]).double()
    assert RidgeSearch(X, starts=4).steepest(V).bracket.lower == 0


def test_a_ridge_search_starts_around_every_seed() -> None:
    X, seeds = normal(50, 8), normal(5, 8, seed=2).numpy()
    around = RidgeSearch(X, starts=20)._around(seeds)
    units = seeds / np.linalg.norm(seeds, axis=1, keepdims=True)
    away = np.linalg.norm(around[:, None] - units[None], axis=2)
    assert np.bincount(away.argmin(1), minlength=5) == pytest.approx(8, abs=2)  # 40 starts for five seeds
    assert 0.01 < away.min(1).min() < 0.15 < 0.3 < away.min(1).max() < 1.5


def test_few_starts_leave_a_sample_and_a_direction() -> None:
    U = LocalSearch(normal(9, 3), starts=1)._starts(normal(9, 2, seed=1))
    assert U.shape == (4 + 4 + 2, 3)


@pytest.mark.parametrize("make", [LocalSearch, RidgeSearch])
def test_equal_seeds_find_the_same_and_nothing_global_is_drawn_from(
    make: type[LocalSearch] | type[RidgeSearch],
) -> None:
    X, V = normal(30, 8), normal(30, 2, seed=1)
    before = torch.get_rng_state()
    found, same, other = (make(X, starts=20, seed=seed).steepest(V) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found.neurons, same.neurons)
    assert not torch.equal(found.neurons, other.neurons)


def test_a_ridge_search_is_not_below_the_local_search_it_starts_from() -> None:
    for seed in range(4):
        X, V = normal(25, 6, seed=seed), normal(25, 2, seed=seed + 9)
        local = LocalSearch(X, 16, seed=seed).steepest(V).bracket.lower
        found = RidgeSearch(X, starts=16, seed=seed).steepest(V)
        assert found.bracket.lower >= local * (1 - 1e-12)
        assert len(found.neurons) <= 16 + 32 + 4 + 1
        torch.testing.assert_close(steepness(X, V, found.neurons), found.values, rtol=1e-9, atol=0)


@pytest.mark.parametrize("seed", range(4))
def test_a_concave_step_goes_along_the_shortest_of_all_sums(seed: int) -> None:
    """Bounded least squares of scipy: |b + sum theta_i w_i x_i| over theta in [0, 1]."""
    X, w, hidden = (normal(*shape, seed=3 * seed + k).numpy() for k, shape in enumerate([(7, 4), (2, 7), (2, 7)]))
    w[:, :2], hidden[:, :2] = 5.0, 1.0  # rising rows that the others do not make up for
    found = _concave_step(X, X.sum(0), w, hidden, 120)
    for u, one, on in zip(found, w, hidden > 0, strict=True):
        b = (np.maximum(one, 0) * on) @ X
        down = one < 0
        theta = lsq_linear((one[down, None] * X[down]).T, -b, (0, 1), tol=1e-14).x
        shortest = b + (theta * one[down]) @ X[down]
        assert u == pytest.approx(shortest / np.linalg.norm(shortest), abs=1e-4)


@pytest.mark.parametrize("numbers", [1, 20])
def test_ascent_gives_every_start_the_same_however_many_there_are(
    numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, V, U = normal(8, 3).numpy(), normal(8, 2, seed=1).numpy(), normal(4, 3, seed=2).numpy()
    found = ascend(X, V, U)
    monkeypatch.setattr("bidual.polar.search._NUMBERS", numbers)
    assert ascend(X, V, U) == pytest.approx(found, abs=1e-12)
    assert np.concatenate([ascend(X, V, u[None]) for u in U]) == pytest.approx(found, abs=1e-12)


def test_more_rounds_of_ascent_climb_on() -> None:
    X, V, U = normal(60, 12).numpy(), normal(60, 1, seed=1).numpy(), normal(20, 12, seed=2).numpy()
    none, one, six = (_objective(X, V, ascend(X, V, U, rounds))[0] for rounds in (0, 1, 6))
    for below, above in ((none, one), (one, six)):
        assert np.all(below <= above * (1 + 1e-12))
        assert np.mean(above > below * (1 + 1e-6)) > 0.5


def test_of_many_samples_some_are_enough_to_find_a_planted_neuron() -> None:
    """Slopes that a known neuron made: no neuron is steeper than it, and the search comes near."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(8000, 4, generator=generator, dtype=torch.float64)
    u = torch.tensor([0.6, 0.0, 0.8, 0.0], dtype=torch.float64)
    V = (X @ u).clamp(min=0)[:, None] - (X @ u).clamp(min=0).mean()
    found = RidgeSearch(X, starts=16).steepest(V).bracket.lower
    grid = torch.nn.functional.normalize(torch.randn(20_000, 4, generator=generator, dtype=torch.float64), dim=1)
    best = max(float(((X @ some.T).clamp(min=0).T @ V).norm(dim=1).max()) for some in grid.split(2000))
    assert found >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_search_climbs_longer_before_it_says_that_nothing_is_above_a_threshold(seed: int) -> None:
    X, V = normal(120, 20, seed=seed), normal(120, 1, seed=100 + seed)
    brief, long = (RidgeSearch(X, 48).steepest(V, above, None) for above in (0.0, 1e9))
    assert long.bracket.lower > brief.bracket.lower * (1 + 1e-7)
    U = long.neurons[:1]
    assert long.bracket.lower == pytest.approx(float((V.T @ (X @ U.T).clamp(min=0)).norm()))  # and it is one
