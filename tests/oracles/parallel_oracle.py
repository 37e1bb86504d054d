"""PR (21) and (8) for tiny data, by listing every cell: patterns of both layers and signs, as one cvxpy model."""

from itertools import combinations_with_replacement, product

import cvxpy as cp
import numpy as np
from scipy import sparse

from oracles.pattern_oracle import all_patterns


def three_layer_optimum(X: np.ndarray, y: np.ndarray, beta: float, width: int, printed: bool = False) -> float:
    """The optimum of 1/2 |f - y|^2 + beta * path norm over all cells; ``printed`` for (8) with its misplaced signs."""
    maps, cones = _cells(X, width, printed)
    z, other = (cp.Variable((len(maps), maps[0].shape[1])) for _ in range(2))
    G = sparse.block_diag(cones, format="csr")
    f = np.hstack(maps) @ (cp.vec(z, order="C") - cp.vec(other, order="C"))
    price = cp.sum(cp.norm(z, axis=1)) + cp.sum(cp.norm(other, axis=1))
    constraints = [G @ cp.vec(part, order="C") >= 0 for part in (z, other)]
    model = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(f - y) + beta * price), constraints)
    return float(model.solve(solver=cp.CLARABEL))


def two_output_optimum(X: np.ndarray, Y: np.ndarray, beta: float, width: int, angles: int) -> float:
    """PR A.11 with output weights in ``angles`` directions only: above the optimum, by less the more there are.

    The atoms of the cone-constrained nuclear norm are w c^T with w in the cell's cone and a unit c.
    """
    maps, cones = _cells(X, width)
    turns = 2 * np.pi * np.arange(angles) / angles
    directions = np.stack([np.cos(turns), np.sin(turns)], 1)
    z = [cp.Variable((len(maps), maps[0].shape[1])) for _ in directions]
    G, A = sparse.block_diag(cones, format="csr"), np.hstack(maps)
    f = sum(cp.outer(A @ cp.vec(part, order="C"), c) for part, c in zip(z, directions, strict=True))
    price = sum(cp.sum(cp.norm(part, axis=1)) for part in z)
    constraints = [G @ cp.vec(part, order="C") >= 0 for part in z]
    model = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(f - Y) + beta * price), constraints)
    return float(model.solve(solver=cp.CLARABEL))


def limit_optimum(X: np.ndarray, y: np.ndarray, beta: float) -> float:
    """The limit of many units, with sum_j |w_j| as price: every second-layer pattern over all first-layer cells."""
    patterns = [np.array(p, dtype=float) for p in sorted(all_patterns(X)) if any(p)]
    units = [(D, s) for D in patterns for s in (1.0, -1.0)]
    linear = np.hstack([s * D[:, None] * X for D, s in units])
    first = sparse.block_diag([(2 * D - 1)[:, None] * X for D, _ in units])
    f, price, constraints = 0, 0, []
    for active, side in product(product((0.0, 1.0), repeat=len(X)), (1.0, -1.0)):
        z, second = cp.Variable((len(units), X.shape[1])), np.array(active)
        h = linear @ cp.vec(z, order="C")
        constraints += [first @ cp.vec(z, order="C") >= 0, cp.multiply(2 * second - 1, h) >= 0]
        f, price = f + side * cp.multiply(second, h), price + cp.sum(cp.norm(z, axis=1))
    model = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(f - y) + beta * price), constraints)
    return float(model.solve(solver=cp.CLARABEL))


def _cells(X: np.ndarray, width: int, printed: bool = False) -> tuple[list[np.ndarray], list[sparse.sparray]]:
    """What every cell contributes, linear in its first-layer weights, and the rows of its cone."""
    n = len(X)
    patterns = [np.array(p, dtype=float) for p in sorted(all_patterns(X))]
    units = [(D, s) for D in patterns if D.any() for s in (1.0, -1.0)]
    maps, cones = [], []
    for chosen in combinations_with_replacement(units, width):
        constrained = np.hstack([s * D[:, None] * X for D, s in chosen])
        first = sparse.block_diag([(2 * D - 1)[:, None] * X for D, _ in chosen])
        shown = np.hstack([D[:, None] * X for D, _ in chosen]) if printed else constrained
        for active in product((0.0, 1.0), repeat=n):
            second = np.array(active)
            if second.any():
                maps.append(second[:, None] * shown)
                cones.append(sparse.vstack([first, (2 * second - 1)[:, None] * constrained]))
    return maps, cones
