"""Clarabel called directly, on the conic form: assembling the matrices is not timed, the solver's set-up and run are.

Nuclear norms are semidefinite cones, |Z|_* = min 1/2 (tr A + tr B) over [[A, Z], [Z^T, B]] >= 0; Euclidean norms are
second-order cones; a ReLU network adds the inequalities of its patterns.
"""

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import clarabel
import numpy as np
from scipy import sparse

from harness import Answer, Task, main, network
from problems import Array, design


class Lifted(NamedTuple):
    """A price as <cost, u> over u in ``cones``, with the lifted variable scale * u[entries] of shape (p, d, c)."""

    cost: Array
    cones: list[Any]
    entries: np.ndarray
    scale: float


def prepare(task: Task, tolerance: float) -> Callable[[], Answer]:
    """The tolerance is that of the gap and of both residuals."""
    relu, arrays = task.spec.network == "relu", task.arrays
    A = design(arrays)
    A = np.hstack([A, -A]) if relu else A
    shape = (A.shape[1] // arrays.X.shape[1], arrays.X.shape[1], arrays.Y.shape[1])
    lifted = (_semidefinite if task.spec.penalty == "nuclear" else _second_order)(*shape)
    data = _program(sparse.csr_array(A), arrays.Y, task.beta, lifted, _halfspaces(task) if relu else None)

    def solve() -> Answer:
        answer = clarabel.DefaultSolver(*data, _settings(tolerance)).solve()
        Z = lifted.scale * np.asarray(answer.x)[lifted.entries]
        return network(*np.split(Z[:, :, 0], 2)) if relu else {"Z": Z[None]}

    return solve


def _settings(tolerance: float) -> Any:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    return settings


def _second_order(p: int, d: int, c: int) -> Lifted:
    """u_g = (t, z) with |z| <= t for every gate and output."""
    places = np.arange(p * c * (1 + d)).reshape(p, c, 1 + d)
    cost = np.tile(np.eye(1 + d)[0], p * c)
    return Lifted(cost, [clarabel.SecondOrderConeT(1 + d)] * (p * c), places[:, :, 1:].transpose(0, 2, 1), 1.0)


def _semidefinite(p: int, d: int, c: int) -> Lifted:
    """u_p stacks the upper triangle of a symmetric matrix by columns, times sqrt(2) off the diagonal."""
    side = d + c
    size = side * (side + 1) // 2
    cost = np.zeros((p, size))
    cost[:, np.arange(1, side + 1).cumsum() - 1] = 0.5
    column = np.arange(d, side)
    within = (column * (column + 1) // 2)[None, :] + np.arange(d)[:, None]
    entries = size * np.arange(p)[:, None, None] + within
    return Lifted(cost.ravel(), [clarabel.PSDTriangleConeT(side)] * p, entries, sqrt(0.5))


def _program(A: sparse.csr_array, Y: Array, beta: float, lifted: Lifted, H: sparse.csr_array | None) -> tuple[Any, ...]:
    """min 1/2 |f - Y|^2 + beta <cost, u> over (u, f) with A Z = f, u in the cones and H Z >= 0."""
    size, width = Y.size, len(lifted.cost)
    pick = sparse.csr_array(
        (np.full(lifted.entries.size, lifted.scale), (np.arange(lifted.entries.size), lifted.entries.ravel())),
        shape=(lifted.entries.size, width),
    )
    outputs = sparse.kron(A, sparse.eye_array(Y.shape[1])) @ pick
    rows = [
        sparse.hstack([outputs, -sparse.eye_array(size)]),
        sparse.hstack([-sparse.eye_array(width), _none(width, size)]),
    ]
    cones = [clarabel.ZeroConeT(size), *lifted.cones]
    if H is not None:
        rows.append(sparse.hstack([-(H @ pick), _none(H.shape[0], size)]))
        cones.append(clarabel.NonnegativeConeT(H.shape[0]))
    G = sparse.csc_array(sparse.vstack(rows))
    P = sparse.csc_array(sparse.diags_array(np.concatenate([np.zeros(width), np.ones(size)])))
    return P, np.concatenate([beta * lifted.cost, -Y.ravel()]), G, np.zeros(G.shape[0]), cones


def _none(height: int, width: int) -> sparse.csr_array:
    return sparse.csr_array((height, width))


def _halfspaces(task: Task) -> sparse.csr_array:
    """(2 D_p - I) X for both weights of every pattern."""
    X, sides = task.arrays.X, 2.0 * task.arrays.mask - 1
    blocks = [side[:, None] * X for side in sides.T]
    return sparse.csr_array(sparse.block_diag([*blocks, *blocks]))


if __name__ == "__main__":
    main(prepare)
