"""Small factored problems with independent optima."""

from functools import cache

import torch

from bidual.gauges import GAUGES, Factors, Nuclear
from bidual.io.datasets import make_spiral
from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LinearOperator
from bidual.patterns import activations, sample_gates
from bidual.problems.problem import Problem
from helpers.draws import normal
from oracles.cvxpy_oracle import cvxpy_optimum
from oracles.problems import gated_problem

NORM_PAIRS = sorted(GAUGES)


def random_factors(problem: Problem, m: int, seed: int = 0, scale: float = 1.0) -> Factors:
    p, a, b = problem.operator.block_shape
    return Factors(scale * normal(p, a, m, seed=seed), scale * normal(p, b, m, seed=1000 + seed))


def gated(d: int = 3, c: int = 2, n: int = 12, gates: int = 5, beta: float = 0.3, seed: int = 0) -> Problem:
    X, Y = normal(n, d, seed=seed), normal(n, c, seed=seed + 1)
    patterns = activations(X, sample_gates(X, gates, torch.Generator().manual_seed(seed)))
    return Problem(GatedOperator(X, patterns, c), Datafit(Squared(), Y), Nuclear(), beta)


def linear(d: int = 3, c: int = 2, n: int = 12, beta: float = 0.3, seed: int = 0) -> Problem:
    return Problem(
        LinearOperator(normal(n, d, seed=seed), c), Datafit(Squared(), normal(n, c, seed=seed + 1)), Nuclear(), beta
    )


def spiral(n: int, beta: float) -> Problem:
    """BM section 4.1: three arms, 100 sampled gates."""
    X, labels = make_spiral(n)
    X, Y = torch.from_numpy(X), torch.nn.functional.one_hot(torch.from_numpy(labels), 3).double()
    patterns = activations(X, sample_gates(X, 100, torch.Generator().manual_seed(0)))
    return Problem(GatedOperator(X, patterns, 3), Datafit(Squared(), Y), Nuclear(), beta)


def unjudged(loss: str, gauge: str) -> Problem:
    return gated_problem(normal(12, 3), LOSSES[loss](), 2, gauge)


@cache
def judged(loss: str = "squared", gauge: str = "nuclear", intercept: bool = False) -> tuple[Problem, float]:
    """A gated problem with two outputs and weighted samples, and its optimum by cvxpy."""
    problem = gated_problem(normal(12, 3), LOSSES[loss](), 2, gauge, intercept=intercept, weighted=True)
    return problem, cvxpy_optimum(problem)
