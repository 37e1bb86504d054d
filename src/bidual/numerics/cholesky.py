"""A factorisation that survives rounding."""

import torch
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
