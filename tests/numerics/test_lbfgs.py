"""L-BFGS and its parts against closed forms and dense matrices."""

import itertools
from collections.abc import Callable
from math import inf

import pytest
import torch
from torch import Tensor

from bidual.numerics.lbfgs import Memory, _slope, descend
from helpers.draws import normal


def vector(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def quadratic(scale: Tensor, centre: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda p: 0.5 * (scale * (p - centre).square()).sum() + 1.0


def test_a_slope_that_is_not_a_number_is_zero() -> None:
    value, slope = _slope(lambda p: p.sqrt().sum() * 0, vector(0.0, 1.0))
    assert value == 0.0
    assert slope.tolist() == [0.0, 0.0]


def dense_inverse(pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The BFGS updates of a multiple of the identity, as matrices."""
    eye = torch.eye(len(pairs[0][0]), dtype=torch.float64)
    last_step, last_turn = pairs[-1]
    H = eye * (last_step @ last_turn) / (last_turn @ last_turn)
    for s, y in pairs:
        E = eye - torch.outer(s, y) / (s @ y)
        H = E @ H @ E.T + torch.outer(s, s) / (s @ y)
    return H


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_two_loops_apply_the_bfgs_matrix(count: int) -> None:
    A = normal(4, 4)
    A = A @ A.T + torch.eye(4, dtype=torch.float64)
    pairs = [(s, A @ s) for s in normal(count, 4, seed=1)]
    slope = normal(4, seed=2)
    before = slope.clone()
    memory = Memory(count)
    for step, change in [(slope, slope), *pairs]:  # the first one is forgotten
        memory.remember(step, change)
    assert torch.allclose(memory.divide(slope), dense_inverse(pairs) @ slope, rtol=1e-10, atol=1e-12)
    assert torch.equal(slope, before)


@pytest.mark.parametrize("seed", range(3))
def test_a_quadratic_is_minimised(seed: int) -> None:
    scale, centre = normal(6, seed=seed).exp(), normal(6, seed=seed + 10)
    found = descend(quadratic(scale, centre), torch.zeros(6, dtype=torch.float64), 100, tol=1e-14)
    assert torch.allclose(found, centre, atol=1e-5)


def after(steps: int, tol: float = 0.0, memory: int = 20) -> Tensor:
    f = quadratic(vector(1.0, 10.0, 100.0, 3.0), vector(1.0, 2.0, 3.0, -1.0))
    return descend(f, torch.zeros(4, dtype=torch.float64), steps, tol, memory)


def test_every_step_descends_and_counts() -> None:
    f = quadratic(vector(1.0, 10.0, 100.0, 3.0), vector(1.0, 2.0, 3.0, -1.0))
    values = [float(f(after(steps))) for steps in range(9)]
    assert all(new < old for old, new in itertools.pairwise(values))


def test_it_stops_when_a_step_gains_little() -> None:
    short, long = after(200, tol=0.5), after(200, tol=1e-12)
    f = quadratic(vector(1.0, 10.0, 100.0, 3.0), vector(1.0, 2.0, 3.0, -1.0))
    assert float(f(long)) == pytest.approx(1, abs=1e-9)
    assert float(f(short)) > 1.001
    assert torch.equal(descend(f, vector(1.0, 2.0, 3.0, -1.0), 5), vector(1.0, 2.0, 3.0, -1.0))


def test_a_domain_is_not_left() -> None:
    """-log p + p is infinite left of 0, least at 1."""

    def barrier(p: Tensor) -> Tensor:
        return (p - p.log()).sum() if bool((p > 0).all()) else p.sum() * inf

    found = descend(barrier, vector(1e-3, 5.0), 200, tol=1e-13)
    assert torch.allclose(found, vector(1.0, 1.0), atol=1e-4)


def test_where_the_curvature_is_negative_it_still_descends() -> None:
    found = descend(lambda p: p.cos().sum(), vector(0.1, 0.2), 100, tol=1e-13)
    assert torch.allclose(found.cos(), vector(-1.0, -1.0), atol=1e-6)


def test_pairs_in_single_precision_are_nearly_those_in_double_and_none_divides_by_zero() -> None:
    pairs = [(vector(1.0, 0.5, 0.1), vector(2.0, 0.4, 0.3)), (vector(0.2, -1.0, 0.4), vector(0.1, -3.0, 1.0))]
    double, single = Memory(5), Memory(5, dtype=torch.float32)
    for memory in (double, single):
        for step, change in pairs:
            memory.remember(step, change)
    gradient = vector(1.0, 2.0, 3.0)
    assert single.divide(gradient).dtype is torch.float64
    torch.testing.assert_close(single.divide(gradient), double.divide(gradient), rtol=1e-5, atol=1e-6)
    single.remember(1e-24 * pairs[0][0], 1e-24 * pairs[0][1])  # no number of single precision has this square
    assert len(single.pairs) == 2
    assert bool(single.divide(gradient).isfinite().all())
