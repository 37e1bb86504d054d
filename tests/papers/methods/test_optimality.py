"""The report on a factored point: its numbers against their definitions, its words against what applies."""

import pytest
import torch

from bidual.gauges import Factors
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.cone_factors import ConeProgram
from bidual.papers.methods.optimality import optimality_report
from bidual.problems.problem import ReluProblem
from bidual.solvers.factored import FactoredProgram, factored_point, train
from bidual.solvers.factored.arithmetic import inner
from helpers.draws import normal
from helpers.factored_cases import gated, judged, linear, random_factors


@pytest.mark.parametrize("gauge", ["nuclear", "per_output", "entries", "largest"])
def test_what_20_misses_is_half_the_gradient_times_the_factors(gauge):
    """F - <grad F, Z> = p_BM - <g, w>/2, for every pair of norms."""
    program = FactoredProgram(judged("squared", gauge)[0], 3)
    for seed in range(20):
        point = random_factors(program.problem, 3, seed=seed)
        Z = program.product(point)
        left = program.problem.datafit.value(program.problem.operator.forward(Z))
        left -= float((program.problem.gradient(Z) * Z).sum())
        report = optimality_report(program, point)
        assert report.missed == pytest.approx(0.5 * inner(program.gradient(point), point))
        assert left == pytest.approx(report.value - report.missed, rel=1e-10)


def test_at_an_optimum_everything_agrees():
    problem, optimum = judged()
    point = factored_point(train(FactoredProgram(problem, 2), "variable_projection", tol=1e-9))
    report = optimality_report(point.program, point.factors)
    assert report.value == pytest.approx(optimum, rel=1e-7)
    assert report.gradient_norm < 1e-5
    assert max(report.bound, report.corrected_bound, report.certified_bound) < 1e-5
    assert report.enough_factors
    assert not report.paper_factors
    assert "min(d_c, d_r) = 2 suffices: no local minimum is spurious" in str(report)


def test_words_for_too_few_factors_and_gated_networks():
    text = str(optimality_report(FactoredProgram(gated(gates=8), 1), random_factors(gated(gates=8), 1)))
    assert "local minima may be spurious" in text
    assert "A.4: void here, F(A Z) is not strongly convex" in text
    assert "scope BLOCKS" in text


def test_linear_networks_have_the_count_of_a_4():
    problem = linear(n=20)
    report = optimality_report(FactoredProgram(problem, 2), random_factors(problem, 2))
    values = torch.linalg.svdvals(problem.operator.X)
    assert report.zhang == pytest.approx(0.25 * (float(values[0] / values[-1]) ** 2 - 1) ** 2 * 2)
    assert "take it as a hint" in str(report)


def test_ranks_are_counted_block_by_block():
    problem = gated(d=3, c=2, gates=3)
    point = random_factors(problem, 3)
    U, W = point.U.clone(), point.W.clone()
    U[1], W[1] = 0, 0
    U[2, :, 1:], W[2, :, 1:] = 0, 0
    report = optimality_report(FactoredProgram(problem, 3), Factors(U, W))
    assert report.hidden_ranks.tolist() == [3, 0, 1]
    assert report.output_ranks.tolist() == [2, 0, 1]
    assert report.stacked_ranks.tolist() == [3, 0, 1]
    assert not report.rank_deficient
    assert not report.full_rank
    assert "2 of 3 blocks have rank below m; it says nothing unless all do" in str(report)


def test_relu_programs_say_what_does_not_apply():
    X = normal(6, 2)
    relu = ReluProblem(X, Datafit(Squared(), normal(6, 2, seed=1)), 0.3)
    program = ConeProgram.of(relu, torch.ones(1, 6, dtype=torch.bool), 2)
    text = str(optimality_report(program, program.start(torch.Generator().manual_seed(0))))
    assert "false for the ReLU program for every m" in text
    assert "rotations of the factors leave the cone" in text
    assert "scope ALL_PATTERNS" in text


def test_a_point_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="the factors need"):
        optimality_report(FactoredProgram(gated(), 2), random_factors(gated(), 3))
