"""The cone of one activation pattern."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.optimize import linprog, lsq_linear

from bidual.numerics.linear_algebra import nonnegative_multipliers
from bidual.patterns.facets import irredundant


@dataclass(frozen=True, eq=False)
class PatternCone:
    r"""K = { u : (2 D - I) X u >= 0 } as { basis t : rows t >= 0 }, full-dimensional in the coordinates t.

    Attributes:
        rows: (f, k), one unit normal per facet.
        basis: (d, k), orthonormal, spans K.
        inner: (k,), a direction in the interior.
    """

    rows: Float[ndarray, "f k"]
    basis: Float[ndarray, "d k"]
    inner: Float[ndarray, " k"]

    def project(self, a: Float[ndarray, " k"]) -> Float[ndarray, " k"]:
        """The nearest point of the cone: a + rows^T l with the l >= 0 that makes it shortest (Moreau)."""
        size = float(np.linalg.norm(a))
        if self.contains(a, size):
            return a
        nearest = a + self.rows.T @ nonnegative_multipliers(self.rows, -a)
        if self.contains(nearest, size):
            return nearest
        # seen with scipy 1.17: next to a face nnls returned a point far outside the cone
        return a + self.rows.T @ lsq_linear(self.rows.T, -a, (0.0, np.inf), method="bvls", tol=1e-14).x

    def contains(self, a: Float[ndarray, " k"], size: float) -> bool:
        """Whether a is in the cone up to the rounding of vectors of the given size."""
        return bool((self.rows @ a).min(initial=0.0) >= -1e-13 * size)


def pattern_cone(X: Float[ndarray, "n d"], pattern: Bool[ndarray, " n"]) -> PatternCone:
    """The cone of a pattern in coordinates of its span, without redundant inequalities."""
    length = np.linalg.norm(X, axis=1)
    A = (np.where(pattern, 1.0, -1.0) / np.where(length > 0, length, 1.0))[:, None] * X
    A = A[length > 0]
    u, strict = _relative_interior(A)
    basis = _null_basis(A[~strict])
    inner = basis.T @ u
    return PatternCone(irredundant(A[strict] @ basis), basis, inner / max(float(np.linalg.norm(inner)), 1e-300))


def _relative_interior(A: Float[ndarray, "n d"]) -> tuple[Float[ndarray, " d"], Bool[ndarray, " n"]]:
    """A point of { A u >= 0 } at which as many rows as possible are positive, and which: max sum t, A u >= t <= 1."""
    n, d = A.shape
    if not n:
        return np.ones(d), np.zeros(0, dtype=bool)
    bounds = [(None, None)] * d + [(0.0, 1.0)] * n
    cost = np.concatenate([np.zeros(d), -np.ones(n)])
    for method in ("highs", "highs-ipm", "highs-ds"):
        answer = linprog(cost, A_ub=np.hstack([-A, np.eye(n)]), b_ub=np.zeros(n), bounds=bounds, method=method)
        if answer.x is not None:
            return answer.x[:d], answer.x[d:] > 0.5
    raise FloatingPointError(f"no interior point of the cone of {n} rows was found: {answer.message}")


def _null_basis(A: Float[ndarray, "q d"]) -> Float[ndarray, "d k"]:
    if not len(A):
        return np.eye(A.shape[1])
    _, values, right = np.linalg.svd(A)
    return right[int((values > 1e-11 * values[0]).sum()) :].T
