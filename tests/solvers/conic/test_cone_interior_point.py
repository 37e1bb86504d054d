"""The package's own interior point for CP (9): cvxpy's optimum, a gap that is proved, and Clarabel where it fails."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor

from bidual.losses import Huber, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.cone_factors import gated_program
from bidual.patterns import enumerate as enumerate_patterns
from bidual.problems.problem import ReluProblem
from bidual.solvers.conic import cone_program
from bidual.solvers.conic.cone_interior_point import SquaredCones
from bidual.solvers.conic.cone_program import ConeSolution, solve_cone_program
from helpers.draws import normal
from oracles.cone_oracle import cone_optimum

TOL = 1e-6


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clarabel may not help."""

    def refuse(*args: object) -> None:
        raise AssertionError("Clarabel was called")

    monkeypatch.setattr(cone_program, "_by_clarabel", refuse)


def sampled(
    n: int, d: int, count: int, seed: int, share: float, *, intercept: bool = False
) -> tuple[ReluProblem, Tensor]:
    """Some patterns of random samples, at a share of the beta from which on gated networks are zero."""
    generator = torch.Generator().manual_seed(seed)
    X, y, G = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((n, d), (n, 1), (d, count)))
    weight = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64) if intercept else None
    patterns = torch.unique(X @ G > 0, dim=1).T
    problem = ReluProblem(X, Datafit(Squared(), y, weight, intercept), 1.0)
    return problem.with_beta(share * gated_program(problem, patterns).beta_max), patterns


def dual_peak(problem: ReluProblem, patterns: Tensor, V: Tensor) -> float:
    """max |V^T D_p X u| over unit u in the cones: the length of a projection, by non-negative least squares."""
    X, v = problem.X.numpy(), V[:, 0].numpy()
    signed = [(D, sign) for D in patterns.numpy() for sign in (1, -1)]
    return max(nnls(X.T * (2.0 * D - 1), -sign * X.T @ (D * v))[1] for D, sign in signed)


def assert_proved(problem: ReluProblem, patterns: Tensor, solution: ConeSolution) -> None:
    """The gap is below the tolerance, its dual point is feasible, and cvxpy's optimum is in between."""
    assert solution.gap <= TOL
    assert dual_peak(problem, patterns, solution.dual) <= problem.beta * (1 + 1e-9)
    dual, optimum = -problem.datafit.conjugate(solution.dual), cone_optimum(problem, patterns)
    assert abs(solution.objective - dual) == pytest.approx(solution.gap * solution.objective, rel=1e-6, abs=1e-14)
    assert dual <= optimum * (1 + 1e-8)
    assert solution.objective == pytest.approx(optimum, rel=TOL)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("share", [0.9, 0.3, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_cvxpy(seed: int, share: float) -> None:
    problem, patterns = sampled(25, 4, 8, seed, share)
    assert_proved(problem, patterns, solve_cone_program(problem, patterns, tol=TOL))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("seed", range(3))
def test_weights_and_intercept(seed: int) -> None:
    problem, patterns = sampled(20, 3, 6, seed, 0.1, intercept=True)
    assert_proved(problem, patterns, solve_cone_program(problem, patterns, tol=TOL))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("count", [1, 2])
def test_more_samples_than_weights(count: int) -> None:
    problem, patterns = sampled(40, 3, count, 0, 0.05)
    assert_proved(problem, patterns, solve_cone_program(problem, patterns, tol=TOL))


X = normal(8, 3)
DEGENERATE = {
    "duplicated": torch.cat([X, X[:3]]),
    "collinear": torch.cat([X, 2 * X[:2], -X[2:4]]),
    "zero": torch.cat([X, torch.zeros(2, 3, dtype=torch.float64)]),
    "rank": torch.cat([X[:, :2], X[:, :1] + X[:, 1:2]], 1),
    "line": X[:, :1],
}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("complete", [False, True], ids=["all_rows", "facets"])
@pytest.mark.parametrize("X", DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_rows(X: Tensor, complete: bool) -> None:
    problem, patterns = ReluProblem(X, Datafit(Squared(), normal(len(X), 1)), 0.3), enumerate_patterns(X).active
    assert_proved(problem, patterns, solve_cone_program(problem, patterns, complete=complete, tol=TOL))


def test_a_cone_without_interior() -> None:
    """Equal samples on different sides of a pattern leave a hyperplane."""
    X = torch.cat([normal(8, 3), normal(8, 3)[:1]])
    patterns = enumerate_patterns(X).active.clone()
    patterns[:, -1] ^= True
    problem = ReluProblem(X, Datafit(Squared(), normal(9, 1)), 0.3)
    assert_proved(problem, patterns, solve_cone_program(problem, patterns, tol=TOL))


@pytest.mark.usefixtures("alone")
def test_from_beta_max_on_there_are_no_neurons() -> None:
    problem, patterns = sampled(15, 3, 6, 0, 1.1)
    assert len(solve_cone_program(problem, patterns, tol=TOL).neurons) == 0


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("targets", [torch.zeros(4, 1, dtype=torch.float64), normal(4, 1)], ids=["targets", "samples"])
def test_zeros(targets: Tensor) -> None:
    X = normal(4, 2) if not targets.any() else torch.zeros(4, 2, dtype=torch.float64)
    problem = ReluProblem(X, Datafit(Squared(), targets), 1.0)
    solution = solve_cone_program(problem, torch.ones(1, 4, dtype=torch.bool), tol=TOL)
    assert solution.objective == pytest.approx(problem.datafit.scale, abs=1e-12)


@pytest.mark.usefixtures("alone")
def test_cones_without_a_neuron_leave_no_dust() -> None:
    problem, patterns = sampled(30, 4, 40, 1, 0.1)
    assert 0 < len(solve_cone_program(problem, patterns, tol=1e-5).neurons) < len(patterns)


@pytest.mark.usefixtures("alone")
def test_a_time_limit_still_returns_a_network() -> None:
    problem, patterns = sampled(25, 4, 8, 0, 0.1)
    solution = solve_cone_program(problem, patterns, tol=TOL, time_limit=0.0)
    assert solution.objective <= problem.datafit.scale * (1 + 1e-9)


def test_clarabel_goes_on_where_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, patterns = sampled(25, 4, 8, 0, 0.1)
    monkeypatch.setattr(SquaredCones, "iterates", lambda self: iter(()))
    assert_proved(problem, patterns, solve_cone_program(problem, patterns, tol=TOL))


def test_other_losses_take_a_tolerance() -> None:
    problem, patterns = sampled(20, 3, 6, 0, 0.1)
    problem = ReluProblem(problem.X, Datafit(Huber(), problem.datafit.targets), problem.beta)
    assert_proved(problem, patterns, solve_cone_program(problem, patterns, tol=TOL))


def test_the_gap_is_that_of_a_feasible_dual_point_at_every_step() -> None:
    problem, patterns = sampled(25, 4, 8, 0, 0.1)
    cones = SquaredCones.of(problem.X.numpy(), problem.datafit, patterns.numpy(), np.ones(25, dtype=bool), problem.beta)
    optimum, points = cone_optimum(problem, patterns), list(cones.iterates())
    for u, multipliers, gap in points:
        V = cones.forward(u) - cones.y
        price = problem.beta * float(np.linalg.norm(u, axis=1).sum())
        lower = (0.5 * float(V @ V) + price) * (1 - gap)
        assert lower <= optimum * (1 + 1e-8)
        assert (multipliers >= 0).all()
    assert points[-1].gap <= 1e-8
