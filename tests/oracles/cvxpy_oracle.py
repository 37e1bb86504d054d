"""An independent judge: the same problem, modelled in cvxpy on the dense operator."""

import cvxpy as cp
import numpy as np
from scipy.special import xlogy

from bidual.problems.problem import Problem


def cvxpy_optimum(problem: Problem) -> float:
    """min_Z F(A Z) + beta Omega(Z), solved by Clarabel through cvxpy."""
    return cvxpy_point(problem)[0]


def cvxpy_point(problem: Problem) -> tuple[float, np.ndarray]:
    """The optimum and the lifted variable that Clarabel found through cvxpy."""
    data, (n, c), (p, a, b) = problem.datafit, problem.operator.output_shape, problem.operator.block_shape
    Z = [cp.Variable((a, b)) for _ in range(p)]
    stacked = cp.hstack([cp.reshape(block, (a * b,), order="C") for block in Z])
    predictions = cp.reshape(problem.operator.dense().numpy() @ stacked, (n, c), order="C")
    if data.intercept:
        predictions = predictions + np.ones((n, 1)) @ cp.Variable((1, c))
    losses = _losses(data.loss, predictions, data.targets.numpy())
    cost = cp.sum(cp.multiply(data.weights.numpy()[:, 0], losses))
    model = cp.Problem(cp.Minimize(cost + problem.beta * sum(_price(problem.gauge.name, block) for block in Z)))
    tolerances = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    optimum = float(model.solve(solver=cp.CLARABEL, use_quad_obj=False, **tolerances))
    if any(block.value is None for block in Z):
        raise ValueError(f"Clarabel found no point: {model.status}.")
    return optimum, np.stack([block.value for block in Z])


def _losses(loss: object, predictions: cp.Expression, Y: np.ndarray) -> cp.Expression:
    """The loss of every sample."""
    margins, residuals = cp.multiply(Y, predictions), predictions - Y
    match loss.name:  # type: ignore[attr-defined]
        case "squared":
            entries = 0.5 * cp.square(residuals)
        case "huber":
            entries = 0.5 * cp.huber(residuals, loss.delta)  # type: ignore[attr-defined]
        case "absolute":
            entries = cp.abs(residuals)
        case "quantile":
            q = loss.quantile  # type: ignore[attr-defined]
            entries = cp.maximum(-q * residuals, (1 - q) * residuals)
        case "poisson":
            entries = cp.exp(predictions) - margins + (xlogy(Y, Y) - Y)
        case "hinge":
            entries = cp.pos(1 - margins)
        case "squared_hinge":
            entries = 0.5 * cp.square(cp.pos(1 - margins))
        case "logistic":
            entries = cp.logistic(-margins)
        case "softmax":
            return cp.log_sum_exp(predictions, axis=1) - cp.sum(margins, axis=1)
        case other:
            raise ValueError(f"the oracle has no model of the loss {other!r}.")
    return cp.sum(entries, axis=1)


def _price(gauge: str, block: cp.Variable) -> cp.Expression:
    """The price of one block."""
    match gauge:
        case "nuclear":
            return cp.normNuc(block)
        case "frobenius":
            return cp.norm(block, "fro")
        case "per_output":
            return cp.sum(cp.norm(block, 2, axis=0))
        case "per_input":
            return cp.sum(cp.norm(block, 2, axis=1))
        case "entries":
            return cp.sum(cp.abs(block))
        case "largest":
            return cp.sum(cp.max(cp.abs(block), axis=1))
        case "largest_per_output":
            return cp.sum(cp.max(cp.abs(block), axis=0))
        case other:
            raise ValueError(f"the oracle has no model of the gauge {other!r}.")
