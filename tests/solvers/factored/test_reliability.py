"""What is said of a factored point is true of the very factors that are returned; bad input is refused in words."""

import math
import warnings

import pytest
import torch

from bidual.gauges import Factors
from bidual.losses import Hinge, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.cone_factors import ConeProgram
from bidual.papers.methods.cone_projection import Cones
from bidual.papers.methods.optimality import optimality_report
from bidual.patterns import activations, sample_gates
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits, Status
from bidual.solvers import BurerMonteiro
from bidual.solvers.driver import solve
from bidual.solvers.factored import Descent, FactoredProgram, factored_point, train
from helpers.draws import normal
from helpers.factored_cases import gated


def optimum(program: FactoredProgram) -> Factors:
    return factored_point(train(program, "lbfgs", tol=1e-8)).factors


@pytest.mark.parametrize("method", ["lbfgs", "levenberg_marquardt", "variable_projection"])
def test_tilted_factors_of_an_optimal_product_are_not_optimal(method: str) -> None:
    program = FactoredProgram(gated(), 2)
    best = optimum(program)
    tilted = Factors(10 * best.U, best.W / 10)
    report, least = optimality_report(program, tilted), program.value(best)
    assert report.certified_bound >= report.value / least - 1 - 1e-6
    run = train(program, method, start=tilted, tol=1e-5)
    assert run.status is Status.CERTIFIED
    assert factored_point(run).value == pytest.approx(least, rel=2e-5)


def test_float32_projections_are_in_their_cones() -> None:
    X = normal(6, 3).float()
    patterns = activations(X, sample_gates(X, 8, torch.Generator().manual_seed(0)))
    cones, U = Cones.of(X, patterns), normal(len(patterns), 3, 20, seed=2).float()
    exact = Cones.of(X.double(), patterns).project(U.double())
    assert bool(cones.contains(cones.project(U)).all())
    assert torch.allclose(cones.project(U).double(), exact, atol=1e-5)


def test_float32_reports_are_computed_in_float64() -> None:
    problem = gated()
    hinge = Problem(problem.operator, Datafit(Hinge(), problem.datafit.targets.sign()), problem.gauge, problem.beta)
    program = FactoredProgram(hinge.to(torch.float32), 2)
    factors = program.start(torch.Generator().manual_seed(0), 30.0)
    report = optimality_report(program, factors)
    assert report.corrected_bound >= report.certified_bound * (1 - 1e-6)


def test_nan_is_no_tolerance() -> None:
    with pytest.raises(ValueError, match="tol must be a number"):
        train(FactoredProgram(gated(), 1), tol=math.nan)
    with pytest.raises(ValueError, match="tol must be a number"):
        solve(gated(), BurerMonteiro(), Limits(math.nan))


@pytest.mark.parametrize("wrong", [{"max_steps": -3}, {"max_time": 0.0}, {"scale": math.nan}], ids=str)
def test_limits_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        train(FactoredProgram(gated(), 1), **wrong)


def test_a_start_that_is_not_finite() -> None:
    program = FactoredProgram(gated(), 1)
    start = program.start(torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="must be finite"):
        train(program, start=Factors(start.U * math.nan, start.W))


def test_a_diverging_rate_ends_the_solver_with_a_warning() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = solve(gated(), BurerMonteiro(method=Descent(rate=1.0)), Limits(1e-6))
    assert any("learning rate" in str(warning.message) for warning in caught)
    assert math.isfinite(solution.certificate.primal)
    assert solution.n_steps < 100


def test_refusals_name_a_method_that_takes_the_program() -> None:
    problem = gated()
    kinked = Problem(problem.operator, Datafit(Hinge(), problem.datafit.targets.sign()), problem.gauge, problem.beta)
    with pytest.raises(ValueError, match="convex solver"):
        train(FactoredProgram(kinked, 1), "lbfgs")


def test_verdicts_of_theorems_that_do_not_hold_are_false() -> None:
    """The counterexample to BM Theorem 3.3: a local minimum of the ReLU program for every m."""
    relu = ReluProblem(torch.eye(2).double(), Datafit(Squared(), torch.tensor([[1.0], [-1.0]]).double()), 0.1)
    program = ConeProgram.of(relu, torch.ones(1, 2, dtype=torch.bool), 3)
    root = math.sqrt(0.3)
    U = torch.zeros(1, 2, 3).double()
    U[0, 0] = root
    report = optimality_report(program, Factors(U, torch.full((1, 1, 3), root).double()))
    assert not report.rank_deficient
    assert not report.paper_factors
    assert report.certified_bound > 1


def test_infeasible_neurons_are_not_reported_on() -> None:
    relu = ReluProblem(torch.eye(2).double(), Datafit(Squared(), torch.tensor([[1.0], [-1.0]]).double()), 0.1)
    program = ConeProgram.of(relu, torch.ones(1, 2, dtype=torch.bool), 1)
    with pytest.raises(ValueError, match="leave the cones"):
        optimality_report(program, Factors(-torch.ones(1, 2, 1).double(), torch.ones(1, 1, 1).double()))
