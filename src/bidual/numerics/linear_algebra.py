"""A Cholesky factor and non-negative least squares that always return."""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import nnls
from torch import Tensor


def robust_cholesky(M: Tensor) -> Tensor:
    """A Cholesky factor, with the diagonal raised by rounding size until it exists."""
    lift, scale = 0.0, float(M.diagonal().abs().mean())
    for _ in range(20):
        L, failed = torch.linalg.cholesky_ex(M)
        if not int(failed) and bool(torch.isfinite(L.diagonal()).all()):  # a row that is not finite spoils its pivot
            return L
        lift = max(9 * lift, torch.finfo(M.dtype).eps * scale)
        M = M + lift * torch.eye(len(M), dtype=M.dtype, device=M.device)
    raise FloatingPointError("the matrix could not be factored; are the features finite and of similar scale?")


def nonnegative_multipliers(rows: Float[ndarray, "f k"], b: Float[ndarray, " k"]) -> Float[ndarray, " f"]:
    """About the l >= 0 with the least |rows^T l - b|: scipy's nnls; zero if it cycles. Callers verify the result."""
    try:
        return np.maximum(nnls(rows.T, b, maxiter=50 * max(rows.shape))[0], 0)
    except RuntimeError:
        return np.zeros(len(rows))
