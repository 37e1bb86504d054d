"""Eigenvalues and orthogonality that are proved in floating point: LAPACK guesses, and what it guessed is checked."""

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.rounding import TINY, UNIT, gamma, length, rounded_up

_SLACKS = (8, 64, 1024)  # how far below LAPACK's guess a proof is tried, in units of k times its rounding


def least_eigenvalues(M: Float[Tensor, "p k k"]) -> Float[Tensor, " p"]:
    r"""Lower bounds of the least eigenvalues of symmetric matrices, which hold in real arithmetic for these entries.

    If the Cholesky factorisation of A = M - s I runs through in floating point, then A >= -e tr(A) with
    e = gamma_(k+1) / (1 - gamma_(k+1)) (Higham 2002, Theorem 10.3), so that no eigenvalue of M is below s - e tr(A),
    whoever guessed s. Where no s does, minus the Frobenius norm is left; -inf where entries are not finite.
    """
    k = M.shape[1]
    size = torch.linalg.vector_norm(M, dim=(1, 2)) * (1 + gamma(k * k + 8)) + k * TINY**0.5
    bounds = torch.where(torch.isfinite(size), -size, -torch.inf)
    left = torch.isfinite(size).nonzero()[:, 0] if k else torch.arange(0)
    guess = torch.linalg.eigvalsh(M[left])[:, 0] if len(left) else M.new_zeros(0)
    for slack in _SLACKS:
        s = guess - gamma(slack * k) * size[left]
        A = M[left] - s[:, None, None] * torch.eye(k, dtype=M.dtype, device=M.device)
        proved = torch.linalg.cholesky_ex(A).info == 0
        trace = A.diagonal(dim1=1, dim2=2).sum(1)
        error = 1.001 * gamma(k + 1) * trace + 4 * UNIT * (size[left] + s.abs())  # and the rounding of M - s I
        found = torch.maximum(s - error, bounds[left])
        bounds[left[proved]] = found[proved]
        left, guess = left[~proved], guess[~proved]
        if not len(left):
            break
    return bounds


def largest_eigenvalues(M: Float[Tensor, "p k k"]) -> Float[Tensor, " p"]:
    """Upper bounds of the largest eigenvalues of symmetric matrices, proved like :func:`least_eigenvalues`."""
    return -least_eigenvalues(-M)


def symmetric(M: Tensor) -> Tensor:
    """The symmetric part, symmetric to the last bit."""
    return 0.5 * (M + M.mT)


def orthogonality_error(Q: Float[Tensor, "d r"]) -> float:
    """An upper bound of |Q^T Q - I| in the Frobenius norm, and so of | |Q z|^2 - |z|^2 | over unit z."""
    d, r = Q.shape
    off = Q.T @ Q - torch.eye(r, dtype=Q.dtype, device=Q.device)
    return rounded_up(length(off) + gamma(d + 4) * length(Q) ** 2)
