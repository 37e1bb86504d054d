"""Factored programs: value, gradient, prox and balance against finite differences and closed forms."""

import pytest
import torch

from bidual.gauges import Factors
from bidual.solvers.factored import FactoredProgram, Scaling, resized, train
from bidual.solvers.factored.arithmetic import inner, norm, plus
from helpers.draws import normal
from helpers.factored_cases import NORM_PAIRS, gated, judged, linear, random_factors, unjudged

PAIRS = pytest.mark.parametrize("gauge", NORM_PAIRS)


@PAIRS
@pytest.mark.parametrize("loss", ["squared", "logistic", "huber", "poisson"])
def test_the_gradient_is_the_slope(gauge, loss):
    program = FactoredProgram(unjudged(loss, gauge), 3)
    point, direction = random_factors(program.problem, 3), random_factors(program.problem, 3, seed=7)
    slope = (program.value(plus(point, direction, 1e-6)) - program.value(plus(point, direction, -1e-6))) / 2e-6
    assert inner(program.gradient(point), direction) == pytest.approx(slope, rel=1e-6, abs=1e-5)


@PAIRS
@pytest.mark.parametrize("step", [0.01, 1.0, 30.0])
def test_no_other_factors_beat_the_prox(gauge, step):
    program = FactoredProgram(unjudged("squared", gauge), 3)
    point = random_factors(program.problem, 3)
    best = program.prox(point, step)

    def cost(factors: Factors) -> float:
        return step * program.problem.beta * program.penalty(factors) + 0.5 * norm(plus(factors, point, -1.0)) ** 2

    for seed in range(200):
        move = random_factors(program.problem, 3, seed=seed)
        assert cost(plus(best, move, 10.0 ** -(seed % 7))) >= cost(best) * (1 - 1e-12)


@PAIRS
def test_steepest_columns_attain_the_polar_at_price_one(gauge):
    program = FactoredProgram(unjudged("squared", gauge), 3)
    G = normal(*program.problem.operator.block_shape)
    columns = program.problem.gauge.steepest(G)
    attained = (G * program.product(columns)).sum((1, 2))
    assert float(attained.max()) == pytest.approx(program.problem.gauge.polar(G).upper, rel=1e-12)
    one_block = Factors(columns.U[:1], columns.W[:1])
    assert program.problem.gauge.factor_penalty(one_block) == pytest.approx(1.0, rel=1e-12)


@PAIRS
def test_balancing_keeps_the_product_and_never_costs_more(gauge):
    program = FactoredProgram(unjudged("squared", gauge), 3)
    point = random_factors(program.problem, 3)
    point = Factors(10 * point.U, point.W)
    even = program.balanced(point)
    torch.testing.assert_close(program.product(even), program.product(point))
    assert program.penalty(even) <= program.penalty(point)
    if gauge == "nuclear":
        assert program.penalty(even) == pytest.approx(program.problem.gauge.value(program.product(point)))


@pytest.mark.parametrize("scaling", list(Scaling))
def test_a_scaled_program_is_the_sum_with_another_beta(scaling):
    problem, point = gated(), random_factors(gated(), 2)
    program = FactoredProgram.scaled(problem, 2, scaling)
    n, c = problem.datafit.targets.shape
    factor = {Scaling.SUM: 1.0, Scaling.MEAN: 1 / n, Scaling.MSE: 2 / (n * c)}[scaling]
    by_hand = factor * problem.datafit.value(problem.operator.forward(point.U @ point.W.mT))
    by_hand += problem.beta / 2 * float(point.U.square().sum() + point.W.square().sum())
    assert program.unit * program.value(point) == pytest.approx(by_hand, rel=1e-12)
    assert FactoredProgram.scaled(problem, 2, scaling.value).problem.beta == program.problem.beta


def test_starts_come_from_their_own_generator():
    program, before = FactoredProgram(gated(), 2), torch.random.get_rng_state()
    first, again = (program.start(torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.U, again.U)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_resizing_adds_zero_columns():
    point = random_factors(linear(), 2)
    wide = resized(point, 4)
    torch.testing.assert_close(wide.U @ wide.W.mT, point.U @ point.W.mT)
    assert resized(wide, 2).U.shape[2] == 2


@pytest.mark.parametrize("m", [0, -1, True])
def test_m_must_be_a_count(m):
    with pytest.raises(ValueError, match=r"m must be a whole number of at least 1 .* got"):
        FactoredProgram(gated(), m)


def test_a_wasteful_m_warns_with_the_bound():
    with pytest.warns(UserWarning, match=r"m=6 .* rows \+ columns = 5 .* 2 already attain"):
        train(FactoredProgram(linear(), 6), max_steps=1)


def test_a_start_of_the_wrong_shape_is_refused():
    program = FactoredProgram(gated(), 2)
    with pytest.raises(ValueError, match=r"the factors need U \(5, 3, 2\) and W \(5, 2, 2\), got \(5, 3, 3\)"):
        train(program, start=random_factors(gated(), 3))


def test_weighted_samples_and_intercepts_enter_the_value():
    problem, _ = judged("squared", "nuclear", True)
    program, point = FactoredProgram(problem, 2), random_factors(problem, 2)
    P, Y, w = problem.operator.forward(point.U @ point.W.mT), problem.datafit.targets, problem.datafit.weights
    residual = P - Y - (w * (P - Y)).sum(0) / w.sum()
    by_hand = 0.5 * float((w * residual.square()).sum())
    by_hand += problem.beta / 2 * float(point.U.square().sum() + point.W.square().sum())
    assert program.value(point) == pytest.approx(by_hand, rel=1e-9)
