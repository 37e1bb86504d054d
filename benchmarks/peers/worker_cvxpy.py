"""Clarabel and SCS through cvxpy: the problem as a user would write it. Timed is all that ``Problem.solve`` does."""

import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from harness import Answer, Task, main, network
from problems import design


def prepare(task: Task, tolerance: float) -> Callable[[], Answer]:
    """The tolerance is that of all of the solver's residuals and its gap."""
    program, read = _relu(task) if task.spec.network == "relu" else _gated(task)
    options = _options(task.method, tolerance)

    def solve() -> Answer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the judge says how far it came
            program.solve(**options)
        if program.variables()[0].value is None:
            raise RuntimeError(f"{task.method} ended {program.status}")
        return read()

    return solve


def _options(solver: str, tolerance: float) -> dict[str, Any]:
    if solver == "scs":
        return {"solver": cp.SCS, "eps_abs": tolerance, "eps_rel": tolerance, "max_iters": 10_000_000}
    names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
    return {"solver": cp.CLARABEL, "max_threads": 1, **dict.fromkeys(names, tolerance)}


def _gated(task: Task) -> tuple[cp.Problem, Callable[[], Answer]]:
    X, Y, mask, _ = task.arrays
    (p, d), c, nuclear = (mask.shape[1], X.shape[1]), Y.shape[1], task.spec.penalty == "nuclear"
    Z = cp.Variable((p * d, c))
    blocks = [Z[d * i : d * (i + 1)] for i in range(p)]
    price = cp.sum([cp.normNuc(block) for block in blocks]) if nuclear else _group_price(Z, (p, d, c))
    loss = 0.5 * cp.sum_squares(design(task.arrays) @ Z - Y)
    return cp.Problem(cp.Minimize(loss + task.beta * price)), lambda: {"Z": Z.value.reshape(1, p, d, c)}


def _group_price(Z: cp.Variable, shape: tuple[int, int, int]) -> cp.Expression:
    """One Euclidean norm per gate and output."""
    p, d, c = shape
    columns = [cp.reshape(Z[:, k], (p, d), order="C") for k in range(c)]
    return cp.sum([cp.sum(cp.norm(block, 2, axis=1)) for block in columns])


def _relu(task: Task) -> tuple[cp.Problem, Callable[[], Answer]]:
    """CP eq. (9), with the inequalities of all cones at once."""
    X, Y, mask, _ = task.arrays
    shape = (mask.shape[1], X.shape[1])
    W, V = cp.Variable(shape), cp.Variable(shape)
    outputs = cp.sum(cp.multiply(mask, X @ (W - V).T), axis=1)
    price = cp.sum(cp.norm(W, 2, axis=1)) + cp.sum(cp.norm(V, 2, axis=1))
    sides = 2.0 * mask - 1
    cones = [cp.multiply(sides, X @ U.T) >= 0 for U in (W, V)]
    loss = 0.5 * cp.sum_squares(outputs - Y[:, 0])
    program = cp.Problem(cp.Minimize(loss + task.beta * price), cones)
    return program, lambda: network(np.asarray(W.value), np.asarray(V.value))


if __name__ == "__main__":
    main(prepare)
