"""The search for steep sub-networks: places that are taken, steps along the slope, and what an empty answer is."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

from bidual.gauges import Bracket
from bidual.operators.parallel import sub_network_features as features
from bidual.polar.subnetworks.bound import RelaxedBound
from bidual.polar.subnetworks.search import ParallelSearch
from helpers.draws import normal

SMALL = ParallelSearch(normal(6, 3), 2, starts=32, rounds=5)


@pytest.mark.parametrize("widths", [(1,), (2,), (3,), (2, 2)])
def test_every_unit_is_in_one_of_its_two_places(widths: tuple[int, ...]) -> None:
    taken = ParallelSearch(normal(6, 3), widths)._taken(200)
    size = math.prod(2 * m for m in widths)
    assert taken.shape == (200, size)
    assert set(taken.unique().tolist()) == {0.0, 1.0}
    assert taken.sum(1).tolist() == [math.prod(widths)] * 200
    if len(widths) == 1:
        both = taken.reshape(200, 2, widths[0])
        assert bool((both.sum(1) == 1).all())
        assert bool((both[:, 0].diff() <= 0).all())  # those of sign +1 come first
        assert both[:, 0].sum(1).unique().tolist() == list(range(widths[0] + 1))


@pytest.mark.parametrize(("starts", "most"), [(1, 16), (40, 40), (10**9, 20_000_000 // (4 * 3 * 6))])
def test_starts_are_as_many_as_asked_for_within_the_work(starts: int, most: int) -> None:
    assert ParallelSearch(normal(6, 3), 2, starts=starts)._most == most


def test_starts_are_networks_of_few_units_and_a_quarter_are_copies() -> None:
    U = ParallelSearch(torch.cat([normal(6, 2), torch.zeros(6, 1).double()], 1), 2, starts=32)._starts()
    units = U.reshape(32, 2, 2, 3)
    assert bool(torch.isfinite(U).all())
    assert units.any(3).sum((1, 2)).tolist() == [2] * 32
    equal = (units[:, 0, 0] == units[:, 0, 1]).all(1) & units[:, 0, 0].any(1)
    assert equal.nonzero()[:, 0].tolist() == list(range(8))


def test_a_step_goes_along_the_slope() -> None:
    V, U = normal(6, 2, seed=1), torch.nn.functional.normalize(normal(4, 12, seed=2))
    d = normal(4, 12, seed=3)
    ahead, behind = (SMALL._values(U + s * d, V).square() / 2 for s in (1e-6, -1e-6))
    climbed = SMALL._climb(U, V)
    assert climbed.norm(dim=1) == pytest.approx(torch.ones(4).numpy())
    slope = (ahead - behind) / 2e-6
    along = (climbed * d).sum(1)
    steep = torch.autograd.functional.jacobian(lambda W: (features(SMALL.X, W, (2,)).T @ V).square().sum() / 2, U)
    assert (slope / along).numpy() == pytest.approx(steep.norm(dim=1).numpy(), rel=1e-4)


def test_ridges_are_no_lower_and_nothing_moves_without_time() -> None:
    V, U = normal(6, 1, seed=1), torch.nn.functional.normalize(SMALL._starts())
    before, after = (SMALL._values(W, V) for W in (U, SMALL._on_ridges(U, V)))
    assert bool((after >= before).all())
    assert bool((after > before * 1.01).any())
    assert torch.equal(SMALL.within(-1.0)._on_ridges(U, V), U)


def test_values_are_those_of_the_networks_and_seeds_are_climbed_from() -> None:
    V = normal(6, 1, seed=1)
    best = replace(SMALL, X=SMALL.X, starts=128, rounds=40).steepest(V)
    found = SMALL.steepest(V, seeds=best.neurons[:1])
    assert found.bracket.lower >= best.bracket.lower * (1 - 1e-9)
    assert found.bracket.upper == math.inf
    expected = (features(SMALL.X, found.neurons, (2,)).T @ (V * SMALL.lengths[:, None])).norm(dim=1)
    torch.testing.assert_close(found.values, expected, rtol=1e-9, atol=0)
    assert bool((found.values.diff() <= 0).all())
    assert float(SMALL.steepest(V, above=0.9 * best.bracket.lower).values.min()) > 0.8 * best.bracket.lower


@pytest.mark.parametrize(
    ("oracle", "upper"), list(product((SMALL, RelaxedBound(normal(4, 2), (3, 2))), (0.0, math.inf)))
)
def test_an_empty_answer_has_the_size_of_sub_networks(oracle: ParallelSearch, upper: float) -> None:
    nothing, widths = oracle._nothing(upper), (2,) if oracle is SMALL else (3, 2)
    assert nothing.bracket == Bracket(0.0, upper)
    assert nothing.neurons.shape == (0, math.prod(2 * m for m in widths) * oracle.X.shape[1])
    assert nothing.values.shape == (0,)
    assert math.sqrt(math.prod(widths)) <= oracle.slope <= math.sqrt(math.prod(widths)) * (1 + 1e-14)


def test_a_time_limit_is_that_of_a_copy() -> None:
    other = SMALL.within(3.0)
    assert (SMALL.max_time, other.max_time) == (None, 3.0)
    assert SMALL._deadline() == math.inf
    assert math.isfinite(other._deadline())
    assert SMALL.within(3.0)._deadline() < SMALL.within(100.0)._deadline()
