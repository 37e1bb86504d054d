"""Every solver x loss x gauge that fits together ends certified, at the optimum that cvxpy finds."""

from functools import cache

import pytest
import torch

from bidual.gauges import GAUGES
from bidual.losses import LOSSES
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers import SOLVERS
from bidual.solvers.driver import solve
from bidual.solvers.plan import solve_auto
from oracles.cvxpy_oracle import cvxpy_optimum
from oracles.problems import SHAPES, gated_problem

COMMON = {"nuclear", "frobenius", "per_output"}


def _weight(solver: str, loss: str, gauge: str, intercept: bool) -> list[pytest.MarkDecorator]:
    """Left to `make test-slow`: the rarer prices with every loss, and of the common ones, with and without intercept,
    the half that the letters draw."""
    drawn = sum(map(ord, solver + loss + gauge)) % 2 == intercept
    return [] if loss == "squared" or (gauge in COMMON and drawn) else [pytest.mark.slow]


FITTING = [
    pytest.param(s, loss, g, intercept, marks=_weight(s, loss, g, intercept))
    for s in sorted(SOLVERS)
    for loss in LOSSES
    for g in GAUGES
    for intercept in (False, True)
    if s != "interior_point"
]
SLOW_TAIL = {
    "fista": 1e-5,
    "primal_dual": 1e-3,
    "burer_monteiro": 1e-4,
    "active_neurons": 1e-5,
}  # first-order methods: looser targets


@cache
def judged(loss: str, gauge: str, shape: str, c: int, intercept: bool) -> tuple[Problem, float]:
    problem = gated_problem(SHAPES[shape], LOSSES[loss](), c, gauge, intercept=intercept, weighted=True)
    return problem, cvxpy_optimum(problem)


def should_refuse(solver: str, loss: str, gauge: str) -> bool:
    """What does not fit together, for two outputs: kinks, losses other than squared, prices without smooth factors."""
    if solver == "eta_newton":
        return loss != "squared" or gauge not in ("frobenius", "per_output")
    if solver == "eta_interior_point":
        return loss != "squared" or gauge != "frobenius"
    if solver == "q_interior_point":
        return loss != "squared" or gauge != "nuclear"
    kinked = not LOSSES[loss]().smooth
    if solver == "smoothed_newton":
        return kinked or gauge != "frobenius"
    if solver in ("burer_monteiro", "active_neurons"):
        return kinked or gauge != "nuclear"
    return solver == "fista" and kinked


@pytest.mark.parametrize(("solver", "loss", "gauge", "intercept"), FITTING)
def test_ends_certified_at_the_optimum(solver, loss, gauge, intercept):
    problem, optimum = judged(loss, gauge, "tall", 2, intercept)
    engine = SOLVERS[solver](dtype="float64") if solver in ("kernel_admm", "active_neurons") else SOLVERS[solver]()
    if should_refuse(solver, loss, gauge):
        with pytest.raises(ValueError, match="Use solver="):
            solve(problem, engine)
        return
    linear_program = not LOSSES[loss]().smooth and gauge in ("entries", "largest", "largest_per_output")
    tol = 1e-2 if linear_program and solver == "kernel_admm" else SLOW_TAIL.get(solver, 1e-7)  # it stalls on these
    solution = solve(problem, engine, Limits(tol, 20_000))
    assert solution.certificate.relative_gap <= tol
    assert solution.certificate.primal == pytest.approx(optimum, rel=2 * tol + 1e-7)
    assert solution.certificate.dual <= optimum * (1 + 1e-8)
    assert solution.certificate.recheck(problem)


OUTPUTS = [(1, "nuclear"), (3, "nuclear"), (3, "per_output"), (3, "frobenius")]
PRICED = [(loss, c, gauge) for loss in LOSSES for c, gauge in OUTPUTS if not (loss == "softmax" and c == 1)]


@pytest.mark.parametrize(("loss", "c", "gauge"), PRICED)
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_auto_takes_every_shape(loss, shape, c, gauge):
    problem, optimum = judged(loss, gauge, shape, c, intercept=shape != "one sample")
    solution = solve_auto(problem, Limits(1e-6))
    assert solution.certificate.relative_gap <= 1e-6
    assert solution.certificate.primal == pytest.approx(optimum, rel=2e-6, abs=1e-9)


@pytest.mark.parametrize(
    "solver", ["kernel_admm", "eta_newton", "fista", "primal_dual", "burer_monteiro", "active_neurons"]
)
@pytest.mark.parametrize("shape", sorted(set(SHAPES) - {"tall"}))
def test_every_solver_takes_every_shape(solver, shape):
    problem, optimum = judged("squared", "nuclear", shape, 1, intercept=shape != "one sample")
    engine = SOLVERS[solver](dtype="float64") if solver in ("kernel_admm", "active_neurons") else SOLVERS[solver]()
    solution = solve(problem, engine, Limits(1e-4, 20_000))
    assert solution.certificate.relative_gap <= 1e-4
    assert solution.certificate.dual <= optimum * (1 + 1e-8) + 1e-12


@pytest.mark.parametrize("solver", sorted(set(SOLVERS) - {"eta_interior_point"}))
def test_single_precision_problems_run_and_are_judged_in_double(solver):
    problem, optimum = judged("squared", "nuclear", "tall", 1, intercept=True)
    engine = SOLVERS[solver](dtype="float32") if solver in ("fista", "kernel_admm") else SOLVERS[solver]()
    solution = solve(problem.to(torch.float32), engine, Limits(1e-4, 2_000, max_time=20.0))
    assert solution.certificate.point.dtype is torch.float64
    assert solution.certificate.dual <= optimum * (1 + 1e-5)
    assert solution.certificate.relative_gap <= 1e-3
