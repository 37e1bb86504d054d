"""Soundness first: no dual may exceed the primal of any point whatever."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from bidual.gauges import GAUGES, Bracket, Group, Nuclear
from bidual.losses import Absolute, Hinge, Huber, Logistic, Loss, Poisson, Quantile, Softmax, Squared, SquaredHinge
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LiftedOperator, LinearOperator
from bidual.patterns import activations, sample_gates
from bidual.polar import Faces, NeuronOracle, SteepestNeurons
from bidual.polar.products.oracle import ProductBound
from bidual.polar.products.witness import ProductProof
from bidual.problems.certificate import (
    Certificate,
    Scope,
    SoundnessError,
    _assert_weak_duality,
    _into_domain,
    _lower_bound,
    _no_point,
    certify,
    judge,
    polar_bound,
)
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto
from bidual.testing import example_targets, own_checks_only
from helpers.draws import normal

PRICES = list(GAUGES)  # before other tests define more
LOSSES: list[Loss] = [
    Squared(),
    Logistic(),
    Softmax(),
    SquaredHinge(),
    Hinge(),
    Huber(0.3),
    Absolute(),
    Quantile(0.8),
    Poisson(),
]
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
    name = gauge or PRICES[seed % len(PRICES)]
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


@pytest.mark.parametrize("loss", [Squared(), Huber(), Absolute(), Quantile(0.8)], ids=lambda loss: loss.name)
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
        polar = polar_bound(problem.to(torch.float64))
        assert judge(problem, best.point.float(), V, polar, Scope.BLOCKS).dual <= best.primal


def interpolated(loss: Loss, weight: float) -> Certificate:
    """Of a point that fits targets near 1e-158 as well as rounding allows."""
    X, Z = normal(10, 3), torch.zeros(1, 3, 1, dtype=torch.float64)
    Z[0, 0] = 1e-158
    datafit = Datafit(loss, 1e-158 * X[:, :1], torch.full((10,), weight, dtype=X.dtype))
    return certify(Problem(LinearOperator(X, 1), datafit, Group(), 1e-180), Z)


@pytest.mark.parametrize("weight", [1e20, 1e-100])
@pytest.mark.parametrize("loss", [Squared(), Huber(0.3), Absolute(), Quantile(0.8)], ids=lambda loss: loss.name)
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
    judged = judge(problem, Z, V, polar_bound(problem), Scope.BLOCKS)
    assert (judged.primal, judged.dual) == (math.inf, 0.0)


def plain(primal: float, dual: float, **more: Any) -> Certificate:
    return Certificate(primal, dual, torch.zeros(1, 1, 1), torch.zeros(1, 1), **({"polar": 0.0} | more))


def problem_of(loss: Loss, c: int = 1, intercept: bool = False, share: float = 0.3) -> Problem:
    Y = normal(8, c, seed=1).sign() if isinstance(loss, Hinge) else normal(8, c, seed=1)
    problem = Problem(LinearOperator(normal(8, 3), c), Datafit(loss, Y, None, intercept), Group(), 1.0)
    return problem.with_beta(share * problem.beta_max)


def at_zero(loss: Loss | None = None, **more: Any) -> tuple[Problem, Certificate]:
    """Its point is zero, so that beta has no part in its primal."""
    problem = problem_of(loss or Squared(), **more)
    return problem, certify(problem, problem.operator.zeros())


class Told(NeuronOracle):
    """Says the same of every V, and keeps what it was asked."""

    def __init__(self, upper: float) -> None:
        self._take(normal(8, 3))
        self.upper, self.asked = upper, list[Tensor]()

    def steepest(self, V: Tensor, above: float = 0.0, seeds: Tensor | None = None) -> SteepestNeurons:
        self.asked.append(V)
        return SteepestNeurons(Bracket(0.0, self.upper), self.X[:0], self.lengths[:0])

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("primal", "dual", "gap", "relative"),
    [(4.0, 3.0, 1.0, 0.25), (4.0, 0.0, 4.0, 1.0), (0.5, 0.25, 0.25, 0.5), (0.0, 0.0, 0.0, 0.0), (2.0, 2.5, 0.0, 0.0)],
)
def test_gaps_are_differences_and_never_negative(primal: float, dual: float, gap: float, relative: float) -> None:
    assert plain(primal, dual).gap == gap
    assert plain(primal, dual).relative_gap == relative


@pytest.mark.parametrize("primal", [math.inf, math.nan])
def test_the_relative_gap_of_no_primal_is_infinite(primal: float) -> None:
    assert plain(primal, 1.0).relative_gap == math.inf


def test_a_gap_of_rounding_of_the_data_term_exhausts_float64() -> None:
    scale = 1.0 / 1e-13
    assert plain(2.0, 2.0 - 1e-13 * scale, scale=scale).exhausted
    assert not plain(2.0, 0.75, scale=scale).exhausted
    assert not plain(1.0, 1.0 - 1e-11).exhausted
    assert plain(0.0, 0.0).exhausted


def test_within_means_a_small_relative_gap_or_an_exhausted_one() -> None:
    assert plain(4.0, 3.0).within(0.25)
    assert not plain(4.0, 3.0).within(0.2499)
    assert plain(4.0, 3.0, scale=1e15).within(1e-6)


def test_a_better_dual_is_taken_with_its_witness() -> None:
    one = plain(3.0, 1.0, polar=0.1, scale=7.0)
    other = replace(plain(9.0, 2.0, polar=0.2), dual_point=torch.ones(1, 1), point=torch.ones(1, 1, 1))
    joined = one.with_dual_of(other)
    assert (joined.primal, joined.dual, joined.polar, joined.scale) == (3.0, 2.0, 0.2, 7.0)
    assert joined.dual_point is other.dual_point
    assert joined.point is one.point


@pytest.mark.parametrize("dual", [0.5, 1.0])
def test_a_dual_no_better_leaves_the_certificate(dual: float) -> None:
    one = plain(3.0, 1.0)
    assert one.with_dual_of(plain(3.0, dual)) is one


def test_duals_of_another_scope_or_above_the_primal_are_refused() -> None:
    everywhere = plain(3.0, 2.0, scope=Scope.ALL_PATTERNS)
    with pytest.raises(ValueError, match=r"^a dual of scope ALL_PATTERNS does not bound scope BLOCKS\.$"):
        plain(3.0, 1.0).with_dual_of(everywhere)
    with pytest.raises(SoundnessError, match=r"^dual 3\.5 exceeds primal 3\.0; please report this problem\.$"):
        plain(3.0, 1.0).with_dual_of(plain(9.0, 3.5))
    _assert_weak_duality(3.0, 3.0)


@pytest.mark.parametrize("name", ["primal", "dual"])
@pytest.mark.parametrize(("change", "passes"), [(0.0, True), (4e-10, True), (4e-9, False), (0.1, False)])
def test_bounds_are_rechecked_to_a_billionth_of_the_primal(name: str, change: float, passes: bool) -> None:
    problem, honest = at_zero()
    assert honest.dual > 0.01 * honest.primal
    claimed = getattr(honest, name) + change * honest.primal
    assert replace(honest, **{name: claimed}).recheck(problem) is passes


def test_a_primal_below_fails_and_a_dual_below_passes_a_recheck() -> None:
    problem, honest = at_zero()
    assert not replace(honest, primal=honest.primal * (1 - 4e-9)).recheck(problem)
    assert replace(honest, primal=honest.primal * (1 - 4e-10)).recheck(problem)
    assert replace(honest, dual=0.1 * honest.dual).recheck(problem)


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1 - 4e-10, True), (1 - 4e-9, False), (3.0, True)])
def test_the_polar_must_be_at_most_beta_and_at_most_what_was_claimed(factor: float, passes: bool) -> None:
    problem, honest = at_zero()
    assert honest.polar == pytest.approx(problem.beta, rel=1e-12)
    assert honest.recheck(problem.with_beta(factor * problem.beta)) is passes
    assert replace(honest, polar=factor * honest.polar).recheck(problem) is passes


@pytest.mark.parametrize(("factor", "passes"), [(0.0, True), (1 + 4e-10, True), (1 + 4e-9, False), (2.0, False)])
def test_the_scale_must_be_at_most_that_of_the_problem(factor: float, passes: bool) -> None:
    problem, honest = at_zero()
    assert honest.scale == problem.datafit.scale > 0
    assert replace(honest, scale=factor * honest.scale).recheck(problem) is passes


@pytest.mark.parametrize("name", ["primal", "dual", "polar", "scale"])
@pytest.mark.parametrize("broken", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_not_finite_fail_a_recheck(name: str, broken: float) -> None:
    problem, honest = at_zero()
    assert replace(honest, **{name: broken}).recheck(problem) is False


def test_witnesses_of_another_shape_fail_a_recheck() -> None:
    problem, honest = at_zero()
    for shape in ((2, 3, 1), (1, 3, 2), (1, 2, 1)):
        assert replace(honest, point=torch.zeros(shape, dtype=torch.float64)).recheck(problem) is False
    for V in (honest.dual_point[:1], honest.dual_point.T, honest.dual_point.expand(-1, 2)):
        assert replace(honest, dual_point=V).recheck(problem) is False


@pytest.mark.parametrize(("change", "passes"), [(1e-11, True), (1e-8, False), (1.0, False)])
def test_a_witness_off_the_domain_fails_a_recheck(change: float, passes: bool) -> None:
    problem = problem_of(Hinge(), share=10.0)
    honest = certify(problem, problem.operator.zeros())
    V = -(1 + change) * problem.datafit.targets  # every entry at the end of the domain, or beyond
    dual = honest.dual - 1e-6 * honest.primal
    moved = replace(honest, dual_point=V, polar=problem.beta, dual=dual)
    assert moved.recheck(problem) is passes


def test_rounding_of_a_polar_near_zero_is_allowed_for_in_a_recheck() -> None:
    problem = problem_of(Squared())
    X = problem.operator.X
    V = problem.datafit.targets - X @ torch.linalg.lstsq(X, problem.datafit.targets).solution
    zero = certify(problem, problem.operator.zeros(), [-V])
    V = zero.dual_point - X @ torch.linalg.lstsq(X, zero.dual_point).solution
    polar = polar_bound(problem)(V)
    assert 0 < polar < 1e-13
    assert replace(zero, dual=0.0, dual_point=V, polar=0.0).recheck(problem)
    assert replace(zero, dual=0.0, dual_point=V, polar=0.0).recheck(problem.with_beta(1e-3 * polar))
    assert not replace(zero, dual=0.0, dual_point=V + 1e-10 * X[:, :1], polar=0.0).recheck(problem)


def test_a_recheck_wants_an_oracle_for_the_scope_of_all_patterns_and_only_there() -> None:
    problem, honest = at_zero()
    with pytest.raises(ValueError, match=r"^a certificate of scope BLOCKS is rechecked without an oracle, like Faces"):
        honest.recheck(problem, Faces(problem.operator.X))
    with pytest.raises(ValueError, match=r"^a certificate of scope ALL_PATTERNS is rechecked with an oracle, like Fac"):
        replace(honest, scope=Scope.ALL_PATTERNS).recheck(problem)


@pytest.mark.parametrize(("factor", "passes"), [(0.5, True), (1.0, True), (1 + 4e-9, False), (2.0, False)])
def test_a_recheck_over_all_patterns_believes_its_oracle(factor: float, passes: bool) -> None:
    problem = problem_of(Squared())
    honest = certify(problem, problem.operator.zeros(), oracle=Faces(problem.operator.X))
    oracle = Told(factor * honest.polar)
    assert honest.scope is Scope.ALL_PATTERNS
    assert honest.recheck(problem, oracle) is passes
    assert torch.equal(oracle.asked[0], honest.dual_point)


def test_all_patterns_are_asked_of_the_oracle() -> None:
    """The exact maximum over patterns is what the witness is scaled to."""
    problem = problem_of(Squared())
    judged = certify(problem, problem.operator.zeros(), oracle=Faces(problem.operator.X))
    exact = Faces(problem.operator.X).steepest(judged.dual_point).bracket
    assert exact.lower <= judged.polar * (1 + 1e-12)
    assert judged.polar == pytest.approx(min(problem.beta, exact.upper), rel=1e-9)


def test_the_best_of_all_candidates_is_kept() -> None:
    problem = problem_of(Squared())
    far, V = 100 * normal(1, 3, 1), problem.residual(problem.operator.zeros())
    good = certify(problem, problem.operator.zeros()).dual
    for candidates in ([V.float()], [0 * V, V, -V], [-V, V]):
        judged = certify(problem, far, candidates)
        assert judged.dual == pytest.approx(good, rel=1e-6)
        assert judged.dual_point.dtype == torch.float64
        assert torch.equal(judged.point, far)
    assert certify(problem, far).dual < 0.9 * good


@pytest.mark.parametrize(("everywhere", "scope"), [(False, Scope.BLOCKS), (True, Scope.ALL_PATTERNS)])
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_broken_point_has_no_primal_and_the_dual_zero(everywhere: bool, scope: Scope, broken: float) -> None:
    problem = problem_of(Squared(), c=2)
    Z = problem.operator.zeros()
    Z[0, 1, 1] = broken
    judged = certify(problem, Z, oracle=Told(1.0) if everywhere else None)
    assert (judged.primal, judged.dual, judged.polar, judged.scope) == (math.inf, 0.0, 0.0, scope)
    assert judged.point is Z
    assert torch.equal(judged.dual_point, torch.zeros(8, 2, dtype=torch.float64))
    assert _no_point(problem, Z, scope).scale == 0.0


def test_a_judge_uses_the_predictions_that_it_is_given() -> None:
    problem = problem_of(Squared())
    Z, V, polar = normal(1, 3, 1), problem.residual(problem.operator.zeros()), polar_bound(problem)
    own = judge(problem, Z, V, polar, Scope.BLOCKS)
    assert own.primal == problem.upper_bound(Z, problem.operator.forward(Z))
    given = judge(problem, Z, V, polar, Scope.ALL_PATTERNS, problem.operator.forward(Z) + 100)
    assert given.primal == problem.upper_bound(Z, problem.operator.forward(Z) + 100)
    assert (own.scope, given.scope, own.scale) == (Scope.BLOCKS, Scope.ALL_PATTERNS, problem.datafit.scale)
    assert own.dual == given.dual
    assert own.point is Z


def test_candidates_are_moved_into_the_domain_and_broken_ones_to_zero() -> None:
    problem = problem_of(Hinge())
    Y = problem.datafit.targets
    assert torch.equal(_into_domain(problem, -2 * Y), -Y)
    assert torch.equal(_into_domain(problem, -0.5 * Y), -0.5 * Y)
    broken = problem_of(Squared()).datafit.targets.clone()
    broken[3] = math.nan
    assert torch.equal(_into_domain(problem_of(Squared()), broken), torch.zeros_like(broken))


@pytest.mark.parametrize("factor", [0.5, 4.0, 100.0])
def test_the_scale_is_the_best_that_the_polar_allows(factor: float) -> None:
    """-F*(s V) = s <V, -Y> - s^2 |V|^2 / 2 is largest at s = 1 where V = -Y, or at the end before."""
    problem = problem_of(Squared())
    V = -problem.datafit.targets
    dual, W, polar = _lower_bound(problem, V, factor * problem.beta)
    s = min(1.0, 1 / factor)
    assert dual == pytest.approx((s - s * s / 2) * float(V.square().sum()), rel=1e-9)
    torch.testing.assert_close(W, s * V, rtol=1e-6, atol=0)
    assert polar == pytest.approx(s * factor * problem.beta, rel=1e-6)
    assert polar <= problem.beta


def test_a_polar_of_zero_allows_all_scales() -> None:
    problem = problem_of(Squared())
    V = -0.75 * problem.datafit.targets
    dual, _, polar = _lower_bound(problem, V, 0.0)
    assert dual == pytest.approx(0.5 * float(problem.datafit.targets.square().sum()), rel=1e-9)
    assert polar == 0.0


@pytest.mark.parametrize("polar", [math.nan, -1.0, math.inf])
def test_a_broken_polar_allows_nothing(polar: float) -> None:
    problem = problem_of(Squared())
    dual, W, bound = _lower_bound(problem, -problem.datafit.targets, polar)
    assert (dual, bound) == (0.0, 0.0)
    assert torch.equal(W, torch.zeros_like(problem.datafit.targets))


def test_a_candidate_the_wrong_way_is_worth_zero() -> None:
    problem = problem_of(Squared())
    dual, W, bound = _lower_bound(problem, problem.datafit.targets, 1.0)
    assert (dual, bound) == (0.0, 0.0)
    assert not bool(W.any())


def test_a_value_below_one_counts() -> None:
    problem = problem_of(Squared())
    assert 0 < _lower_bound(problem, -1e-6 * problem.datafit.targets, problem.beta)[0] < 1e-3


def test_certificates_of_zeros_pass_a_recheck() -> None:
    problem, honest = at_zero()
    nothing = replace(honest, dual=0.0, dual_point=torch.zeros_like(honest.dual_point), polar=0.0)
    assert nothing.recheck(problem)
    zero = replace(problem, datafit=Datafit(Squared(), torch.zeros_like(honest.dual_point)))
    judged = certify(zero, zero.operator.zeros())
    assert (judged.primal, judged.dual, judged.scale) == (0.0, 0.0, 0.0)
    assert judged.recheck(zero)


@pytest.fixture(scope="module")
def proved() -> tuple[Problem, Certificate]:
    """A certificate over all patterns whose polar rests on multipliers."""
    X, Y = normal(8, 3), normal(8, 1, seed=1)
    problem = ReluProblem(X, Datafit(Squared(), Y), 0.5).restricted_to(normal(2, 3, seed=2))
    oracle = ProductBound(X, steps=10, per_row=5)
    W = -Y * oracle.lengths[:, None]
    witness = oracle.proofs(oracle._descended(oracle.start(W / W.norm()), W / W.norm()))
    polar = polar_bound(problem, ProductProof(X, witness))
    return problem, judge(problem, problem.operator.zeros(), -Y, polar, Scope.ALL_PATTERNS, witness=witness)


def test_a_certificate_with_multipliers_is_rechecked_without_an_oracle(proved: tuple[Problem, Certificate]) -> None:
    problem, honest = proved
    assert honest.dual > 0
    assert honest.recheck(problem)
    assert honest.recheck(problem, Faces(problem.operator.X))
    assert not honest.recheck(problem, Told(2 * honest.polar))  # an oracle that is given goes first
    assert not replace(honest, witness=honest.witness[:1]).recheck(problem)
    with pytest.raises(ValueError, match=r"^a certificate of scope ALL_PATTERNS is rechecked with an oracle"):
        replace(honest, witness=None).recheck(problem)


def test_multipliers_are_for_programs_over_neurons_only(proved: tuple[Problem, Certificate]) -> None:
    honest = replace(proved[1], point=problem_of(Squared()).operator.zeros())
    with pytest.raises(ValueError, match=r"^a witness is for neurons under weight decay, got LinearOperator\.$"):
        honest.recheck(problem_of(Squared()))


def test_a_better_dual_brings_its_multipliers(proved: tuple[Problem, Certificate]) -> None:
    problem, honest = proved
    nothing = replace(honest, dual=0.0, witness=None)
    assert nothing.with_dual_of(honest).witness is honest.witness
    assert certify(problem, honest.point).witness is None
