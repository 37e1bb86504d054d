"""Every solver x loss x gauge that fits together ends certified, at the optimum that cvxpy finds."""

from functools import cache

import pytest

from bidual.auto import solve_auto
from bidual.driver import solve
from bidual.gauges import GAUGES
from bidual.losses import LOSSES
from bidual.problem import Problem
from bidual.solvers import SOLVERS
from oracles.cvxpy_oracle import cvxpy_optimum
from oracles.problems import SHAPES, gated_problem

FITTING = [(s, loss, g) for s in sorted(SOLVERS) for loss in LOSSES for g in GAUGES if s != "interior_point"]
SLOW_TAIL = {"fista": 1e-5, "primal_dual": 1e-3, "burer_monteiro": 1e-4}  # first-order methods: looser targets


@cache
def judged(loss: str, gauge: str, shape: str, c: int, intercept: bool) -> tuple[Problem, float]:
    problem = gated_problem(SHAPES[shape], LOSSES[loss](), c, gauge, intercept=intercept, weighted=True)
    return problem, cvxpy_optimum(problem)


@pytest.mark.parametrize(("solver", "loss", "gauge"), FITTING)
@pytest.mark.parametrize("intercept", [False, True])
def test_ends_certified_at_the_optimum(solver, loss, gauge, intercept):
    problem, optimum = judged(loss, gauge, "tall", 2, intercept)
    engine = SOLVERS[solver](dtype="float64") if solver == "kernel_admm" else SOLVERS[solver]()
    if engine.refusal(problem):
        with pytest.raises(ValueError, match="Use solver="):
            solve(problem, engine)
        return
    tol = SLOW_TAIL.get(solver, 1e-7)
    solution = solve(problem, engine, tol=tol, max_steps=20_000)
    assert solution.certificate.relative_gap <= tol
    assert solution.certificate.primal == pytest.approx(optimum, rel=2 * tol + 1e-7)
    assert solution.certificate.dual <= optimum * (1 + 1e-8)
    assert solution.certificate.recheck(problem)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize(("c", "gauge"), [(1, "nuclear"), (3, "nuclear"), (3, "per_output"), (3, "frobenius")])
def test_auto_takes_every_shape(loss, shape, c, gauge):
    if loss == "softmax" and c == 1:
        return
    problem, optimum = judged(loss, gauge, shape, c, intercept=shape != "one sample")
    solution = solve_auto(problem, tol=1e-6)
    assert solution.certificate.relative_gap <= 1e-6
    assert solution.certificate.primal == pytest.approx(optimum, rel=2e-6, abs=1e-9)
