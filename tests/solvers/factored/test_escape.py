"""Saddles are left, and a certified optimum is reached from them."""

import pytest
import torch

from bidual.gauges import Factors
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.cone_factors import ConeProgram
from bidual.patterns import activations, sample_gates
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Status
from bidual.solvers.factored import FactoredProgram, factored_point, leave_saddle, resized, train
from helpers.draws import normal
from helpers.factored_cases import gated, linear
from oracles.cvxpy_oracle import cvxpy_optimum
from oracles.relu_problems import circle, dictionary_optimum


def nothing(program: FactoredProgram) -> Factors:
    U, W = program.shapes
    return Factors(torch.zeros(U, dtype=torch.float64), torch.zeros(W, dtype=torch.float64))


@pytest.mark.parametrize("problem", [gated(), linear()])
@pytest.mark.parametrize("method", ["lbfgs", "levenberg_marquardt", "variable_projection", "proximal"])
def test_the_zero_network_is_a_saddle_that_is_left(problem, method):
    program = FactoredProgram(problem, 1)
    stuck = train(program, method, start=nothing(program), escape=False)
    assert stuck.status is Status.STALLED
    assert factored_point(stuck).gradient_norm == 0
    tol = 1e-4 if method == "proximal" else 1e-6
    free = train(program, method, start=nothing(program), tol=tol)
    assert free.status is Status.CERTIFIED
    assert factored_point(free).escapes >= 1
    assert free.certificate.primal == pytest.approx(cvxpy_optimum(problem), rel=2 * tol)


def test_an_escape_lowers_the_objective_and_adds_at_most_one_column():
    program = FactoredProgram(gated(d=4, c=3), 1)
    stuck = train(program, "levenberg_marquardt", escape=False, tol=1e-9)
    assert stuck.certificate.relative_gap > 1e-3
    point = factored_point(stuck)
    grown, factors = leave_saddle(program, point.factors)
    assert grown.m == 2
    assert grown.value(factors) < point.value


def test_factors_never_outgrow_the_blocks():
    program = FactoredProgram(gated(d=4, c=2), 2)
    point = nothing(program)
    for _ in range(5):
        found = leave_saddle(program, point)
        if found is None:
            break
        program, point = found
        assert program.m == 2


def test_nothing_is_left_where_zero_is_optimal():
    problem = gated()
    program = FactoredProgram(problem.with_beta(1.01 * problem.beta_max), 2)
    assert leave_saddle(program, nothing(program)) is None


def test_at_an_optimum_there_is_nowhere_to_go():
    """Violations by rounding may be left, once; a run that gains nothing from it ends."""
    program = FactoredProgram(gated(), 2)
    optimum = factored_point(train(program, "variable_projection", tol=1e-10))
    again = train(program, "variable_projection", start=optimum.factors, tol=-1.0)
    assert again.status in (Status.STALLED, Status.EXHAUSTED)
    assert factored_point(again).escapes <= 2
    assert factored_point(again).value == pytest.approx(optimum.value, rel=1e-9)


@pytest.mark.parametrize("c", [1, 2])
def test_the_relu_program_ends_at_the_networks_optimum(c):
    """Patterns that were not sampled are added where the steepest neuron asks for them."""
    X, Y = normal(8, 2), normal(8, c, seed=1)
    relu = ReluProblem(X, Datafit(Squared(), Y), 0.5)
    patterns = activations(X, sample_gates(X, 2, torch.Generator().manual_seed(0)))
    program = ConeProgram.of(relu, patterns, 1)
    solution = train(program, "proximal", tol=1e-4)
    assert solution.status is Status.CERTIFIED
    optimum = dictionary_optimum(relu, circle(X, 2000))
    assert solution.certificate.dual <= optimum * (1 + 1e-8)
    assert solution.certificate.primal == pytest.approx(optimum, rel=3e-4)
    point = factored_point(solution)
    signs = 2 * point.program.patterns.double() - 1
    assert float((signs[:, :, None] * (X @ point.factors.U)).min()) >= -1e-10
    torch.testing.assert_close(solution.problem.operator.forward(solution.Z), point.program.predictions(point.factors))


def test_a_feasible_relu_point_is_a_network_of_the_same_objective():
    X = normal(10, 3)
    relu = ReluProblem(X, Datafit(Squared(), normal(10, 2, seed=1)), 0.3)
    patterns = activations(X, sample_gates(X, 4, torch.Generator().manual_seed(0)))
    program = ConeProgram.of(relu, patterns, 2)
    point = program.start(torch.Generator().manual_seed(1), 1.0)
    U, W = (part[0] for part in program.network(point))
    outputs = (X @ U).clamp(min=0) @ W.T
    torch.testing.assert_close(program.predictions(point), outputs)
    price = 0.5 * 0.3 * float(U.square().sum() + W.square().sum() + sum_of_lonely(point))
    by_hand = 0.5 * float((outputs - relu.datafit.targets).square().sum()) + price
    assert program.value(point) == pytest.approx(by_hand, rel=1e-12)
    assert program.certificate(point).primal <= by_hand * (1 + 1e-12)


def sum_of_lonely(point: Factors) -> float:
    """Output weights of columns that were projected to zero: they cost, and do nothing."""
    lonely = ~point.U.any(1)
    return float((point.W.square().sum(1) * lonely).sum())


def test_relu_programs_refuse_what_does_not_fit():
    X = normal(6, 2)
    relu = ReluProblem(X, Datafit(Squared(), normal(6, 1)), 0.1)
    with pytest.raises(ValueError, match=r"patterns must have shape \(P, 6\)"):
        ConeProgram.of(relu, torch.ones(2, 5, dtype=torch.bool), 1)
    program = ConeProgram.of(relu, torch.ones(1, 6, dtype=torch.bool), 1)
    with pytest.raises(ValueError, match=r"without constraints.* Use method="):
        train(program, "lbfgs")
    assert resized(nothing(program), 2).U.shape == (1, 2, 2)
