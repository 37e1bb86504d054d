"""Poisson loss: digits where its terms cancel, numbers that overflow, and what has a closed form."""

import math

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf
from scipy.optimize import minimize_scalar
from sklearn.metrics import mean_poisson_deviance
from torch import Tensor

from bidual.gauges import Nuclear
from bidual.losses import Poisson
from bidual.losses.datafit import Datafit
from bidual.numerics.rounding import gamma
from bidual.operators import LinearOperator
from bidual.problems.certificate import certify
from bidual.problems.problem import Problem
from bidual.testing import own_checks_only
from helpers.draws import normal

mpmath.mp.dps = 60
COUNTS = (0.0, 1e-300, 1e-5, 0.3, 1 - 1e-16, 1.0, 1 + 3e-16, 3.0, 7.0, 1e3, 1e8, 1e15)
BESIDE = (0.0, 1e-20, -1e-16, 1e-15, -1e-9, 1e-4, -0.5, -0.999, -1.001, 1.0, 2.9, 3.1, -30.0, 40.0)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def xlogx(x: mpf) -> mpf:
    return x * mpmath.log(x) if x else mpf(0)


def exact_value(p: float, y: float) -> mpf:
    return mpmath.exp(mpf(p)) - mpf(y) * mpf(p) + xlogx(mpf(y)) - mpf(y)


def exact_conjugate(v: float, y: float) -> mpf:
    return xlogx(mpf(v) + mpf(y)) - mpf(v) - xlogx(mpf(y))


@pytest.mark.parametrize("y", COUNTS)
def test_upper_bounds_are_above_the_value_and_near_it(y: float) -> None:
    """Next to log y, where all but the last digits cancel, and away from it."""
    for beside in BESIDE:
        p = (math.log(y) if y else 0.0) + beside
        fit, real = Datafit(Poisson(), column(y)), exact_value(p, y)
        bound = fit.upper_bound(column(p), 0.0)
        moved = 64 * 2.0**-53 * (abs(p) + 1) * (1.01 * abs(mpmath.exp(p) - mpf(y)) + mpmath.exp(p) * 1e-13)
        assert real <= mpf(bound) <= real * (1 + 64 * mpf(2) ** -53) + moved + mpf(1e-290)


@pytest.mark.parametrize("y", COUNTS)
def test_lower_bounds_are_below_the_dual_value_and_near_it(y: float) -> None:
    shares = (-(1 - gamma(64)), -0.999, -0.5, -1e-4, -1e-9, -1e-17, 0.0, 1e-12, 2e-8, 0.9, 1.1, 50.0, 1e9)
    for v in [share * (y or 1.0) for share in shares if y or share >= 0]:
        dual, distance = Datafit(Poisson(), column(y)).dual_lower_bound(column(v))
        real, size = -exact_conjugate(v, y), abs(v) * (1 + abs(mpmath.log(abs(v) + y)) if v else 1)
        size += abs(v) * abs(mpmath.log(y)) if y else 0
        assert distance == 0
        assert mpf(dual) <= real
        assert mpf(dual) >= real - 200 * mpf(2) ** -53 * (size + 40 * abs(v)) - mpf(1e-300)


def test_it_is_half_the_deviance() -> None:
    y, P = np.random.default_rng(0).poisson(3, 50), normal(50, 1)
    value = float(Poisson().value(P, torch.from_numpy(y[:, None]).double()).mean())
    assert value == pytest.approx(mean_poisson_deviance(y, P.exp().numpy()[:, 0]) / 2, rel=1e-12)


def test_prox_by_a_search_along_the_line() -> None:
    for p, y, step in [(0.3, 2.0, 0.7), (-5.0, 0.0, 3.0), (8.0, 1.0, 0.01), (2.0, 900.0, 1e3)]:
        found = float(Poisson().prox(column(p), column(y), step))

        def cost(q: float, p: float = p, y: float = y, step: float = step) -> float:
            return step * (math.exp(q) - y * q) + 0.5 * (q - p) ** 2

        least = minimize_scalar(cost, bracket=(-1, 1)).fun
        assert cost(found) <= least + 1e-12 * (1 + abs(least))


def test_the_intercept_is_the_logarithm_of_the_mean() -> None:
    Y, weight = column(0, 3, 1, 10), torch.tensor([1.0, 2.0, 1.0, 0.5], dtype=torch.float64)
    for given, mean in ((None, 14 / 4), (weight, 12 / 4.5)):
        fit = Datafit(Poisson(), Y, given, True)
        assert fit.offset(torch.zeros_like(Y)).exp().item() == pytest.approx(mean, rel=1e-14)
        assert not bool(fit.shift.any())


def test_counts_that_are_all_zero_cost_nothing_with_an_intercept() -> None:
    fit = Datafit(Poisson(), torch.zeros(5, 2, dtype=torch.float64), None, True)
    P = 100 * normal(5, 2)
    assert bool(torch.isfinite(fit.offset(P)).all())
    assert fit.value(P) <= 1e-300
    assert not bool(fit.into_domain(fit.grad(P)).abs().gt(1e-300).any())
    problem = Problem(LinearOperator(normal(5, 3), 2), fit, Nuclear(), 1.0)
    assert certify(problem, problem.operator.zeros()).within(1e-9)


def test_a_zero_count_has_no_negative_dual() -> None:
    fit = Datafit(Poisson(), column(0, 0, 2, 5), None, True)
    V = fit.into_domain(column(-1, 3, -4, 1))
    assert float(V[0]) == 0
    assert bool((-fit.targets <= V).all())
    assert float(V.sum()) == pytest.approx(0, abs=1e-15)
    assert math.isfinite(fit.conjugate(V))


def test_numbers_that_overflow_give_no_certificate_and_no_error() -> None:
    X, Y = normal(6, 2), column(0, 1, 2, 3, 4, 5)
    problem = Problem(LinearOperator(X, 1), Datafit(Poisson(), Y), Nuclear(), 1.0)
    Z = torch.full(problem.operator.block_shape, 1e4, dtype=torch.float64)
    certificate = certify(problem, Z)
    assert certificate.primal == math.inf
    assert 0 <= certificate.dual <= certify(problem, problem.operator.zeros()).primal


def test_means_are_finite() -> None:
    assert Poisson().mean(column(0.0, 2.0, -1e4))[:, 0].tolist() == pytest.approx([1.0, math.exp(2), 0.0])
    assert bool(torch.isfinite(Poisson().mean(column(1e4, math.inf))).all())


def test_negative_counts_and_classes_are_refused() -> None:
    with own_checks_only(), pytest.raises(ValueError, match="targets of at least zero, got -2; use 'squared'"):
        Datafit(Poisson(), column(1, -2, 3))
    with pytest.raises(ValueError, match="for counts, not for classes"):
        Poisson().encode(np.array([0, 1]), 1)
