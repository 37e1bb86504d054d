"""BM Theorem 3.5: a stationary point whose factors have full rank in every block is a global minimum."""

import pytest
import torch

from bidual.gauges import Factors, Nuclear
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LinearOperator
from bidual.papers.methods.optimality import optimality_report
from bidual.patterns import activations, sample_gates
from bidual.problems.problem import Problem
from bidual.solvers.factored import FactoredProgram, factored_point, train
from helpers.draws import normal
from oracles.cvxpy_oracle import cvxpy_optimum


def problem(n: int, d: int, c: int, gates: int, beta: float, seed: int = 0) -> Problem:
    X, Y = normal(n, d, seed=seed), 3 * normal(n, c, seed=seed + 1)
    if not gates:
        return Problem(LinearOperator(X, c), Datafit(Squared(), Y), Nuclear(), beta)
    patterns = activations(X, sample_gates(X, gates, torch.Generator().manual_seed(seed)))
    return Problem(GatedOperator(X, patterns, c), Datafit(Squared(), Y), Nuclear(), beta)


CASES = [(20, 3, 2, 0), (20, 2, 4, 0), (30, 2, 2, 2), (30, 3, 2, 2)]


@pytest.mark.parametrize(("n", "d", "c", "gates"), CASES)
def test_full_rank_in_every_block_means_optimal(n: int, d: int, c: int, gates: int) -> None:
    chosen = problem(n, d, c, gates, 0.05)
    for seed in range(3):
        found = train(FactoredProgram(chosen, min(d, c)), "variable_projection", seed=seed, tol=1e-9)
        point = factored_point(found)
        report = optimality_report(point.program, point.factors)
        assert report.full_rank
        assert report.gradient_norm < 1e-4
        assert report.excess == pytest.approx(1.0, abs=1e-5)  # (76)-(78): the spectral norm is exactly beta
        assert report.value == pytest.approx(cvxpy_optimum(chosen), rel=1e-6)
        assert "this is global" in str(report)


def stacked_counterexample() -> tuple[Problem, Factors]:
    """Block 1 at its own optimum, of full rank; block 2 zero: stationary, and [U_1; U_2] stacked has full rank."""
    whole = problem(30, 2, 2, 2, 0.5, seed=3)
    first = Problem(whole.operator.select(torch.tensor([0])), whole.datafit, whole.gauge, whole.beta)
    U, W = factored_point(train(FactoredProgram(first, 2), "variable_projection", tol=1e-12)).factors
    return whole, Factors(*(torch.cat([part, torch.zeros_like(part)]) for part in (U, W)))


def test_stacked_factors_of_full_rank_prove_nothing() -> None:
    whole, point = stacked_counterexample()
    stacked = (torch.linalg.matrix_rank(part.flatten(0, 1), atol=1e-6) for part in point)
    assert [int(rank) for rank in stacked] == [2, 2]  # min(d, c)
    report = optimality_report(FactoredProgram(whole, 2), point)
    assert report.gradient_norm < 1e-4
    assert report.value > 1.01 * cvxpy_optimum(whole)
    assert not report.full_rank
    assert "1 of 2 blocks have full rank min(d_c, d_r); it says nothing unless all do" in str(report)
    assert report.certified_bound > 0.01


def test_the_polar_is_that_of_the_worst_block_not_of_the_stack() -> None:
    whole, point = stacked_counterexample()
    G = whole.gradient(point.U @ point.W.mT)
    stacked = float(torch.linalg.matrix_norm(G.flatten(0, 1), ord=2))
    report = optimality_report(FactoredProgram(whole, 2), point)
    assert report.excess * whole.beta == pytest.approx(float(torch.linalg.matrix_norm(G, ord=2).max()))
    assert report.excess * whole.beta < stacked


def test_the_condition_seldom_holds_at_optima_of_gated_networks() -> None:
    """They are sparse in blocks: the theorem is true and almost never applies."""
    chosen = problem(20, 3, 2, 12, 2.0)
    point = factored_point(train(FactoredProgram(chosen, 2), "variable_projection", tol=1e-9))
    report = optimality_report(point.program, point.factors)
    assert report.certificate.relative_gap <= 1e-9
    assert not report.full_rank
