"""Data of rank r are data in R^r (CP A.2)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

# Singular values below this share of the largest are cut; what is cut is accounted for by `remainder`.
RANK_CUT = 1e-10


@dataclass(frozen=True, eq=False)
class Reduced:
    r"""X = samples @ basis^T + a remainder, with orthonormal columns in ``basis``.

    Neurons outside the row space of X cost and do nothing (CP eq. 22), so u = basis @ u' with u' in R^r and |u| = |u'|.

    Attributes:
        samples: (n, r), X in the coordinates of its row space.
        basis: (d, r).
        remainder: a bound of the spectral norm of what was dropped by the rank cut and by rounding.
    """

    samples: Float[ndarray, "n r"]
    basis: Float[ndarray, "d r"]
    remainder: float

    @property
    def rank(self) -> int:
        return self.samples.shape[1]


def reduce_rank(X: Float[ndarray, "n d"]) -> Reduced:
    """X in the coordinates of its row space, by SVD; the identity where X has full column rank."""
    if not X.size:
        return Reduced(np.zeros((len(X), 0)), np.zeros((X.shape[1], 0)), 0.0)
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    r = int((s > RANK_CUT * s[0]).sum()) if s[0] > 0 else 0
    if r == X.shape[1]:
        return Reduced(np.array(X, dtype=np.float64), np.eye(r), 0.0)
    samples, basis = np.where(X.any(axis=1, keepdims=True), U[:, :r] * s[:r], 0.0), Vt[:r].T
    rounding = 8 * max(X.shape) * float(np.finfo(np.float64).eps) * s[0]
    return Reduced(samples, basis, float(np.linalg.norm(X - samples @ basis.T) + rounding))
