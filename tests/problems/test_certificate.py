"""Soundness first: no dual may exceed the primal of any point whatever."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from bidual.gauges import GAUGES, Group, Nuclear
from bidual.losses import Absolute, Hinge, Huber, Logistic, Loss, Softmax, Squared, SquaredHinge
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LiftedOperator, LinearOperator
from bidual.patterns import activations, sample_gates
from bidual.polar import Faces
from bidual.problems.certificate import Certificate, Scope, certify, judge, problem_polar
from bidual.problems.problem import Problem
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto
from bidual.testing import example_targets, own_checks_only
from helpers.draws import normal

LOSSES: list[Loss] = [Squared(), Logistic(), Softmax(), SquaredHinge(), Hinge(), Huber(0.3), Absolute()]
SHAPES = [(12, 3, 2), (4, 9, 3), (10, 1, 1), (8, 4, 1), (1, 3, 2), (20, 2, 4)]  # n, d, c
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def awkward_data(n: int, d: int, seed: int) -> Tensor:
    """Normal samples; every other seed has a repeated row, every third a zero column, every fifth odd units."""
    X = normal(n, d, seed=seed)
    if seed % 2 == 0:
        X[-1] = X[0]
    if seed % 3 == 0:
        X[:, -1] = 0
    return X * 10 ** float(seed % 7 - 3) if seed % 5 == 0 else X


def operator_on(X: Tensor, c: int, seed: int) -> LiftedOperator:
    gates = sample_gates(X, 6, rng(seed))
    return GatedOperator(X, activations(X, gates), c) if seed % 4 and gates.numel() else LinearOperator(X, c)


def random_problem(loss: Loss, seed: int, intercept: bool | None = None, gauge: str | None = None) -> Problem:
    n, d, c = SHAPES[seed % len(SHAPES)]
    weight = None if seed % 2 else 0.1 + 2 * torch.rand(n, generator=rng(seed), dtype=torch.float64)
    Y = example_targets(loss, n, c, rng(seed))
    fit = Datafit(loss, Y, weight, bool(seed // 2 % 2) if intercept is None else intercept)
    name = gauge or list(GAUGES)[seed % len(GAUGES)]
    return Problem(operator_on(awkward_data(n, d, seed), c, seed), fit, GAUGES[name](), 10 ** float(seed % 6 - 4))


def points(problem: Problem, seed: int) -> list[Tensor]:
    """The zero, random points from tiny to huge, and the end of a short proximal gradient run."""
    shape = problem.operator.block_shape
    scattered = [10.0**power * normal(*shape, seed=seed + power) for power in (-6, -2, 0, 2, 6)]
    Z, L = problem.operator.zeros(), problem.operator.norm_squared(rng(seed)) * (problem.datafit.smoothness or 0.0)
    for _ in range(30 if L > 0 else 0):
        Z = problem.gauge.prox(Z - problem.gradient(Z) / L, problem.beta / L)
    return [problem.operator.zeros(), *scattered, 1.01 * Z, Z]


@pytest.mark.parametrize("seed", range(8))
@EVERY_LOSS
def test_no_dual_exceeds_any_primal(loss: Loss, seed: int) -> None:
    """Every pair of points is compared: about 3600 pairs in all."""
    problem = random_problem(loss, seed)
    judged = [certify(problem, Z, [normal(*problem.operator.output_shape, seed=seed)]) for Z in points(problem, seed)]
    best = min(c.primal for c in judged)
    assert max(c.dual for c in judged) <= best * (1 + 1e-9)
    assert all(c.dual >= 0 and c.polar <= problem.beta * (1 + 1e-12) for c in judged)


@pytest.mark.parametrize("seed", range(3))
@EVERY_LOSS
def test_a_candidate_that_points_the_wrong_way_is_shrunk_to_nothing(loss: Loss, seed: int) -> None:
    """Notes on BM 3.4: without the lower clip of the scale such candidates gave duals above the primal."""
    problem = random_problem(loss, seed)
    best = min(problem.primal(Z) for Z in points(problem, seed))
    V = problem.residual(problem.operator.zeros())
    judged = certify(problem, 1e6 * normal(*problem.operator.block_shape), [-V, -1e6 * V, -1e-6 * V])
    assert 0 <= judged.dual <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
@EVERY_LOSS
def test_a_witness_is_feasible_and_worth_what_is_claimed(loss: Loss, seed: int) -> None:
    problem = random_problem(loss, seed)
    judged = certify(problem, 0.1 * normal(*problem.operator.block_shape, seed=seed))
    V = judged.dual_point
    assert problem.gauge.polar(problem.operator.adjoint(V)).upper <= problem.beta * (1 + 1e-12)
    assert -problem.datafit.conjugate(V) == pytest.approx(judged.dual, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize(("intercept", "gauge"), list(product([False, True], GAUGES)))
@EVERY_LOSS
def test_beta_max_is_where_zero_becomes_optimal(loss: Loss, intercept: bool, gauge: str) -> None:
    problem = random_problem(loss, 7, intercept, gauge)
    assert problem.beta_max > 0
    zero = problem.operator.zeros()
    for factor in (1.0, 3.0):
        judged = certify(problem.with_beta(factor * problem.beta_max), zero)
        assert judged.relative_gap <= (1e-8 if loss.smoothness else 1e-6)
    if loss.smoothness:
        assert certify(problem.with_beta(problem.beta_max / 2), zero).relative_gap > 1e-4


@pytest.mark.parametrize("seed", range(3))
@EVERY_LOSS
def test_honest_certificates_pass_a_recheck(loss: Loss, seed: int) -> None:
    problem = random_problem(loss, seed)
    for Z in points(problem, seed)[::2]:
        assert certify(problem, Z).recheck(problem)


def certified() -> tuple[Problem, Certificate]:
    problem = random_problem(Squared(), 1, intercept=False)
    return problem, certify(problem, points(problem, 1)[-1])


def test_tampered_certificates_fail_a_recheck() -> None:
    problem, honest = certified()
    assert honest.dual > 0
    assert honest.recheck(problem)
    assert not replace(honest, dual=1.01 * honest.dual).recheck(problem)
    assert not replace(honest, primal=0.99 * honest.primal).recheck(problem)
    assert not replace(honest, point=0.9 * honest.point).recheck(problem)
    assert not honest.recheck(problem.with_beta(0.5 * problem.beta))


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e6])
def test_a_replaced_witness_fails_a_recheck(factor: float) -> None:
    problem, honest = certified()
    assert not replace(honest, dual_point=factor * honest.dual_point).recheck(problem)


@EVERY_LOSS
def test_an_unbalanced_dual_is_repaired(loss: Loss) -> None:
    problem = random_problem(loss, 7, intercept=True)
    V = problem.residual(problem.operator.zeros())
    judged = certify(problem, 10 * normal(*problem.operator.block_shape), [V + 1e-3, V + 1.0, 1.1 * V])
    assert float(judged.dual_point.sum(0).abs().max()) <= 1e-12 * float(judged.dual_point.abs().sum())
    assert judged.dual <= problem.primal(problem.operator.zeros()) * (1 + 1e-12)


@EVERY_LOSS
def test_a_single_precision_problem_is_judged_in_double(loss: Loss) -> None:
    problem = random_problem(loss, 7).to(torch.float32)
    Z = 0.1 * normal(*problem.operator.block_shape).float()
    judged = certify(problem, Z)
    assert judged.point.dtype == judged.dual_point.dtype == torch.float64
    assert judged.primal == pytest.approx(problem.to(torch.float64).primal(Z.double()), rel=1e-11)
    assert judged.recheck(problem)


@pytest.mark.parametrize("gauge", [Group(), Nuclear()], ids=lambda gauge: gauge.name)
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_point_that_is_not_finite_is_never_certified(gauge: Group | Nuclear, broken: float) -> None:
    problem = replace(random_problem(Squared(), 1), gauge=gauge)
    judged = certify(problem, torch.full(problem.operator.block_shape, broken, dtype=torch.float64))
    assert judged.relative_gap >= 1


def test_useless_candidates_are_ignored() -> None:
    problem = random_problem(Squared(), 1)
    Z, V = normal(*problem.operator.block_shape), normal(*problem.operator.output_shape)
    for bad in (V * math.nan, V * math.inf, 0 * V, 1e200 * V):
        assert certify(problem, Z, [bad]).dual >= certify(problem, Z).dual


def test_the_better_dual_is_kept_and_the_point_stays() -> None:
    problem = random_problem(Squared(), 1)
    poor, good = certify(problem, 100 * normal(*problem.operator.block_shape)), certified()[1]
    joined = poor.with_dual_of(good)
    assert (joined.primal, joined.dual) == (poor.primal, max(good.dual, poor.dual))
    assert torch.equal(joined.point, poor.point)
    assert joined.recheck(problem)


def test_problems_with_a_wrong_beta_or_wrong_targets_are_refused() -> None:
    problem = random_problem(Squared(), 1)
    for beta in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="beta must be positive and finite"):
            problem.with_beta(beta)
    with own_checks_only(), pytest.raises(ValueError, match="output shape"):
        replace(problem, datafit=Datafit(Squared(), normal(3, 1)))


def test_an_operator_and_targets_of_different_precision_are_judged() -> None:
    Y = torch.eye(2)[[0, 1, 0, 1]]
    problem = Problem(LinearOperator(normal(4, 3), 2), Datafit(Softmax(), Y, None, True), Nuclear(), 0.1)
    assert certify(problem, problem.operator.zeros()).dual_point.dtype == torch.float64


def test_a_certificate_prints_on_one_line() -> None:
    text = str(certified()[1])
    assert "\n" not in text
    assert "BLOCKS" in text


def test_a_forged_certificate_is_found_out() -> None:
    problem = certified()[0]
    honest = certify(problem, problem.operator.zeros())
    assert honest.recheck(problem)
    forged = [
        replace(honest, primal=math.inf, dual=1e9),
        replace(honest, polar=0.0),
        replace(honest, scale=1e20),
        replace(honest, point=honest.point[:1]),
    ]
    assert not any(certificate.recheck(problem) for certificate in forged)
    with pytest.raises(ValueError, match="with an oracle"):
        replace(honest, scope=Scope.ALL_PATTERNS).recheck(problem)


@pytest.mark.parametrize("scale", [1e-170, 1e-80, 1e80, 1e150])
def test_extreme_units_give_no_false_bound(scale: float) -> None:
    plain = certified()[0]
    operator = GatedOperator(scale * plain.operator.X, plain.operator.patterns, plain.operator.n_outputs)
    problem = replace(plain, operator=operator, beta=scale * plain.beta)
    certificate = certify(problem, problem.operator.zeros())
    assert certificate.dual <= certify(plain, plain.operator.zeros()).dual * (1 + 1e-9)


@pytest.mark.parametrize("loss", [Squared(), Huber(), Absolute()], ids=lambda loss: loss.name)
def test_a_large_offset_of_the_targets_does_not_hide_a_gap(loss: Loss) -> None:
    X, y = normal(30, 3), normal(30, 1, seed=1)
    gaps = []
    for offset in (0.0, 1e9):
        problem = Problem(operator_on(X, 1, 0), Datafit(loss, y + offset, None, True), Nuclear(), 0.1)
        gaps.append(certify(problem, problem.operator.zeros()).relative_gap)
    assert gaps[0] > 1e-3
    assert gaps[1] == pytest.approx(gaps[0], rel=1e-3)


def test_units_of_single_precision_are_not_taken_for_units_of_double() -> None:
    """Neurons of length one up to a rounding of float32 cost up to that much more than their output weights."""
    for seed in range(30):
        X, Y, Z = (normal(*shape, seed=seed + k).float() for k, shape in enumerate([(6, 3), (6, 2), (5, 1, 2)]))
        problem = ReluProblem(X, Datafit(Squared(), Y), 3.0).restricted_to(normal(5, 3, seed=seed + 9).float())
        certificate = certify(problem, Z, oracle=Faces(X.double()))
        u, w = problem.operator.neurons.double(), Z.double()
        hidden = (X.double() @ u.T).clamp(min=0)
        loss = 0.5 * (hidden @ w[:, 0] - Y.double()).square().sum()
        price = (torch.linalg.vector_norm(u, dim=1) * torch.linalg.vector_norm(w, dim=(1, 2))).sum()
        assert certificate.primal >= float(loss + 3.0 * price)


def test_judging_a_single_precision_problem_is_done_in_double() -> None:
    for seed in range(30):
        X, Y = normal(8, 3, seed=seed).float(), normal(8, 1, seed=seed + 1).float()
        problem = Problem(LinearOperator(X, 1), Datafit(Squared(), Y), Group(), 0.5)
        best = solve_auto(problem.to(torch.float64), Limits(1e-12)).certificate
        V = problem.residual(best.point.float())
        polar = problem_polar(problem.to(torch.float64))
        assert judge(problem, best.point.float(), V, polar, Scope.BLOCKS).dual <= best.primal


def interpolated(loss: Loss, weight: float) -> Certificate:
    """Of a point that fits targets near 1e-158 as well as rounding allows."""
    X, Z = normal(10, 3), torch.zeros(1, 3, 1, dtype=torch.float64)
    Z[0, 0] = 1e-158
    datafit = Datafit(loss, 1e-158 * X[:, :1], torch.full((10,), weight, dtype=X.dtype))
    return certify(Problem(LinearOperator(X, 1), datafit, Group(), 1e-180), Z)


@pytest.mark.parametrize("weight", [1e20, 1e-100])
@pytest.mark.parametrize("loss", [Squared(), Huber(0.3), Absolute()], ids=lambda loss: loss.name)
def test_underflows_are_multiplied_with_weights(loss: Loss, weight: float) -> None:
    certificate = interpolated(loss, weight)
    assert certificate.dual <= certificate.primal
    assert certificate.primal >= weight * 2.0**-1022


def test_a_slope_of_tiny_weights_is_not_lost() -> None:
    """Fitting to a rounding, 1e-174, costs that much times the weight."""
    assert interpolated(Absolute(), 1e-120).primal >= 1e-120 * 1e-175


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_point_that_is_not_finite_is_worth_nothing_to_any_judge(bad: float) -> None:
    X = torch.randn(4, 2, generator=rng(), dtype=torch.float64)
    problem = Problem(LinearOperator(X, 1), Datafit(Squared(), X[:, :1]), Nuclear(), 0.1)
    Z, V = problem.operator.zeros() + bad, problem.residual(problem.operator.zeros())
    judged = judge(problem, Z, V, problem_polar(problem), Scope.BLOCKS)
    assert (judged.primal, judged.dual) == (math.inf, 0.0)
