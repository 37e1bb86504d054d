"""Independent judges of the copositive programs: CP (17) with dense matrices, CP (19) and (20) modelled in cvxpy."""

from collections.abc import Iterable

import cvxpy as cp
import numpy as np
from torch import Tensor

from bidual.problems.problem import ReluProblem
from oracles.pattern_oracle import all_patterns

_TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}


def dense_objective(problem: ReluProblem, neurons: Tensor) -> float:
    """The objective of (17) at U_p = sum u u^T / (2 beta) over the neurons with pattern p, with n x n matrices.

    Weights w divide the identity; an intercept b makes it the least over b of the objective at Y - 1 b^T.
    """
    X, Y, beta = problem.X.numpy(), problem.datafit.targets.numpy(), problem.beta
    S, price = np.diag(1 / problem.datafit.weights.numpy()[:, 0]), 0.0
    for D, U in _lifted(X, neurons.numpy(), beta).items():
        A = np.diag(np.array(D, dtype=float)) @ X
        S, price = S + 2 * A @ U @ A.T, price + beta**2 * np.trace(U)
    inverse, one = np.linalg.inv(S), np.ones((len(Y), 1))
    if problem.datafit.intercept:
        Y = Y - one @ (one.T @ inverse @ Y) / (one.T @ inverse @ one)
    return float(0.5 * np.trace(Y.T @ inverse @ Y) + price)


def ridge_objective(problem: ReluProblem, neurons: Tensor) -> float:
    """The training objective with weight decay on both layers, least over output weights and intercept."""
    data, beta, U = problem.datafit, problem.beta, neurons.numpy()
    H, Y, w = np.maximum(problem.X.numpy() @ U.T, 0), data.targets.numpy(), data.weights.numpy()
    features = np.column_stack([H, np.ones(len(H))]) if data.intercept else H
    decay = beta * np.diag(np.arange(features.shape[1]) < len(U)).astype(float)
    W = np.linalg.solve(features.T @ (w * features) + decay, features.T @ (w * Y))
    fit = 0.5 * np.sum(w * (features @ W - Y) ** 2)
    return float(fit + 0.5 * beta * (np.sum(U**2) + np.sum(W[: len(U)] ** 2)))


def pattern_value(problem: ReluProblem) -> float:
    """The optimum of (19): every pattern, every pair of rows."""
    X = problem.X.numpy()
    return _relaxed_value(problem, [np.array(pattern) for pattern in sorted(all_patterns(X))], one_sided=False)


def spike_free_value(problem: ReluProblem) -> float:
    """The optimum of (20): the one cone X u >= 0."""
    return _relaxed_value(problem, [np.ones(len(problem.X), dtype=bool)], one_sided=True)


def _relaxed_value(problem: ReluProblem, patterns: Iterable[np.ndarray], *, one_sided: bool) -> float:
    """min 1/2 tr Y^T (I + 2 sum_p D X U_p X^T D)^-1 Y + beta^2 sum_p tr U_p, with U_p and X-sided products >= 0."""
    X, root = problem.X.numpy(), np.sqrt(problem.datafit.weights.numpy())
    root_free = _complement(root) if problem.datafit.intercept else np.eye(len(X))
    S, price, limits = np.eye(root_free.shape[1]), 0, []
    for active in patterns:
        U = cp.Variable((X.shape[1], X.shape[1]), PSD=True)
        A = root_free.T @ (root * active[:, None] * X)
        sided = X if one_sided else np.where(active, 1.0, -1.0)[:, None] * X
        S, price = S + 2 * A @ U @ A.T, price + cp.trace(U)
        limits.append(sided @ U @ sided.T >= 0)
    targets = root_free.T @ (root * problem.datafit.targets.numpy())
    cost = 0.5 * cp.matrix_frac(targets, 0.5 * (S + S.T)) + problem.beta**2 * price
    return float(cp.Problem(cp.Minimize(cost), limits).solve(solver=cp.CLARABEL, **_TIGHT))


def _complement(column: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what is orthogonal to a column."""
    return np.linalg.svd(column, full_matrices=True)[0][:, 1:]


def _lifted(X: np.ndarray, neurons: np.ndarray, beta: float) -> dict[tuple[bool, ...], np.ndarray]:
    """U_p of the patterns that have a neuron."""
    found: dict[tuple[bool, ...], np.ndarray] = {}
    for u in neurons:
        pattern = tuple((X @ u > 0).tolist())
        found[pattern] = found.get(pattern, np.zeros((len(u), len(u)))) + np.outer(u, u) / (2 * beta)
    return found
