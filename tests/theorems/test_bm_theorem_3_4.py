"""BM Theorem 3.4: the bound (20) at stationary points, where it fails elsewhere, and what holds everywhere."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual.gauges import Factors, Nuclear
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LinearOperator
from bidual.papers.methods.cone_factors import ConeProgram
from bidual.papers.methods.optimality import optimality_report
from bidual.patterns import activations, sample_gates
from bidual.problems.problem import Problem, ReluProblem
from bidual.solvers.factored import Descent, FactoredProgram, factored_point, resized, train
from helpers.draws import normal
from oracles.cvxpy_oracle import cvxpy_optimum
from oracles.relu_problems import circle, dictionary_optimum


def gated(seed: int, beta: float, d: int = 3, c: int = 3) -> Problem:
    X = normal(10, d, seed=seed)
    patterns = activations(X, sample_gates(X, 5, torch.Generator().manual_seed(seed)))
    return Problem(GatedOperator(X, patterns, c), Datafit(Squared(), normal(10, c, seed=seed + 1)), Nuclear(), beta)


PROBLEMS = [gated(seed, beta) for seed, beta in enumerate((0.03, 0.3, 1.0))]
OPTIMA = [cvxpy_optimum(problem) for problem in PROBLEMS]
JUDGED = pytest.mark.parametrize(
    ("problem", "optimum"), list(zip(PROBLEMS, OPTIMA, strict=True)), ids=["0.03", "0.3", "1"]
)


def zero(problem: Problem) -> Factors:
    p, a, b = problem.operator.block_shape
    return Factors(torch.zeros(p, a, 1, dtype=torch.float64), torch.zeros(p, b, 1, dtype=torch.float64))


def frozen_blocks(problem: Problem, blocks: list[int]) -> Factors:
    """A point that is stationary for the whole because it is optimal over some blocks, and zero on the others."""
    part = Problem(problem.operator.select(torch.tensor(blocks)), problem.datafit, problem.gauge, problem.beta)
    found = train(FactoredProgram(part, 3), "variable_projection", tol=1e-13)
    whole = resized(zero(problem), 3)
    whole.U[blocks], whole.W[blocks] = factored_point(found).factors
    return whole


@JUDGED
def test_20_holds_at_stationary_points(problem: Problem, optimum: float) -> None:
    """Saddles of every quality: zero, and optima over subsets of the blocks."""
    points = [zero(problem)] + [frozen_blocks(problem, blocks) for blocks in ([0], [1, 3], [0, 2, 4], [0, 1, 2, 3])]
    for point in points:
        report = optimality_report(FactoredProgram(problem, point.U.shape[2]), point)
        assert report.gradient_norm <= 1e-5
        gap = (report.value - optimum) / optimum
        assert gap > 1e-4  # they are saddles
        assert report.bound >= gap * (1 - 1e-6)
        assert report.bound == pytest.approx(report.corrected_bound, rel=1e-4)


@JUDGED
def test_20_holds_at_stationary_points_of_too_few_factors(problem: Problem, optimum: float) -> None:
    for seed in range(4):
        solution = train(FactoredProgram(problem, 1), "variable_projection", seed=seed, escape=False, tol=1e-12)
        point = factored_point(solution)
        report = optimality_report(point.program, point.factors)
        assert report.gradient_norm <= 1e-4
        assert report.bound >= (report.value - optimum) / optimum - 1e-6


@pytest.mark.parametrize(("s", "beta"), [(1e-3, 1e-2), (1e-2, 1e-2), (1e-1, 1e-2)])
def test_20_fails_where_the_gradient_is_small_and_the_factors_are_large(s: float, beta: float) -> None:
    """F = 1/2 (s z - y)^2 at z = y / s: the residual is 0, so is (20), and the true gap is as large as one likes."""
    one = torch.ones(1, 1, dtype=torch.float64)
    problem = Problem(LinearOperator(s * one, 1), Datafit(Squared(), one), Nuclear(), beta)
    root = (1 / s) ** 0.5 * one[None]
    report = optimality_report(FactoredProgram(problem, 1), Factors(root, root))
    z = max(0.0, (s - beta) / s**2)  # the scalar soft threshold
    optimum = 0.5 * (s * z - 1) ** 2 + beta * z
    gap = (report.value - optimum) / optimum
    assert report.bound == 0
    assert gap > 0.04
    assert report.corrected_bound >= gap
    assert report.certified_bound >= gap
    assert report.missed == pytest.approx(report.value)  # the whole objective is what (20) leaves out


def test_20_fails_at_points_that_look_converged() -> None:
    """Interpolation first, slow decay of the weights after: a small gradient, and (20) below the gap."""
    problem = gated(5, 1e-3, d=3, c=1)
    optimum = cvxpy_optimum(problem)
    program = FactoredProgram(problem, 1)
    point = program.start(torch.Generator().manual_seed(0), 3.0)
    fitted = train(FactoredProgram(problem.with_beta(1e-9), 1), "levenberg_marquardt", start=point, max_steps=40)
    report = optimality_report(program, factored_point(fitted).factors)
    gap = (report.value - optimum) / optimum
    assert report.gradient_norm < 1e-3 * program.stationarity(point)
    assert report.bound < gap
    assert report.corrected_bound >= gap


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2), st.integers(1, 4), st.integers(0, 2**31), st.floats(-6, 3), st.floats(-1, 1))
def test_the_certificate_and_the_corrected_bound_hold_at_every_point(
    which: int, m: int, seed: int, size: float, tilt: float
) -> None:
    problem, optimum = PROBLEMS[which], OPTIMA[which]
    p, a, b = problem.operator.block_shape
    generator = torch.Generator().manual_seed(seed)
    U, W = (torch.randn(p, side, m, generator=generator, dtype=torch.float64) for side in (a, b))
    report = optimality_report(FactoredProgram(problem, m), Factors(10 ** (size + tilt) * U, 10 ** (size - tilt) * W))
    gap = (report.certificate.primal - optimum) / optimum
    assert report.certificate.dual <= optimum * (1 + 1e-8)
    assert report.certified_bound >= gap * (1 - 1e-8)
    assert report.corrected_bound >= (report.value - optimum) / optimum * (1 - 1e-8)
    assert report.certified_bound <= report.corrected_bound * (1 + 1e-6) + 1e-8  # the rescaled dual is never worse


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_certificate_holds_along_runs_and_at_thousands_of_random_points(which: int) -> None:
    problem, optimum = PROBLEMS[which], OPTIMA[which]
    program, generator = FactoredProgram(problem, 3), torch.Generator().manual_seed(which)
    for k in range(700):
        certificate = program.certificate(program.start(generator, 10 ** (k % 7 - 4.0)))
        assert certificate.dual <= optimum * (1 + 1e-8)
        assert certificate.primal >= optimum * (1 - 1e-8)
    for method, steps in ((Descent(rate=0.1), 300), ("preconditioned", 100), ("lbfgs", 2)):
        mean = FactoredProgram.scaled(problem.with_beta(problem.beta / 10), 2, "mean")
        run = train(mean, method, max_steps=steps)
        assert all(0 <= record.relative_gap <= 1 for record in run.history)
        assert run.certificate.dual <= optimum * (1 + 1e-8) <= run.certificate.primal * (1 + 2e-8)


def test_the_relu_form_of_20_bounds_the_gap_of_networks() -> None:
    X = normal(7, 2, seed=8)
    relu = ReluProblem(X, Datafit(Squared(), normal(7, 2, seed=9)), 0.4)
    optimum = dictionary_optimum(relu, circle(X, 1500))
    patterns = activations(X, sample_gates(X, 6, torch.Generator().manual_seed(0)))
    generator = torch.Generator().manual_seed(1)
    for count in (1, 2, 4, 6):
        program = ConeProgram.of(relu, patterns[:count], 1)
        solution = train(program, "proximal", tol=1e-7, escape=False, max_steps=3000)
        point = factored_point(solution)
        report = optimality_report(point.program, point.factors)
        gap = (report.value - optimum) / optimum
        assert report.bound >= gap - 1e-4
        assert report.corrected_bound >= gap - 1e-4  # the dictionary is not quite all neurons
        for _ in range(50):
            certificate = program.certificate(program.start(generator, 0.5))
            assert certificate.dual <= optimum * (1 + 1e-8)
