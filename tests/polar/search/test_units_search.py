"""Local search: where it starts, how it climbs, when it stops, and what it lists."""

import math

import pytest
import torch

from bidual.gauges import Bracket
from bidual.numerics.norms import L2
from bidual.polar import LocalSearch, steepness
from bidual.polar.search.local import climbed
from helpers.draws import normal


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_climbing_takes_its_rounds_while_something_rises(rounds: int) -> None:
    made = []
    found = climbed(torch.ones(2, 1).double(), lambda U: U[:, 0], lambda U: made.append(1) or 2 * U, rounds, 0.0)
    assert len(made) == rounds
    assert found.bracket == Bracket(2.0**rounds, math.inf)


@pytest.mark.parametrize(("rise", "steps"), [(1.0, 1), (1 + 1e-10, 1), (1 + 1e-8, 7), (0.5, 1)])
def test_climbing_stops_where_nothing_rises_by_a_billionth(rise: float, steps: int) -> None:
    made = []
    climbed(torch.ones(2, 1).double(), lambda U: U[:, 0], lambda U: made.append(1) or rise * U, 7, 0.0)
    assert len(made) == steps


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


def test_starts_have_outputs_singular_vectors_both_ways_then_samples_and_draws() -> None:
    X, V = normal(30, 4), normal(30, 2, seed=1)
    search = LocalSearch(X, starts=50)
    U = search._starts(V)
    outputs = V.T @ search.X
    assert U.shape == (50, 4)
    torch.testing.assert_close(U[:2], outputs)
    torch.testing.assert_close(U[2:4], -outputs)
    singular = U[4:6]
    torch.testing.assert_close(singular @ singular.T, torch.eye(2).double())
    torch.testing.assert_close((singular.T @ singular) @ outputs.T, outputs.T)
    torch.testing.assert_close(U[6:8], -singular)
    distance = torch.minimum(torch.cdist(U[8:], search.X), torch.cdist(U[8:], -search.X)).amin(1)
    assert bool((distance[:21] < 1e-6).all())
    assert bool((distance[21:] > 1e-3).all())


def test_samples_are_starts_with_either_sign() -> None:
    search = LocalSearch(normal(5, 3).abs(), starts=200)
    samples = search._starts(normal(5, 1, seed=1))[4:102]
    positive = (samples > 0).all(1)
    assert bool((positive | (samples < 0).all(1)).all())
    assert 20 <= int(positive.sum()) <= 78
    assert len(torch.unique(samples.abs(), dim=0)) == 5


def test_two_starts_are_drawn_at_least() -> None:
    assert len(LocalSearch(normal(6, 3), starts=1)._starts(normal(6, 2, seed=1))) == 2 + 2 + 2 + 2 + 2


def test_draws_are_wider_along_features_that_are_small() -> None:
    """On normalised rows a feature of 1/10 the spread gets 10 times the weight."""
    X = torch.tensor([[1.0, 0.1], [-1.0, 0.1], [1.0, -0.1], [-1.0, -0.1]]).double()
    search = LocalSearch(X, starts=4004)
    drawn = search._starts(normal(4, 1))[-2000:]
    assert float(drawn[:, 1].std() / drawn[:, 0].std()) == pytest.approx(10, rel=0.15)
    assert float(drawn[:, 0].std() * search.X[0, 0].abs()) == pytest.approx(1, rel=0.15)


def test_a_feature_of_zeros_leaves_starts_finite() -> None:
    X = torch.cat([normal(5, 2), torch.zeros(5, 1).double()], 1)
    found = LocalSearch(X).steepest(normal(5, 2, seed=1))
    assert bool(torch.isfinite(found.neurons).all())
    assert found.bracket.lower > 0


@pytest.mark.parametrize(("one", "other", "same"), [(0, 0, True), (0, 1, False), (3, 3, True)])
def test_seeds_decide_the_draws(one: int, other: int, same: bool) -> None:
    X, V = normal(20, 3), normal(20, 1, seed=1)
    first, second = LocalSearch(X, seed=one)._starts(V), LocalSearch(X, seed=other)._starts(V)
    assert torch.equal(first, second) is same


def test_without_a_seed_the_seed_is_zero() -> None:
    X, V = normal(20, 3), normal(20, 1, seed=1)
    assert torch.equal(LocalSearch(X)._starts(V), LocalSearch(X, 256, 40, 0)._starts(V))


def test_a_step_is_a_power_iteration_on_the_pattern() -> None:
    X, V, U = normal(8, 3), normal(8, 2, seed=1), L2.unit(normal(5, 3, seed=2))
    search = LocalSearch(X)
    for u, found in zip(U, search._climb(U, V), strict=True):
        active = search.X * (search.X @ u > 0)[:, None]
        image = active.T @ V @ V.T @ active @ u
        torch.testing.assert_close(found, image / torch.linalg.vector_norm(image))


def test_peaks_are_units_and_worth_what_is_claimed() -> None:
    X, V = normal(12, 3), normal(12, 2, seed=1)
    found = LocalSearch(X).steepest(V)
    torch.testing.assert_close(torch.linalg.vector_norm(found.neurons, dim=1), found.values.new_ones(len(found.values)))
    torch.testing.assert_close(steepness(X, V, found.neurons), found.values)
    assert found.bracket.upper == math.inf
    assert found.bracket.lower == pytest.approx(float(found.values[0]))


def test_seeds_are_climbed_from_in_any_precision() -> None:
    """Few starts and no rounds: a seed that is the best direction known is what is found."""
    X, V = normal(40, 6), normal(40, 1, seed=1)
    best = LocalSearch(X).steepest(V)
    poor = LocalSearch(X, starts=6, rounds=0)
    found = poor.steepest(V, seeds=7 * best.neurons[:1].float())
    assert poor.steepest(V).bracket.lower < 0.999 * best.bracket.lower
    assert found.bracket.lower == pytest.approx(best.bracket.lower, rel=1e-6)
    assert found.neurons.dtype == torch.float64


def test_rounds_are_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    search, made = LocalSearch(normal(30, 5), rounds=2), []
    own = search._climb
    monkeypatch.setattr(search, "_climb", lambda U, V: made.append(1) or own(U, V))
    search.steepest(normal(30, 2, seed=1))
    assert len(made) == 2


def test_a_search_proves_nothing() -> None:
    assert LocalSearch.proves is False
    assert "generator" not in repr(LocalSearch(normal(3, 2)))
