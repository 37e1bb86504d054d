"""CP Theorem 1: an optimal network needs at most n c + 1 neurons; in truth at most n c, or (n - 1) c with an intercept.

While the predictions of the neurons, scaled to price one, are linearly dependent, one neuron can go without raising the
price, so at most as many are left as the span of the predictions has dimensions. The bound is about every network, not
only optimal ones.
"""

import pytest
import torch

from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.caratheodory import price, prune
from bidual.patterns import enumerate as enumerate_patterns
from bidual.problems.problem import ReluProblem
from bidual.solvers.conic.cone_program import solve_cone_program
from helpers.draws import normal
from oracles.problems import random_targets


def objective(problem: ReluProblem, U: torch.Tensor, W: torch.Tensor) -> float:
    outputs = (problem.X @ U.T).clamp(min=0) @ W
    return problem.datafit.value(outputs) + problem.beta * float(price(U, W).sum())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "c"), [(2, 1), (4, 2), (7, 3)])
def test_no_network_needs_more_neurons(n: int, c: int, intercept: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    X, Y, U, W = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((n, 3), (n, c), (90, 3), (90, c))
    )
    problem = ReluProblem(X, Datafit(Squared(), Y, intercept=intercept), 0.1)
    pruned = prune(X, U, W, intercept=intercept)
    assert len(pruned[0]) <= (n - intercept) * c < n * c + 1
    assert objective(problem, *pruned) <= objective(problem, U, W) * (1 + 1e-12)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_an_optimal_network_stays_optimal(loss: str) -> None:
    X = normal(6, 3)
    targets = random_targets(LOSSES[loss](), 6, 1, torch.Generator().manual_seed(0))
    problem, patterns = ReluProblem(X, Datafit(LOSSES[loss](), targets), 0.02), enumerate_patterns(X).active
    optimum = solve_cone_program(problem, patterns, complete=True)
    spread = 1e-3 * normal(40, 3) + optimum.neurons[0]  # forty more neurons, in pairs that cancel
    U = torch.cat([optimum.neurons, spread, spread])
    W = torch.cat([optimum.weights, torch.ones(40, 1).double(), -torch.ones(40, 1).double()])
    pruned = prune(X, U, W)
    assert len(pruned[0]) <= 6
    assert objective(problem, *pruned) == pytest.approx(optimum.objective, rel=1e-7)


def test_n_neurons_can_be_necessary_for_given_directions() -> None:
    """With X = I and neurons e_i no smaller subset makes a positive target: n c cannot be improved by pruning alone."""
    eye = torch.eye(5, dtype=torch.float64)
    assert len(prune(eye, eye, torch.ones(5, 1).double())[0]) == 5
