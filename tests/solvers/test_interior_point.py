"""InteriorPoint ends certified, at the optimum that cvxpy finds, for every loss, gauge and degenerate shape."""

import pytest
import torch
from torch import Tensor

from bidual.datafit import Datafit
from bidual.driver import Status, solve
from bidual.gauges import GAUGES, Nuclear
from bidual.losses import LOSSES, Huber, Loss, MarginLoss, Softmax, Squared
from bidual.operators import GatedOperator, LinearOperator
from bidual.patterns import activations, sample_gates
from bidual.problem import Problem
from bidual.solvers.interior_point import InteriorPoint
from oracles.cvxpy_oracle import cvxpy_optimum

CASES = [(loss, c) for loss in LOSSES for c in (1, 3) if not (loss == "softmax" and c == 1)]


def random_targets(loss: Loss, n: int, c: int, generator: torch.Generator) -> Tensor:
    scores = torch.randn(n, c, generator=generator, dtype=torch.float64)
    if isinstance(loss, Softmax):
        return torch.nn.functional.one_hot(scores.argmax(1), c).double()
    if isinstance(loss, MarginLoss):
        return torch.where(scores >= 0, 1.0, -1.0).double()
    return 2 * scores


def gated_problem(
    X: Tensor, loss: Loss, c: int, gauge: str = "nuclear", *, intercept: bool = False, weighted: bool = False
) -> Problem:
    """A gated problem on X with random gates and targets, at a tenth of beta_max."""
    generator = torch.Generator().manual_seed(1)
    operator = GatedOperator(X, activations(X, sample_gates(X, 5, generator)), c)
    targets = random_targets(loss, len(X), c, generator)
    weight = 0.5 + torch.rand(len(X), generator=generator, dtype=torch.float64) if weighted else None
    problem = Problem(operator, Datafit(loss, targets, weight, intercept), GAUGES[gauge](), 1.0)
    return problem.with_beta(0.1 * problem.beta_max or 0.1)


def normal(n: int, d: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def repeated_rows() -> Tensor:
    return normal(4, 3).repeat(3, 1)


def zero_column() -> Tensor:
    X = normal(12, 3)
    X[:, 1] = 0
    return X


def assert_solved(problem: Problem) -> None:
    solution = solve(problem, InteriorPoint(), tol=1e-6)
    assert solution.status is Status.CERTIFIED
    assert solution.certificate.recheck(problem)
    assert solution.certificate.primal == pytest.approx(cvxpy_optimum(problem), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("intercept", [False, True], ids=["no_intercept", "intercept"])
@pytest.mark.parametrize("gauge", GAUGES)
@pytest.mark.parametrize(("loss", "c"), CASES)
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
    solution = solve(scaled.with_beta(1e-3 * scaled.beta_max), InteriorPoint(), tol=1e-6)
    assert solution.status is Status.CERTIFIED


@pytest.mark.parametrize("loss", LOSSES)
def test_small_beta(loss: str) -> None:
    problem = gated_problem(normal(30, 3), LOSSES[loss](), 3, intercept=True)
    solution = solve(problem.with_beta(1e-5 * problem.beta_max), InteriorPoint(), tol=1e-6)
    assert solution.status is Status.CERTIFIED


def test_an_operator_whose_outputs_may_mix_goes_through_dense() -> None:
    class Dense(LinearOperator):
        kernel = property()  # type: ignore[assignment]  # hides HasKernel

    data = Datafit(Squared(), normal(8, 2))
    mixed, plain = (Problem(kind(normal(8, 3), 2), data, Nuclear(), 0.5) for kind in (Dense, LinearOperator))
    values = [solve(problem, InteriorPoint(), tol=1e-8).certificate.primal for problem in (mixed, plain)]
    assert values[0] == pytest.approx(values[1], rel=1e-8)


def test_refuses_what_it_cannot_store() -> None:
    problem = gated_problem(normal(12, 3), Squared(), 3)
    with pytest.raises(ValueError, match=r"interior_point would store about .* numbers"):
        solve(problem, InteriorPoint(max_entries=100))
