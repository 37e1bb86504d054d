"""Eigenvalues and orthogonality that are proved in floating point: LAPACK guesses, and what it guessed is checked."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.rounding import TINY, gamma, length, rounded_up

_SLACKS = (8, 64, 1024)  # how far below LAPACK's guess a proof is tried, in units of k times its rounding


def least_eigenvalues(M: Float[Tensor, "p k k"], guesses: Float[Tensor, " p"] | None = None) -> Float[Tensor, " p"]:
    r"""Lower bounds of the least eigenvalues of symmetric matrices, which hold in real arithmetic for these entries.

    If the Cholesky factorisation of A = M - s I runs through in floating point, then A >= -e tr(A) with
    e = gamma_(k+1) / (1 - gamma_(k+1)) (Higham 2002, Theorem 10.3), so that no eigenvalue of M is below s - e tr(A),
    for any s; LAPACK guesses it where there are no ``guesses``. Where no s works, the bound is minus the Frobenius
    norm; -inf where entries are not finite.
    """
    k = M.shape[1]
    unit, bound = torch.finfo(M.dtype).eps / 2, partial(gamma, dtype=M.dtype)
    size = _sizes(M)
    bounds = torch.where(torch.isfinite(size), -size, -torch.inf)
    left = torch.isfinite(size).nonzero()[:, 0] if k else torch.arange(0)
    guess = _guesses(M[left]) if guesses is None else guesses[left]
    for slack in _SLACKS:
        s = guess - bound(slack * k) * size[left]
        A = M[left] - s[:, None, None] * torch.eye(k, dtype=M.dtype, device=M.device)
        proved = torch.linalg.cholesky_ex(A).info == 0
        trace = A.diagonal(dim1=1, dim2=2).sum(1)
        rounded = 4 * unit * (size[left] + s.abs())  # M - s I rounds too
        error = 1.001 * bound(k + 1) * trace + rounded + 8 * k * k * TINY
        found = torch.maximum(s - error, bounds[left])
        bounds[left[proved]] = found[proved]
        left, guess = left[~proved], guess[~proved]
        if not len(left):
            break
    return bounds


def _sizes(M: Float[Tensor, "p k k"]) -> Float[Tensor, " p"]:
    """Frobenius norms rounded up, at any scale."""
    if not M.numel():
        return M.new_zeros(len(M))
    top = M.abs().amax((1, 2))
    shares = M / torch.where(top > 0, top, 1.0)[:, None, None]
    k = M.shape[1]
    return top * torch.linalg.vector_norm(shares, dim=(1, 2)) * (1 + gamma(k * k + 8, M.dtype)) + k * TINY


def _guesses(M: Float[Tensor, "p k k"]) -> Float[Tensor, " p"]:
    return torch.linalg.eigvalsh(M)[:, 0] if M.numel() else M.new_zeros(len(M))


def largest_eigenvalues(M: Float[Tensor, "p k k"], guesses: Float[Tensor, " p"] | None = None) -> Float[Tensor, " p"]:
    """Upper bounds of the largest eigenvalues of symmetric matrices, proved like :func:`least_eigenvalues`."""
    return -least_eigenvalues(-M, None if guesses is None else -guesses)


def symmetric(M: Tensor) -> Tensor:
    """The symmetric part, symmetric to the last bit."""
    return 0.5 * (M + M.mT)


def orthogonality_error(Q: Float[Tensor, "d r"]) -> float:
    """An upper bound of |Q^T Q - I| in the Frobenius norm, and so of | |Q z|^2 - |z|^2 | over unit z."""
    (d, r), Q = Q.shape, Q.to(torch.float64)
    off = Q.T @ Q - torch.eye(r, dtype=Q.dtype, device=Q.device)
    return rounded_up(length(off) + gamma(d + 4) * length(Q) ** 2)
