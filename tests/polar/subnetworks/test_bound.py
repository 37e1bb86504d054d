"""The relaxed bound of one output: closed forms, all decisions on rows by brute force, and the program for theta."""

from itertools import product
from math import inf, prod
from types import SimpleNamespace

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from bidual.polar import Faces
from bidual.polar.subnetworks import bound as module
from bidual.polar.subnetworks.bound import RelaxedBound, _Side
from helpers.draws import normal


@pytest.mark.parametrize("widths", [(1,), (2,), (5,), (2, 3)])
@pytest.mark.parametrize("scale", [-5.0, 0.01])
def test_duals_of_one_sign_have_the_maximum_of_two_layers(widths: tuple[int, ...], scale: float) -> None:
    """All units may be copies of the steepest neuron, and together no more than the root of their number."""
    X, v = normal(6, 2), scale * normal(6, 1, seed=1).abs()
    found, exact = RelaxedBound(X, widths).steepest(v).bracket, prod(widths) ** 0.5 * Faces(X).steepest(v).bracket.upper
    assert found.upper == pytest.approx(exact, rel=1e-6)
    assert found.lower == pytest.approx(exact, rel=1e-6)


def side(seed: int, nodes: int, enough: float = 0.0) -> _Side:
    """Rows with two positive duals and a negative one."""
    v = normal(3, 1, seed=seed + 50).abs() * torch.tensor([[1.0], [1.0], [-2.0]]).double()
    settings = RelaxedBound(normal(3, 2, seed=seed), 2, nodes=nodes)
    return _Side(settings, settings._base, v, enough)


def by_brute_force(one: _Side) -> float:
    """max over decisions of min over theta, which is convex, of the larger two-layer maximum of both queries."""
    worst = 0.0
    for on in product((0.0, 1.0), repeat=2):
        decided = torch.tensor([[*on, 0.0]]).double().T * one.up

        def larger(theta: float, decided: Tensor = decided) -> float:
            part = theta * one.down
            return max(polar(one, decided - part), polar(one, part - decided))

        least = minimize_scalar(larger, bounds=(0, 1), method="bounded", options={"xatol": 1e-7}).fun
        worst = max(worst, min(least, larger(0.0), larger(1.0)))
    return worst


def polar(one: _Side, u: Tensor) -> float:
    """max |u^T (X w)_+| over the circle."""
    angles = torch.linspace(0, 2 * torch.pi, 4000, dtype=torch.float64)
    hidden = (torch.stack([angles.cos(), angles.sin()], 1) @ one.settings.X.T).clamp(min=0)
    return float((hidden @ u).max())


SEEDS = [0, 20, 23]  # decisions help in all but the first


def test_all_decisions_are_bounded_and_decisions_help() -> None:
    helped = 0
    for seed in SEEDS:
        none, every = (side(seed, nodes).bound(inf) for nodes in (0, 1000))
        exact = by_brute_force(side(seed, 0))
        assert exact * (1 - 1e-3) <= every <= exact * (1 + 1e-3)
        assert every <= none * (1 + 1e-9)
        helped += every < none * (1 - 1e-2)
    assert helped == 2


class Counted(_Side):
    asked = 0

    def _query(self, *multipliers: Tensor) -> float:
        self.asked += 1
        return super()._query(*multipliers)


def test_a_bound_that_is_low_enough_is_not_improved() -> None:
    given = side(23, 1000)
    every, few = (Counted(given.settings, given.base, given.up - given.down, enough) for enough in (0.0, 100.0))
    assert every.bound(inf) <= few.bound(inf) <= 100
    assert few.asked == 1 < every.asked


@pytest.mark.parametrize("seed", SEEDS)
def test_theta_is_the_best_for_the_known_neurons(seed: int) -> None:
    one = side(seed, 0)
    one.known = normal(7, 2, seed=seed + 9)
    first, second = one.up, one.up * torch.tensor([[1.0], [0.0], [0.0]]).double()
    choice = one._next(first, second)
    F = (one.settings.X @ one.known.T).clamp(min=0).T

    def largest(theta: Tensor) -> float:
        part = theta * one.down
        return float(torch.cat([F @ (first - part), F @ (part - second)]).max())

    assert largest(choice.theta) == pytest.approx(choice.value, rel=1e-9)
    grid = torch.linspace(0, 1, 200, dtype=torch.float64)
    best = min(largest(torch.tensor([[1.0], [1.0], [float(t)]]).double()) for t in grid)
    assert choice.value <= best * (1 + 1e-12)
    assert best <= choice.value + 0.01 * float(one.down.max()) * float(F.max())


def test_few_neurons_that_are_kept_bound_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = by_brute_force(side(23, 0))
    monkeypatch.setattr(module, "_POOL", 8)
    one = side(23, 1000)
    assert one.bound(inf) == pytest.approx(exact, rel=1e-3)
    assert len(one.known) <= 8 + 2 * 20


def test_without_an_answer_of_the_linear_program_there_is_still_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = by_brute_force(side(0, 0))
    monkeypatch.setattr(module, "linprog", lambda *parts, **options: SimpleNamespace(x=None))
    assert exact * (1 - 1e-3) <= side(0, 1000).bound(inf) < inf
