"""An independent judge of BM Theorem B.1: ReLU training under any pair of norms, in cvxpy."""

import math

import cvxpy as cp
import numpy as np
from torch import Tensor

from bidual.problems.problem import ReluProblem
from oracles.cvxpy_oracle import _losses

ORDER = {"l1": 1, "l2": 2, "linf": "inf"}
TOLERANCES = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}


def corners(output: str, c: int) -> np.ndarray:
    """The corners of the unit ball of the output norm: plus and minus e_k, or all signs."""
    if output == "l1" or c == 1:
        return np.concatenate([np.eye(c), -np.eye(c)])
    return np.array(np.meshgrid(*[[1.0, -1.0]] * c)).reshape(c, -1).T


def norm_optimum(problem: ReluProblem, patterns: Tensor) -> float:
    r"""min F(sum_p sum_g D_p X w_pg g^T) + beta sum_pg |w_pg|_C, (2 D_p - I) X w_pg >= 0, g the corners of |g|_R <= 1.

    It is (107) with the gauge (116) written out, for one output or a norm R with finitely many corners. With one
    output the corners are 1 and -1, and it is CP (9) with |w|_C.
    """
    X, D, c = problem.X.numpy(), patterns.double().numpy(), problem.datafit.targets.shape[1]
    outputs, price, inside = 0, 0, []
    for g in corners(problem.output_norm.name, c):
        w = cp.Variable((len(D), X.shape[1]))
        outputs = outputs + cp.sum(cp.multiply(D.T, X @ w.T), axis=1, keepdims=True) @ g[None]
        price = price + cp.sum(cp.norm(w, ORDER[problem.hidden_norm.name], axis=1))
        inside.append(cp.multiply(2 * D - 1, w @ X.T) >= 0)
    return _solved(problem, outputs, price, inside)


def dictionary_optimum(problem: ReluProblem, directions: np.ndarray) -> float:
    """min F(sum_j (X u_j)_+ z_j^T) + beta sum_j |z_j|_R over given directions, scaled to |u|_C = 1."""
    hidden, output = ORDER[problem.hidden_norm.name], ORDER[problem.output_norm.name]
    order = math.inf if hidden == "inf" else hidden
    units = directions / np.linalg.norm(directions, order, axis=1, keepdims=True)
    Z = cp.Variable((len(units), problem.datafit.targets.shape[1]))
    return _solved(problem, np.maximum(problem.X.numpy() @ units.T, 0) @ Z, cp.sum(cp.norm(Z, output, axis=1)), [])


def planar_directions(X: np.ndarray, count: int) -> np.ndarray:
    """Directions all around, and those at which a row of X, a coordinate or a sum or difference of them vanishes."""
    rows = np.concatenate([X, np.eye(2), [[1, 1], [1, -1]]])
    turned = np.column_stack([-rows[:, 1], rows[:, 0]])
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
    turned = turned[turned.any(1)]
    return np.concatenate([turned, -turned, np.column_stack([np.cos(angle), np.sin(angle)])])


def _solved(problem: ReluProblem, outputs: cp.Expression, price: cp.Expression, constraints: list) -> float:
    data = problem.datafit
    cost = cp.sum(cp.multiply(data.weights.numpy()[:, 0], _losses(data.loss, outputs, data.targets.numpy())))
    return float(cp.Problem(cp.Minimize(cost + problem.beta * price), constraints).solve(cp.CLARABEL, **TOLERANCES))
