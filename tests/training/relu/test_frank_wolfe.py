import pytest
import torch

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.frank_wolfe import FrankWolfe


def _problem(n: int = 12, c: int = 2, beta: float = 0.3) -> tuple[ReluProblem, Faces]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    Y = torch.randn(n, c, generator=generator, dtype=torch.float64)
    return ReluProblem(X, Datafit(Squared(), Y), beta), Faces(X)


def test_at_the_optimal_budget_it_approaches_the_optimum_from_above() -> None:
    problem, oracle = _problem()
    exact = solve(problem, ColumnGeneration(oracle), Limits(1e-9))
    t = exact.problem.gauge.value(exact.Z)
    run = solve(problem, FrankWolfe(oracle, t), Limits(0.0, 600))
    optimum = exact.certificate.dual
    assert optimum <= run.certificate.primal <= 1.06 * optimum
    assert run.certificate.dual <= exact.certificate.primal


def test_the_network_has_the_price_of_the_budget_and_the_predictions_of_the_run() -> None:
    problem, oracle = _problem()
    run = solve(problem, FrankWolfe(oracle, 2.0), Limits(0.0, 50))
    assert run.problem.gauge.value(run.Z) <= 2.0 * (1 + 1e-12)
    assert problem.restricted_to(run.neurons).primal(run.Z) == pytest.approx(run.certificate.primal, rel=1e-9)


def test_the_search_over_t_is_not_led_astray_by_unfinished_runs() -> None:
    problem, oracle = _problem()
    exact = solve(problem, ColumnGeneration(oracle), Limits(1e-9))
    t = exact.problem.gauge.value(exact.Z)
    found = solve(problem, FrankWolfe(oracle, run_steps=60, max_runs=7), Limits(0.05))
    assert found.problem.gauge.value(found.Z) == pytest.approx(t, rel=0.3)
    assert found.certificate.primal <= 1.1 * exact.certificate.primal


def test_a_budget_must_be_positive() -> None:
    problem, oracle = _problem()
    with pytest.raises(ValueError, match="t must be positive"):
        solve(problem, FrankWolfe(oracle, 0.0), Limits(0.0, 30_000))
