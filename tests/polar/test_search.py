"""Local search: where it starts, how it climbs, when it stops, what it lists."""

import math

import pytest
import torch

from bidual.gauges import Bracket
from bidual.numerics.norms import L2
from bidual.polar import LocalSearch
from bidual.polar.search import climbed
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


def test_few_starts_leave_a_sample_and_a_direction() -> None:
    U = LocalSearch(normal(9, 3), starts=1)._starts(normal(9, 2, seed=1))
    assert U.shape == (4 + 4 + 2, 3)
