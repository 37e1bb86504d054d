"""Many small square matrices at once, (d, d, P) with the matrix as last index: one operation works on all of them.

LAPACK called matrix by matrix spends microseconds on each, which for d up to 2 is more than all the arithmetic.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def product(A: Array, B: Array) -> Array:
    """A_p B_p."""
    return np.einsum("ijp,jkp->ikp", A, B)


def transposed(A: Array) -> Array:
    return A.swapaxes(0, 1)


def symmetric(A: Array) -> Array:
    """(A_p + A_p^T) / 2."""
    return 0.5 * (A + transposed(A))


def diagonal(values: Array) -> Array:
    """diag(values_p) for values (d, P)."""
    return np.eye(len(values))[:, :, None] * values


def cholesky(A: Array) -> Array:
    """Lower factors of positive definite matrices."""
    L = np.zeros_like(A)
    for j in range(len(A)):
        column = A[j:, j] - (L[j:, :j] * L[j, :j]).sum(1)
        L[j:, j] = column / np.sqrt(column[0])
    return L


def eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues (d, P) in no particular order, and eigenvectors as columns."""
    if len(A) > 2:
        values, vectors = np.linalg.eigh(np.moveaxis(A, 2, 0))
        return values.T, np.moveaxis(vectors, 0, 2)
    if len(A) == 1:
        return A[0], np.ones_like(A)
    angle = 0.5 * np.arctan2(2 * A[0, 1], A[0, 0] - A[1, 1])
    x, y = np.cos(angle), np.sin(angle)
    cross = 2 * x * y * A[0, 1]
    values = np.stack([x * x * A[0, 0] + y * y * A[1, 1] + cross, y * y * A[0, 0] + x * x * A[1, 1] - cross])
    return values, np.array([[x, -y], [y, x]])


def extreme_eigenvalues(A: Array) -> tuple[float, float]:
    """The least and the greatest eigenvalue of all of them."""
    if len(A) > 2:
        values = np.linalg.eigvalsh(np.moveaxis(A, 2, 0))
        return float(values.min()), float(values.max())
    if len(A) == 1:
        return float(A.min()), float(A.max())
    middle, radius = 0.5 * (A[0, 0] + A[1, 1]), np.hypot(0.5 * (A[0, 0] - A[1, 1]), A[0, 1])
    return float((middle - radius).min()), float((middle + radius).max())
