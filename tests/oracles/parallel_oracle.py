"""PR (21) and (8) for tiny data, by listing every cell: patterns of both layers and signs, as one cvxpy model."""

from itertools import combinations_with_replacement, product

import cvxpy as cp
import numpy as np
from scipy import sparse

from oracles.pattern_oracle import all_patterns


def three_layer_optimum(X: np.ndarray, y: np.ndarray, beta: float, width: int, printed: bool = False) -> float:
    """The optimum of 1/2 |f - y|^2 + beta * path norm over all cells; ``printed`` for (8) with its misplaced signs."""
    n, d = X.shape
    patterns = [np.array(p, dtype=float) for p in sorted(all_patterns(X))]
    units = [(D, s) for D in patterns if D.any() for s in (1.0, -1.0)]
    maps, cones = [], []
    for chosen in combinations_with_replacement(units, width):
        linear = np.hstack([(1.0 if printed else s) * D[:, None] * X for D, s in chosen])
        constrained = np.hstack([s * D[:, None] * X for D, s in chosen])
        first = sparse.block_diag([(2 * D - 1)[:, None] * X for D, _ in chosen])
        shown = np.hstack([D[:, None] * X for D, _ in chosen]) if printed else linear
        for active in product((0.0, 1.0), repeat=n):
            second = np.array(active)
            if second.any():
                maps.append(second[:, None] * shown)
                cones.append(sparse.vstack([first, (2 * second - 1)[:, None] * constrained]))
    z, other = (cp.Variable((len(maps), d * width)) for _ in range(2))
    G = sparse.block_diag(cones, format="csr")
    f = np.hstack(maps) @ (cp.vec(z, order="C") - cp.vec(other, order="C"))
    price = cp.sum(cp.norm(z, axis=1)) + cp.sum(cp.norm(other, axis=1))
    constraints = [G @ cp.vec(part, order="C") >= 0 for part in (z, other)]
    model = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(f - y) + beta * price), constraints)
    return float(model.solve(solver=cp.CLARABEL))
