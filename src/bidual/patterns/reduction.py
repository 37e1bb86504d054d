"""Data of rank r are data in R^r (CP A.2)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.numerics.eigenvalue_bounds import orthogonality_error
from bidual.numerics.gram import norm_bound
from bidual.numerics.rounding import TINY, gamma, length, rounded_up

# Singular values below this share of the largest are cut; `remainder` accounts for them.
RANK_CUT = 1e-10
_ROUNDING = 1e-12  # a remainder that is not larger is rounding, for rows of length one


@dataclass(frozen=True, eq=False)
class Reduced:
    r"""X = samples @ Q^T + a remainder, for a matrix Q of exactly orthonormal columns that ``basis`` is a rounding of.

    Parts of neurons outside the row space of X cost and have no effect (CP eq. 22), so u' = Q^T u with u' in R^r and
    |u'| <= |u|. As the ReLU is 1-Lipschitz, for every V

        max_{|u|<=1} |V^T (X u)_+| <= max_{|u'|<=1} |V^T (samples u')_+| + remainder * |V|_2.

    Attributes:
        samples: (n, r), X in the coordinates of its row space.
        basis: (d, r).
        remainder: a bound of the spectral norm of X - samples Q^T: the rank cut, rounding, and Q in the place of basis.
        skew: a bound of |basis - Q|_2, for products of other rows with ``basis``.
    """

    samples: Float[ndarray, "n r"]
    basis: Float[ndarray, "d r"]
    remainder: float
    skew: float = 0.0

    @property
    def rank(self) -> int:
        return self.samples.shape[1]

    def lost(self, V: Float[Tensor, "n c"]) -> float:
        """remainder * |V|_2; with |V|_F, which is cheaper, where the remainder is rounding."""
        if not self.remainder:
            return 0.0
        return rounded_up(self.remainder * (length(V) if self.remainder <= _ROUNDING else norm_bound(V)))


def reduce_rank(X: Float[ndarray, "n d"]) -> Reduced:
    """X in the coordinates of its row space, by SVD; the identity where X has full column rank."""
    if not X.size:
        return Reduced(np.zeros((len(X), 0)), np.zeros((X.shape[1], 0)), 0.0)
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    r = int((s > RANK_CUT * s[0]).sum()) if s[0] > 0 else 0
    if r == X.shape[1]:
        return Reduced(np.array(X, dtype=np.float64), np.eye(r), 0.0)
    samples, basis = np.where(X.any(axis=1, keepdims=True), U[:, :r] * s[:r], 0.0), Vt[:r].T
    skew = orthogonality_error(torch.from_numpy(basis))  # |s - 1| <= |s^2 - 1| for singular values s >= 0
    return Reduced(samples, basis, left_over(np.asarray(X, dtype=np.float64), samples, basis, skew), skew)


def left_over(
    X: Float[ndarray, "n d"], samples: Float[ndarray, "n r"], basis: Float[ndarray, "d r"], skew: float
) -> float:
    r"""A bound of |X - samples Q^T|_2 <= |X - samples basis^T|_F + |samples|_2 skew for any samples and basis.

    An entry of the difference has r + 1 terms, which go through r + 1 operations, one where the basis is the identity;
    the sum of their absolute values is |X| + |samples| |basis|^T, of norm |X|_F + |samples|_F |basis|_F at most.
    """
    data, small, frame = (torch.from_numpy(part) for part in (X, samples, basis))
    off = X - samples @ basis.T
    steps = 1 if skew == 0 else basis.shape[1] + 1
    terms = length(data) + length(small) * (length(frame) if skew else 1.0)
    underflow = TINY * (basis.shape[1] + 1) * math.sqrt(X.size)
    size = norm_bound(small) if skew else 0.0
    return rounded_up(length(torch.from_numpy(off)) + gamma(steps + 2) * terms + size * skew + underflow)
