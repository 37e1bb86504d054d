"""Independent judges of what is said of all activation patterns: linear programs, and projections onto cones."""

from itertools import product

import numpy as np
from scipy.optimize import linprog, nnls

Pattern = tuple[bool, ...]


def has_open_cone(X: np.ndarray, signs: np.ndarray) -> bool:
    """Whether some u has signs_i x_i^T u >= 1 for every row."""
    n, d = X.shape
    found = linprog(np.zeros(d), A_ub=-signs[:, None] * X, b_ub=-np.ones(n), bounds=(None, None), method="highs")
    return bool(found.status == 0)


def all_patterns(X: np.ndarray) -> set[Pattern]:
    """Every pattern that an open cone of directions has, by 2^(n-1) linear programs; zero rows count as active."""
    rows = X / np.maximum(np.abs(X).max(1, keepdims=True), 1e-300)
    zero = ~rows.any(1)
    found = set()
    for rest in product([1.0, -1.0], repeat=int((~zero).sum()) - 1):
        signs = np.array([1.0, *rest])  # the opposite of a cone is a cone
        if has_open_cone(rows[~zero], signs):
            for side in (signs, -signs):
                pattern = zero.copy()
                pattern[~zero] = side > 0
                found.add(tuple(pattern.tolist()))
    return found


def steepest(X: np.ndarray, V: np.ndarray) -> float:
    """max over |u| <= 1 of |V^T (X u)_+|, cone by cone; what is returned is attained, whatever the rounding.

    One column of V: the projection of +-X^T D v onto the cone is the maximiser. More: by climbing from many starts.
    """
    best = 0.0
    for pattern in all_patterns(X):
        active = np.array(pattern)
        cone = np.where(active, 1.0, -1.0)[:, None] * X
        G = V.T @ (active[:, None] * X)
        best = max([best, *(attained(X, V, u) for u in climbed(cone, G))])
    return best


def attained(X: np.ndarray, V: np.ndarray, u: np.ndarray) -> float:
    """|V^T (X u)_+| of u scaled to length one."""
    length = np.linalg.norm(u)
    return float(np.linalg.norm(V.T @ np.maximum(X @ (u / length), 0))) if length > 1e-12 else 0.0


def project(cone: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The point of {u : cone u >= 0} nearest to g: g + cone^T y with the y >= 0 that makes it shortest."""
    length = np.linalg.norm(g)
    size = np.linalg.norm(cone, axis=1, keepdims=True)
    if length == 0 or not size.any():
        return g
    unit = cone / np.where(size > 0, size, 1.0)
    return g / length + unit.T @ nnls(unit.T, -g / length)[0]


def climbed(cone: np.ndarray, G: np.ndarray, starts: int = 6) -> list[np.ndarray]:
    """Fixed points of u <- project(G^T G u), along which |G u| / |u| never falls, in a cone."""
    if len(G) == 1:
        return [project(cone, G[0]), project(cone, -G[0])]
    drawn = np.random.default_rng(0).standard_normal((starts, G.shape[1]))
    return [_fixed_point(cone, G, s * u) for u in (*np.linalg.svd(G)[2], *drawn) for s in (1, -1)]


def _fixed_point(cone: np.ndarray, G: np.ndarray, u: np.ndarray, steps: int = 300) -> np.ndarray:
    u, value = project(cone, u), 0.0
    for _ in range(steps):
        length = np.linalg.norm(u)
        before, value = value, float(np.linalg.norm(G @ u)) / max(length, 1e-300)
        if length < 1e-12 or value <= before * (1 + 1e-13):
            break
        u = project(cone, G.T @ (G @ u))
    return u
