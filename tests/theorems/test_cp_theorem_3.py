"""CP Theorem 3: training is the copositive program (17), whose points are networks without their output weights."""

import pytest
import torch
from torch import Tensor

from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.copositive import CopositiveProgram, relax
from bidual.training.relu.column_generation import ColumnGeneration
from oracles.copositive_oracle import dense_objective, pattern_value, ridge_objective
from oracles.relu_problems import relu_problem

SIZES = pytest.mark.parametrize(("n", "d", "c", "m"), [(1, 1, 1, 1), (6, 2, 1, 3), (8, 3, 2, 12), (5, 7, 3, 4)])
WEIGHTED = pytest.mark.parametrize("weighted", [True, False])
INTERCEPT = pytest.mark.parametrize("intercept", [True, False])


def neurons_for(problem: ReluProblem, m: int, size: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(m)
    return size * torch.randn(m, problem.X.shape[1], generator=generator, dtype=torch.float64)


@SIZES
@WEIGHTED
@INTERCEPT
def test_psi_is_17_and_the_training_objective_without_output_weights(
    n: int, d: int, c: int, m: int, weighted: bool, intercept: bool
) -> None:
    problem = relu_problem("squared", n, d, c, seed=n, weighted=weighted, intercept=intercept)
    for size in (1e-3, 1.0, 30.0):
        neurons = neurons_for(problem, m, size)
        value = CopositiveProgram(problem).value(neurons)
        assert value == pytest.approx(dense_objective(problem, neurons), rel=1e-9)
        assert value == pytest.approx(ridge_objective(problem, neurons), rel=1e-9)


@WEIGHTED
@INTERCEPT
def test_the_output_weights_attain_psi(weighted: bool, intercept: bool) -> None:
    problem = relu_problem("squared", 8, 3, 2, seed=1, weighted=weighted, intercept=intercept)
    program, neurons = CopositiveProgram(problem), neurons_for(problem, 5)
    _, B, R, _ = program._solved(neurons)
    W = B.T @ R / problem.beta
    P = (problem.X @ neurons.T).clamp(min=0) @ W
    decay = 0.5 * problem.beta * float(neurons.square().sum() + W.square().sum())
    assert problem.datafit.value(P) + decay == pytest.approx(program.value(neurons), rel=1e-10)
    torch.testing.assert_close(-program._map_back(R), problem.datafit.grad(P))


@WEIGHTED
@INTERCEPT
def test_its_slope_is_that_of_finite_differences(weighted: bool, intercept: bool) -> None:
    problem = relu_problem("squared", 7, 3, 2, seed=2, weighted=weighted, intercept=intercept)
    program, neurons = CopositiveProgram(problem), neurons_for(problem, 4)
    value, slope = program.value_and_slope(neurons)
    assert value == pytest.approx(program.value(neurons), rel=1e-12)
    step = 1e-6
    for k in range(neurons.numel()):
        move = (step * (torch.arange(neurons.numel()) == k)).reshape(neurons.shape)
        difference = (program.value(neurons + move) - program.value(neurons - move)) / (2 * step)
        assert float(slope.flatten()[k]) == pytest.approx(difference, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("n", "d", "c"), [(12, 2, 3), (8, 3, 2), (4, 6, 1)])
@pytest.mark.parametrize("rich", [True, False], ids=["intercept-weights", "plain"])
def test_the_lifted_network_is_worth_the_optimum(n: int, d: int, c: int, rich: bool) -> None:
    """(17) at the optimal network's neurons, and never below it at others."""
    problem = relu_problem("squared", n, d, c, seed=3, intercept=rich, weighted=rich)
    done = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-7))
    certificate = done.certificate
    balanced = done.neurons * torch.linalg.vector_norm(done.Z[:, 0], dim=1, keepdim=True).sqrt()
    assert dense_objective(problem, balanced) == pytest.approx(certificate.primal, rel=1e-6)
    assert CopositiveProgram(problem).value(balanced) == pytest.approx(certificate.primal, rel=1e-6)
    for scale in (0.5, 0.9, 1.1, 2.0):
        assert dense_objective(problem, scale * balanced) >= certificate.dual


@pytest.mark.parametrize(("n", "c"), [(6, 2), (7, 1), (8, 3)])
@pytest.mark.parametrize("rich", [True, False], ids=["intercept-weights", "plain"])
def test_in_the_plane_17_is_19_is_training(n: int, c: int, rich: bool) -> None:
    """Cones of the plane have two facets, and doubly non-negative matrices of order two are completely positive."""
    problem = relu_problem("squared", n, 2, c, seed=n, intercept=rich, weighted=rich)
    optimum = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-8)).certificate.primal
    assert pattern_value(problem) == pytest.approx(optimum, rel=1e-5)
    assert relax(problem, form="patterns").dual == pytest.approx(optimum, rel=1e-5)
