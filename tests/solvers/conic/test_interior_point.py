"""InteriorPoint ends certified, at the optimum that cvxpy finds, for every loss, gauge and degenerate shape."""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import pytest
from torch import Tensor

from bidual.gauges import GAUGES, Nuclear
from bidual.losses import LOSSES, Huber, Loss, Squared
from bidual.losses.datafit import Datafit
from bidual.operators import LinearOperator
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits, Status
from bidual.solvers.conic.interior_point import InteriorPoint
from bidual.solvers.driver import solve
from helpers.draws import normal
from oracles.cvxpy_oracle import cvxpy_optimum
from oracles.problems import CASES, gated_problem, repeated_rows, zero_column


def assert_solved(problem: Problem) -> None:
    solution = solve(problem, InteriorPoint(), Limits(1e-6))
    assert solution.status is Status.CERTIFIED
    assert solution.certificate.recheck(problem)
    assert solution.certificate.primal == pytest.approx(cvxpy_optimum(problem), rel=1e-6, abs=1e-9)


def _drawn() -> Iterator[Any]:
    """Every loss with every gauge once; with other choices of intercept and weights it is left to `make test-slow`."""
    random, kinds = Random(0), list(product((False, True), repeat=2))
    for (loss, c), gauge in product(CASES, GAUGES):
        chosen = random.choice(kinds)
        for intercept, weighted in kinds:
            words = "intercept" if intercept else "no_intercept", "weighted" if weighted else "unweighted"
            marks = [] if (intercept, weighted) == chosen else [pytest.mark.slow]
            name = "-".join((loss, str(c), gauge, *words))
            yield pytest.param(loss, c, gauge, intercept, weighted, id=name, marks=marks)


@pytest.mark.parametrize(("loss", "c", "gauge", "intercept", "weighted"), _drawn())
def test_agrees_with_cvxpy(loss: str, c: int, gauge: str, intercept: bool, weighted: bool) -> None:
    assert_solved(gated_problem(normal(12, 3), LOSSES[loss](), c, gauge, intercept=intercept, weighted=weighted))


@pytest.mark.parametrize("loss", ["squared", "hinge", "softmax"])
@pytest.mark.parametrize(
    "X",
    [normal(1, 3), normal(12, 1), normal(3, 6), repeated_rows(), zero_column()],
    ids=["one_sample", "one_feature", "fewer_samples_than_features", "repeated_rows", "zero_column"],
)
def test_degenerate_shapes(X: Tensor, loss: str) -> None:
    assert_solved(gated_problem(X, LOSSES[loss](), 3))


@pytest.mark.parametrize("loss", [Squared(), Huber(1e3), LOSSES["absolute"]()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_units_of_the_targets_do_not_matter(loss: Loss, unit: float) -> None:
    problem = gated_problem(normal(12, 3), loss, 3)
    data = Datafit(loss, unit * problem.datafit.targets)
    scaled = Problem(problem.operator, data, problem.gauge, 1.0)
    solution = solve(scaled.with_beta(1e-3 * scaled.beta_max), InteriorPoint(), Limits(1e-6))
    assert solution.status is Status.CERTIFIED


@pytest.mark.parametrize("loss", LOSSES)
def test_small_beta(loss: str) -> None:
    problem = gated_problem(normal(30, 3), LOSSES[loss](), 3, intercept=True)
    solution = solve(problem.with_beta(1e-5 * problem.beta_max), InteriorPoint(), Limits(1e-6))
    assert solution.status is Status.CERTIFIED


def test_an_operator_whose_outputs_may_mix_goes_through_dense() -> None:
    class Dense(LinearOperator):
        kernel = property()  # type: ignore[assignment]  # hides HasKernel

    data = Datafit(Squared(), normal(8, 2))
    mixed, plain = (Problem(kind(normal(8, 3), 2), data, Nuclear(), 0.5) for kind in (Dense, LinearOperator))
    values = [solve(problem, InteriorPoint(), Limits(1e-8)).certificate.primal for problem in (mixed, plain)]
    assert values[0] == pytest.approx(values[1], rel=1e-8)


def test_refuses_what_it_cannot_store() -> None:
    problem = gated_problem(normal(12, 3), Squared(), 3)
    with pytest.raises(ValueError, match=r"interior_point would store about .* numbers"):
        solve(problem, InteriorPoint(max_entries=100))


def test_inactive_blocks_are_exactly_zero():
    problem = gated_problem(normal(40, 3), Squared(), 2)
    solution = solve(problem.with_beta(0.5 * problem.beta_max), InteriorPoint(), Limits(1e-8))
    used = solution.Z.flatten(1).any(1)
    assert 0 < int(used.sum()) < len(solution.Z)


def test_a_time_limit_stops_a_long_run():
    solution = solve(gated_problem(normal(200, 8), Squared(), 3), InteriorPoint(), Limits(1e-9, max_time=1e-2))
    assert solution.status is Status.MAX_TIME
