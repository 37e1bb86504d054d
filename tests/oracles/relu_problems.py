"""Random training problems of ReLU networks, and independent optima of them."""

import cvxpy as cp
import numpy as np
import torch
from torch import Tensor

from bidual.losses import LOSSES
from bidual.losses.datafit import Datafit
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from oracles.cvxpy_oracle import _losses
from oracles.problems import random_targets


def relu_problem(
    loss: str, n: int, r: int, c: int, seed: int, *, intercept: bool = False, weighted: bool = False, share: float = 0.1
) -> ReluProblem:
    """Normal samples and random targets, at a share of the smallest beta that gives the zero network."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, r, generator=generator, dtype=torch.float64)
    targets = random_targets(LOSSES[loss](), n, c, generator)
    weight = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64) if weighted else None
    problem = ReluProblem(X, Datafit(LOSSES[loss](), targets, weight, intercept), 1.0)
    return problem.with_beta(share * (beta_max(problem) or 1.0))


def beta_max(problem: ReluProblem) -> float:
    """The smallest beta of the zero network; 0 if that is only rounding."""
    V = problem.datafit.into_domain(problem.datafit.grad(torch.zeros_like(problem.datafit.targets)))
    peak = Faces(problem.X).steepest(V).bracket.lower
    return peak if peak > 1e-12 * float(torch.linalg.vector_norm(problem.X)) else 0.0


def dictionary_optimum(problem: ReluProblem, neurons: Tensor) -> float:
    """The least objective of a network with the given hidden neurons, by cvxpy: an upper bound of the optimum."""
    unit = (neurons / torch.linalg.vector_norm(neurons, dim=1, keepdim=True)).numpy()
    data, A = problem.datafit, np.maximum(problem.X.numpy() @ unit.T, 0)
    Z = cp.Variable((len(unit), data.targets.shape[1]))
    outputs = A @ Z
    if data.intercept:
        outputs = outputs + np.ones((len(A), 1)) @ cp.Variable((1, data.targets.shape[1]))
    cost = cp.sum(cp.multiply(data.weights.numpy()[:, 0], _losses(data.loss, outputs, data.targets.numpy())))
    model = cp.Problem(cp.Minimize(cost + problem.beta * cp.sum(cp.norm(Z, 2, axis=1))))
    tolerances = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    return float(model.solve(solver=cp.CLARABEL, **tolerances))


def circle(X: Tensor, count: int) -> Tensor:
    """Directions of the plane: ``count`` angles, and those at which a sample changes sign."""
    even = torch.arange(count, dtype=torch.float64) * (2 * torch.pi / count)
    turns = torch.atan2(X[:, 1], X[:, 0]) + torch.pi / 2
    angle = torch.cat([even, turns, turns + torch.pi])
    return torch.stack([angle.cos(), angle.sin()], 1)
