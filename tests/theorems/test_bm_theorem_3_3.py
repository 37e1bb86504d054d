"""BM Theorem 3.3: no spurious local minima for enough factors, or rank-deficient ones; true but for ReLU cones."""

import pytest
import torch

from bidual.gauges import Factors, Nuclear
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LinearOperator
from bidual.papers.methods.cone_factors import ConeProgram
from bidual.papers.methods.optimality import optimality_report
from bidual.patterns import activations, sample_gates
from bidual.problems.problem import Problem, ReluProblem
from bidual.solvers.factored import FactoredProgram, factored_point, leave_saddle, train
from helpers.draws import normal
from oracles.cvxpy_oracle import cvxpy_optimum


def gated(d: int = 4, c: int = 3, beta: float = 0.3) -> Problem:
    X = normal(14, d)
    patterns = activations(X, sample_gates(X, 6, torch.Generator().manual_seed(0)))
    return Problem(GatedOperator(X, patterns, c), Datafit(Squared(), normal(14, c, seed=1)), Nuclear(), beta)


def linear(d: int = 4, c: int = 3, beta: float = 0.3) -> Problem:
    return Problem(LinearOperator(normal(14, d), c), Datafit(Squared(), normal(14, c, seed=1)), Nuclear(), beta)


@pytest.mark.parametrize("problem", [gated(), linear()], ids=["gated", "linear"])
@pytest.mark.parametrize("m", [3, 4, 7])
def test_min_d_c_factors_leave_no_spurious_local_minima(problem: Problem, m: int) -> None:
    """m >= min(d, c) = 3 suffices, of d + c = 7 in the theorem: every random start ends at the optimum."""
    optimum = cvxpy_optimum(problem)
    for seed in range(6):
        found = train(FactoredProgram(problem, m), "variable_projection", seed=seed, escape=False, tol=1e-7)
        assert factored_point(found).value == pytest.approx(optimum, rel=1e-5)


def test_fewer_factors_do_have_spurious_local_minima() -> None:
    problem = gated()
    optimum = cvxpy_optimum(problem)
    program, method = FactoredProgram(problem, 1), "variable_projection"
    ends = [factored_point(train(program, method, seed=s, escape=False, tol=1e-9)) for s in range(6)]
    assert min(end.value for end in ends) > optimum * 1.001
    assert max(end.gradient_norm for end in ends) < 1e-3
    assert all(leave_saddle(end.program, end.factors) is not None for end in ends)


def test_balanced_at_stationary_points() -> None:
    """U^T U = W^T W, which the proof for m >= min(d, c) rests on."""
    for m in (1, 2, 5):
        found = train(FactoredProgram(gated(), m), "variable_projection", escape=False, tol=1e-13)
        U, W = factored_point(found).factors
        torch.testing.assert_close(U.mT @ U, W.mT @ W, atol=1e-6, rtol=0)


def test_a_rank_deficient_stationary_point_above_the_optimum_is_no_local_minimum() -> None:
    """U + e a w^T, W + e b w^T with a null vector w of both factors and the top singular pair (a, b) goes down."""
    problem = gated()
    program = FactoredProgram(problem, 2)
    stuck = train(FactoredProgram(problem, 1), "variable_projection", escape=False, tol=1e-12)
    U, W = (torch.cat([part, torch.zeros_like(part)], 2) for part in factored_point(stuck).factors)
    report = optimality_report(program, Factors(U, W))
    assert report.rank_deficient
    assert report.gradient_norm < 1e-4
    left, _, right = torch.linalg.svd(-problem.gradient(U @ W.mT), full_matrices=False)
    for step in (1e-1, 1e-2, 1e-3):
        moved = Factors(U.clone(), W.clone())
        moved.U[:, :, 1], moved.W[:, :, 1] = step * left[:, :, 0], step * right[:, 0]
        excess = torch.linalg.matrix_norm(problem.gradient(U @ W.mT), ord=2) > problem.beta
        moved.U[~excess, :, 1], moved.W[~excess, :, 1] = 0, 0
        assert program.value(moved) < report.value


def counterexample(m: int) -> tuple[ConeProgram, Factors]:
    """X = I_2, one pattern that is on everywhere, y = (1, -1), beta = 0.1: all columns along e_1."""
    X = torch.eye(2, dtype=torch.float64)
    relu = ReluProblem(X, Datafit(Squared(), torch.tensor([[1.0], [-1.0]], dtype=torch.float64)), 0.1)
    program = ConeProgram.of(relu, torch.ones(1, 2, dtype=torch.bool), m)
    share = (torch.arange(1, m + 1, dtype=torch.float64) / (m * (m + 1) / 2) * 0.9).sqrt()
    U = torch.stack([share, torch.zeros(m, dtype=torch.float64)])[None]
    return program, Factors(U, share[None, None])


@pytest.mark.parametrize("m", [1, 2, 3, 5, 20])
def test_false_for_relu_networks_for_every_m(m: int) -> None:
    """Value 0.595 against p* = 0.19; rank one, m as large as one likes, and no feasible neighbour is lower."""
    program, point = counterexample(m)
    assert program.value(point) == pytest.approx(0.595)
    assert program.stationarity(point) <= 1e-12
    generator = torch.Generator().manual_seed(m)
    for k in range(600):
        size = 10.0 ** (-1 - k % 6) / m
        U, W = (torch.randn(part.shape, generator=generator, dtype=torch.float64) for part in point)
        near = program.feasible(Factors(point.U + size * U, point.W + size * W.clamp(min=-0.1, max=0.1)))
        assert program.value(near) >= 0.595 - 1e-12
    report = optimality_report(program, point)
    assert bool((report.stacked_ranks == 1).all())
    assert report.bound == pytest.approx(1 / 0.1 - 1)  # (20) does flag the point, and so does the certificate
    assert report.certificate.dual <= 0.19 + 1e-12
    assert "false for the ReLU program for every m" in str(report)


def test_the_counterexample_is_left_by_an_escape() -> None:
    """min over z >= 0 of (z - 1)^2 / 2 + 0.1 z is 0.095, twice."""
    program, point = counterexample(2)
    stuck = train(program, "proximal", start=point, escape=False)
    assert factored_point(stuck).value == pytest.approx(0.595)
    free = train(program, "proximal", start=point, tol=1e-7)
    assert factored_point(free).escapes >= 1
    assert free.certificate.primal == pytest.approx(0.19, rel=1e-6)
    assert free.certificate.relative_gap <= 1e-7


def test_a_free_column_in_a_relu_block_is_what_helps() -> None:
    """What is true with cones: a local minimum with a zero column pair is global. A zero column turns this one into a
    saddle."""
    program, point = counterexample(1)
    wide = ConeProgram.of(program.relu, program.patterns, 2)
    for step in (1e-1, 1e-2, 1e-3):
        U = torch.tensor([[[point.U[0, 0, 0], 0.0], [0.0, step]]], dtype=torch.float64)
        W = torch.tensor([[[point.W[0, 0, 0], -step]]], dtype=torch.float64)
        assert wide.value(Factors(U, W)) < 0.595
