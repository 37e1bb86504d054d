r"""Gram matrices A A^T with a bound of their error, and spectral norms that follow from them.

A product of k columns at a time is off by gamma_k. Summed by blocks of b columns it is off by gamma_(b + k/b) only, in
whatever order a BLAS adds within a block.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.eigenvalue_bounds import largest_eigenvalues
from bidual.numerics.rounding import TINY, gamma, rounded_up

_WHOLE = 512  # columns that are multiplied at once
_BLOCK = 256  # the narrowest block; passes over G cost more than they gain below
_LEAST = 2.0**-480  # lengths of rows are rounded up by it, so that error * s_i s_j also holds k underflows
_CLOSE = 2e-9  # a bound that is so close, relatively, is not worth eigenvalues


@dataclass(frozen=True, eq=False)
class Gram:
    r"""|G_ij - a_i^T a_j| <= error * s_i s_j for the rows a_i of a matrix with entries up to about one.

    Attributes:
        G: (n, n).
        sizes: s_i >= |a_i|.
        error: relative, at least 2^-52.
    """

    G: Float[Tensor, "n n"]
    sizes: Float[Tensor, " n"]
    error: float

    @classmethod
    def of(cls, A: Float[Tensor, "n k"], roundings: int = 0) -> "Gram":
        r"""Of A, or of a matrix whose entries are those of A up to so many roundings each, and one underflow.

        A term of a_i^T a_j goes through b + k / b operations and 2 * ``roundings`` before. Underflows cost 2^-1022 a
        term, and as much times |a_ik| + |a_jk| <= 4; together k 2^-1019, which is below 2^-52 (2^-480 sqrt(k))^2.
        """
        A, k = A.to(torch.float64), A.shape[1]
        G, depth = _product(A)
        sizes = row_lengths(A) + math.sqrt(k) * _LEAST
        return cls(G, sizes, gamma(depth + 2 * roundings + 2))

    @property
    def spread(self) -> float:
        """A bound of |G - A A^T| in the Frobenius norm: that of error * s s^T."""
        return rounded_up(self.error * float(self.sizes.square().sum()) * (1 + gamma(len(self.sizes) + 2)))

    @property
    def largest_row_sum(self) -> float:
        """A bound of the largest sum of absolute values in a row of A A^T."""
        sums = self.G.abs().sum(1) + self.error * self.sizes * self.sizes.sum()
        return rounded_up(float(sums.max()) * (1 + gamma(len(self.G) + 4)))


def _product(A: Tensor) -> tuple[Tensor, int]:
    """A A^T, and the most operations that a term goes through."""
    k = A.shape[1]
    if k <= _WHOLE:
        return A @ A.T, k
    block = max(_BLOCK, math.isqrt(k))
    parts = A.split(block, dim=1)
    G = parts[0] @ parts[0].T
    for part in parts[1:]:
        G += part @ part.T
    return G, block + len(parts)


def row_lengths(A: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """Upper bounds of the lengths of rows, for entries up to about one; squares that underflow are allowed for."""
    k = A.shape[1]
    return torch.linalg.vector_norm(A, dim=1) * (1 + gamma(k + 8)) + math.sqrt(k) * 2 * TINY**0.5


def power_of_two(A: Tensor) -> float:
    """The largest power of two that is at most max |A|, and 2^-1022 at least; infinity or NaN as they are."""
    top = float(A.abs().max()) if A.numel() else 0.0
    if not math.isfinite(top):
        return top
    return max(2.0 ** (math.frexp(top)[1] - 1), TINY) if top else TINY


def norm_bound(A: Float[Tensor, "n k"], roundings: int = 0) -> float:
    r"""|A|_op rounded up, at any scale, for entries that were rounded so many times before.

    |A|_op^2 = lambda_max(G) for the smaller G of A A^T and A^T A, which is at most its largest row sum, exact for
    orthogonal rows, and at most the eigenvalue that a Cholesky factorisation proves for the computed G, plus its error.
    Division by a power of two is exact up to underflows, which :class:`Gram` allows for.
    """
    A = A.to(torch.float64)
    if not A.numel() or not bool(A.any()):
        return 0.0
    unit = power_of_two(A)
    if not math.isfinite(unit):
        return math.inf
    gram = Gram.of((A if len(A) <= A.shape[1] else A.T) / unit, roundings)
    square = gram.largest_row_sum
    if square > float(gram.sizes.max()) ** 2 * (1 + _CLOSE):
        square = min(square, float(largest_eigenvalues(gram.G[None])[0]) + gram.spread)
    return rounded_up(math.sqrt(rounded_up(square)) * unit)
