"""Certificates part by part: what they say, when they pass a recheck, and how a lower bound is made of any V."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from bidual.gauges import Bracket, Group
from bidual.losses import Hinge, Loss, Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.rounding import UNIT
from bidual.operators import LinearOperator
from bidual.polar import Faces, NeuronOracle, SteepestNeurons
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
    problem_polar,
)
from bidual.problems.problem import Problem
from helpers.draws import normal


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


def test_text_names_bounds_gap_and_scope() -> None:
    text = (
        "primal 2, dual 1.5, relative gap 2.50e-01, scope BLOCKS: the convex program over the given activation patterns"
    )
    assert str(plain(2.0, 1.5)) == text
    everywhere = str(plain(2.0, 1.0 / 3.0, scope=Scope.ALL_PATTERNS))
    assert "dual 0.333333333, " in everywhere
    assert everywhere.endswith("scope ALL_PATTERNS: the network over all activation patterns")


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
    polar = problem_polar(problem)(V)
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


def test_single_precision_is_judged_in_double() -> None:
    problem = problem_of(Squared())
    Z = normal(1, 3, 1)
    judged = certify(problem.to(torch.float32), Z.float(), [normal(8, 1).float()])
    assert judged.point.dtype == judged.dual_point.dtype == torch.float64
    assert judged.primal == pytest.approx(certify(problem, Z).primal, rel=1e-5)


def test_a_judge_uses_the_predictions_that_it_is_given() -> None:
    problem = problem_of(Squared())
    Z, V, polar = normal(1, 3, 1), problem.residual(problem.operator.zeros()), problem_polar(problem)
    own = judge(problem, Z, V, polar, Scope.BLOCKS)
    assert own.primal == problem.upper_bound(Z, problem.operator.forward(Z))
    given = judge(problem, Z, V, polar, Scope.ALL_PATTERNS, problem.operator.forward(Z) + 100)
    assert given.primal == problem.upper_bound(Z, problem.operator.forward(Z) + 100)
    assert (own.scope, given.scope, own.scale) == (Scope.BLOCKS, Scope.ALL_PATTERNS, problem.datafit.scale)
    assert own.dual == given.dual
    assert own.point is Z


def test_a_judge_adds_rounding_to_the_polar_of_the_point_in_the_domain() -> None:
    problem = problem_of(Hinge())
    asked = []

    def polar(V: Tensor) -> float:
        asked.append(V)
        return problem.beta

    V = -3 * problem.datafit.targets
    judged = judge(problem, problem.operator.zeros(), V, polar, Scope.BLOCKS)
    assert torch.equal(asked[0], -problem.datafit.targets)  # the end of the domain
    rounding = problem.rounding_of_polar(asked[0]) / problem.beta
    ratio = float((judged.dual_point / asked[0]).mean())
    assert 0 < rounding < 1e-12
    assert 1 - ratio == pytest.approx(rounding + 72 * UNIT, abs=3 * UNIT)


def test_candidates_are_moved_into_the_domain_and_broken_ones_to_zero() -> None:
    problem = problem_of(Hinge())
    Y = problem.datafit.targets
    assert torch.equal(_into_domain(problem, -2 * Y), -Y)
    assert torch.equal(_into_domain(problem, -0.5 * Y), -0.5 * Y)
    broken = problem_of(Squared()).datafit.targets.clone()
    broken[3] = math.nan
    assert torch.equal(_into_domain(problem_of(Squared()), broken), torch.zeros_like(broken))


@pytest.mark.parametrize("c", [1, 3])
def test_a_lower_bound_is_the_dual_value_less_some_roundings(c: int) -> None:
    """At the end of what the polar allows, V shrinks by 64 + 8 c roundings and the value by 8 more."""
    problem = problem_of(Squared(), c)
    V = -0.0625 * problem.datafit.targets.sign()  # powers of two, so that products are exact
    dual, W, polar = _lower_bound(problem, V, problem.beta)
    assert ((1 - W / V) / UNIT).unique().tolist() == [64 + 8 * c]
    least = problem.datafit.dual_lower_bound(W)[0]
    assert (1 - dual / least) / UNIT == pytest.approx(8, abs=1.5)
    assert problem.beta * (1 - 100 * UNIT) <= polar < problem.beta


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


def test_an_unbalanced_witness_costs_what_its_repair_moves_the_polar_by() -> None:
    """Within rounding of the balanced points is not among them: the dual shrinks so that a repaired V is feasible."""
    problem = problem_of(Squared(), intercept=True)
    V = -0.1 * problem.datafit.targets
    V[0] += 4e-13 * float(V.abs().sum())
    dual, W, _ = _lower_bound(problem, V, problem.beta)
    least, distance = problem.datafit.dual_lower_bound(W)
    extra = problem.sensitivity * distance / problem.beta
    assert extra > 1000 * UNIT
    assert 1 - dual / least == pytest.approx(extra - 72 * UNIT + 24 * UNIT, abs=20 * UNIT)


def test_certificates_of_zeros_pass_a_recheck() -> None:
    problem, honest = at_zero()
    nothing = replace(honest, dual=0.0, dual_point=torch.zeros_like(honest.dual_point), polar=0.0)
    assert nothing.recheck(problem)
    zero = replace(problem, datafit=Datafit(Squared(), torch.zeros_like(honest.dual_point)))
    judged = certify(zero, zero.operator.zeros())
    assert (judged.primal, judged.dual, judged.scale) == (0.0, 0.0, 0.0)
    assert judged.recheck(zero)


def test_predictions_are_computed_once_for_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, made, own = problem_of(Squared()), [], LinearOperator.forward
    monkeypatch.setattr(LinearOperator, "forward", lambda self, Z: made.append(Z) or own(self, Z))
    certify(problem, normal(1, 3, 1), [normal(8, 1), normal(8, 1, seed=2)])
    assert len(made) == 1
