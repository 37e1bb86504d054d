"""Bounds on rounding hold in real arithmetic: fractions, and extended precision, say so."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from bidual.gauges import GAUGES, Nuclear
from bidual.losses import LOSSES, Softmax
from bidual.losses.datafit import Datafit
from bidual.numerics.rounding import TINY, UNIT, gamma, largest_sum, length, rounded_up
from bidual.operators import GatedOperator, LinearOperator
from bidual.problems.problem import Problem
from bidual.testing import example_targets
from helpers.draws import normal
from soundness.extended import GAUGES as PRICES
from soundness.extended import data_term, singular_values, wide

SCALES = [1e-300, 1e-160, 1e-12, 1.0, 1e12, 1e150]


def test_gamma_is_highams() -> None:
    assert gamma(10) == pytest.approx(10 * UNIT, rel=1e-12)
    assert gamma(10) > Fraction(10) * Fraction(UNIT) / (1 - 10 * Fraction(UNIT))
    assert gamma(2**53) == math.inf
    assert gamma(3, torch.float32) == pytest.approx(3 * 2**-24, rel=1e-6)


@pytest.mark.parametrize("x", [0.0, 1.0, -1.0, 1e-320, 1e300])
def test_rounded_up_is_larger(x: float) -> None:
    assert rounded_up(x) > x
    assert rounded_up(x) <= x + 17 * UNIT * abs(x) + 2 * TINY


@pytest.mark.parametrize("n", [1, 5, 5000])
def test_a_sum_is_bounded_whatever_cancels(n: int) -> None:
    for seed in range(20):
        x = normal(n, seed=seed) * 10 ** (12 * normal(n, seed=seed + 1))
        x = torch.cat([x, -x * (1 + 1e-15)])
        exact = sum((Fraction(v) for v in x.tolist()), Fraction(0))
        assert Fraction(largest_sum(x)) >= exact
        assert Fraction(largest_sum(-x)) >= -exact
        assert largest_sum(x) + largest_sum(-x) <= 2 * gamma(5000) * float(x.abs().sum()) + 1e-290


def test_sums_out_of_range_are_infinite() -> None:
    assert largest_sum(torch.tensor([1e308, 1e308], dtype=torch.float64)) == math.inf
    assert largest_sum(torch.tensor([1.0, math.inf], dtype=torch.float64)) == math.inf


@pytest.mark.parametrize("scale", SCALES)
def test_a_length_is_bounded_at_every_scale(scale: float) -> None:
    for seed in range(10):
        x = scale * normal(7, seed=seed)
        exact = sum((Fraction(v) ** 2 for v in x.tolist()), Fraction(0))
        assert Fraction(length(x)) ** 2 >= exact
        assert Fraction(max(length(x) * (1 - 1e-13) - 2 * TINY, 0.0)) ** 2 <= exact
    assert length(torch.zeros(3)) == length(torch.zeros(0)) == 0


@pytest.mark.parametrize("shape", [(3, 4, 2), (2, 2, 5), (4, 3, 1), (1, 1, 1), (2, 6, 3)])
@pytest.mark.parametrize("name", GAUGES)
def test_prices_are_bounded_from_above(name: str, shape: tuple[int, int, int]) -> None:
    gauge = GAUGES[name]()
    for seed, scale in enumerate(SCALES[:-1] * 3):
        Z = scale * normal(*shape, seed=seed)
        Z[:1] *= seed % 2
        if shape[1] > 1:
            Z[:, 1] = Z[:, 0]  # lower rank
        exact = PRICES[name](wide(Z.numpy()))
        assert np.longdouble(gauge.upper_bound(Z)) >= exact
        assert gauge.upper_bound(Z) <= float(exact) * (1 + 1e-12) + 1e-300


@pytest.mark.parametrize("seed", range(12))
def test_a_spectral_norm_is_bounded_from_above(seed: int) -> None:
    """Also where singular values are equal, far apart, or zero."""
    G = normal(4, 5, 3, seed=seed) * 10 ** normal(1, 1, 3, seed=seed).mul(seed % 5)
    if seed % 3 == 0:
        G = torch.linalg.qr(G).Q
    exact = max(singular_values(wide(block.numpy())).max() for block in G)
    bracket = Nuclear().polar(G)
    assert np.longdouble(bracket.upper) >= exact
    assert bracket.upper <= float(exact) * (1 + 1e-13)


@pytest.mark.parametrize("name", GAUGES)
def test_the_polar_changes_by_no_more_than_its_sensitivity(name: str) -> None:
    for seed in range(10):
        X, V, W = normal(6, 3, seed=seed), normal(6, 2, seed=seed + 1), normal(6, 2, seed=seed + 2)
        active = normal(4, 6, seed=seed) > 0
        problem = Problem(GatedOperator(X, active, 2), Datafit(LOSSES["squared"](), V), GAUGES[name](), 1.0)
        change = problem.gauge.polar(problem.operator.adjoint(W)).lower
        assert change <= problem.sensitivity * length(W)


@pytest.mark.parametrize("n", [3, 400])
def test_rounding_of_products_is_covered(n: int) -> None:
    """Entries of A* V against fractions, where nearly everything cancels."""
    for seed in range(5):
        X, V = normal(n, 2, seed=seed), normal(n, 1, seed=seed + 1)
        X, V = torch.cat([X, X]), torch.cat([V, -V * (1 + 1e-14)])
        problem = Problem(LinearOperator(X, 1), Datafit(LOSSES["squared"](), V), GAUGES["frobenius"](), 1.0)
        G = problem.operator.adjoint(V)[0, :, 0]
        errors = [
            Fraction(g) - sum(Fraction(x) * Fraction(v) for x, v in zip(column, V[:, 0].tolist(), strict=True))
            for g, column in zip(G.tolist(), X.T.tolist(), strict=True)
        ]
        allowed = Fraction(problem.rounding_of_polar(V))
        assert sum(error**2 for error in errors) <= allowed**2
        assert allowed <= Fraction(gamma(2 * n + 8) * 1.01 * length(X) * length(V))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_the_data_term_is_bounded_from_above(name: str, intercept: bool) -> None:
    """At the predictions themselves, and at all within a given distance."""
    loss = LOSSES[name]()
    for seed, scale in enumerate([1e-9, 1.0, 30.0, 1e6]):
        Y = example_targets(loss, 8, 3, torch.Generator().manual_seed(seed))
        fit, P = Datafit(loss, Y, None, intercept), scale * normal(8, 3, seed=seed)
        moved = P + 1e-3 * scale * normal(8, 3, seed=seed + 9)
        b = fit.offset(P).numpy()
        for other, reach in ((P, 0.0), (moved, length(moved - P))):
            real = data_term(name, 1.0, wide(other.numpy()) + wide(b), wide(fit.targets.numpy()), wide(np.ones(8)))
            assert np.longdouble(fit.upper_bound(P, reach)) >= real
        assert fit.upper_bound(P, 0.0) <= fit.value(P) * (1 + 1e-12) + 1e-13 * (1 + scale)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_dual_values_are_bounded_from_below(name: str, intercept: bool) -> None:
    """-F*(V) <= F(P) - <V, P> for every P, in extended precision: at the best P there is almost equality."""
    loss = LOSSES[name]()
    for seed in range(6):
        Y = example_targets(loss, 8, 3, torch.Generator().manual_seed(seed))
        fit, P = Datafit(loss, Y, None, intercept), normal(8, 3, seed=seed)
        V = fit.into_domain(fit.grad(P)) * (1 - gamma(100))
        value, distance = fit.dual_lower_bound(V)
        b = fit.offset(P).numpy()
        real = data_term(name, 1.0, wide(P.numpy()) + wide(b), wide(fit.targets.numpy()), wide(np.ones(8)))
        product = (wide(V.numpy()) * wide(P.numpy())).sum()
        assert np.longdouble(value) <= real - product + distance * np.longdouble(length(P))
        assert distance <= 1e-13 * length(V)
        if loss.smooth:
            assert value >= float(real - product) - 1e-12 * (1 + float(real))


def test_a_class_without_samples_takes_no_flow() -> None:
    Y = torch.eye(3, dtype=torch.float64)[[0, 1, 0, 1, 1]]
    fit = Datafit(Softmax(), Y, None, True)
    V = fit.into_domain(normal(5, 3))
    assert not bool(V[:, 2].any())
    assert math.isfinite(fit.dual_lower_bound(V * (1 - gamma(100)))[0])
