"""An independent judge of CP (9): the program as printed, all inequalities, in cvxpy."""

import cvxpy as cp
import numpy as np
from torch import Tensor

from bidual.problems.problem import ReluProblem
from oracles.cvxpy_oracle import _losses


def cone_optimum(problem: ReluProblem, patterns: Tensor) -> float:
    """min F(sum_p D_p X (w_p - v_p)) + beta sum_p (|w_p| + |v_p|), (2 D_p - I) X w_p >= 0, (2 D_p - I) X v_p >= 0."""
    X, data, D = problem.X.numpy(), problem.datafit, patterns.double().numpy()
    w, v = cp.Variable((len(D), X.shape[1])), cp.Variable((len(D), X.shape[1]))
    outputs = cp.sum(cp.multiply(D.T, X @ (w - v).T), axis=1, keepdims=True)
    if data.intercept:
        outputs = outputs + np.ones((len(X), 1)) @ cp.Variable((1, 1))
    cost = cp.sum(cp.multiply(data.weights.numpy()[:, 0], _losses(data.loss, outputs, data.targets.numpy())))
    price = cp.sum(cp.norm(w, 2, axis=1)) + cp.sum(cp.norm(v, 2, axis=1))
    inside = [cp.multiply(2 * D - 1, u @ X.T) >= 0 for u in (w, v)]
    tolerances = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    return float(cp.Problem(cp.Minimize(cost + problem.beta * price), inside).solve(solver=cp.CLARABEL, **tolerances))
