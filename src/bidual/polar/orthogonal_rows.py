"""A cheap upper bound of the ReLU polar, exact for the closed forms of whitened data."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

_EPS = torch.finfo(torch.float64).eps


def polar_bound_orthogonal_rows(X: Float[Tensor, "n d"], V: Float[Tensor, "n c"]) -> float:
    r"""An upper bound of max { |V^T (X u)_+| : |u| <= 1 }, valid for every X and made for orthogonal rows.

    For positive scales S = diag(s_i) and T = S^-1 X, h = (T u)_+ is non-negative and |h| <= |T u| <= |T|_op. With
    A = S V,

        |V^T (X u)_+|^2 = h^T A A^T h <= |T|_op^2 min( |A|_op^2, lambda_max((A A^T)_+) ),

    the second because h^T M h <= h^T M_+ h for h >= 0, with the positive part of each entry. The better of s_i = |x_i|
    and s_i = 1 is taken. Orthogonal rows have |T|_op = 1 at s_i = |x_i|; the bound is then exact where any two rows of
    A are parallel or make no acute angle, and where A's top left singular vector has one sign (CP Theorem 2). It
    includes an allowance for rounding and, through |T|_op, for rows that are not quite orthogonal.
    """
    if len(X) != len(V):
        raise ValueError(f"V must have one row per sample ({len(X)}), got {len(V)}.")
    X, V = X.to(torch.float64), V.to(torch.float64)
    norms = torch.linalg.vector_norm(X, dim=1, keepdim=True)
    by_rows = norm_bound(X / torch.where(norms > 0, norms, 1.0)) * _nonnegative_bound(norms * V)
    return min(by_rows, norm_bound(X) * _nonnegative_bound(V))


def norm_bound(A: Float[Tensor, "n k"]) -> float:
    """|A|_op rounded up: by the row sums of A A^T, exact for orthogonal rows, or by singular values."""
    if not A.numel() or not bool(A.any()):
        return 0.0
    A = A if len(A) <= A.shape[1] else A.T
    size = float(torch.linalg.vector_norm(A, dim=1).max())
    rounding = 4 * math.sqrt(A.shape[1] + 1) * _EPS
    sums = math.sqrt(float((A @ A.T).abs().sum(1).max()) + len(A) * rounding * size**2) * (1 + 4 * _EPS)
    if sums <= size * (1 + 1e-9):
        return sums
    return min(sums, float(torch.linalg.matrix_norm(A, 2)) * (1 + 16 * math.sqrt(sum(A.shape)) * _EPS))


def _nonnegative_bound(A: Tensor) -> float:
    """An upper bound of max { |A^T h| : h >= 0, |h| <= 1 }."""
    largest = norm_bound(A)
    return min(largest, _positive_part_bound(A / largest) * largest) if 0 < largest < math.inf else largest


def _positive_part_bound(A: Tensor, steps: int = 20) -> float:
    """sqrt(lambda_max((A A^T)_+)) rounded up: lambda_max(B) <= max_i (B x)_i / x_i for all B >= 0, x > 0."""
    sizes = torch.linalg.vector_norm(A, dim=1)
    kept = sizes > 0
    A, sizes = A[kept], sizes[kept]
    B = (A @ A.T).clamp(min=0) + 4 * math.sqrt(A.shape[1] + 1) * _EPS * torch.outer(sizes, sizes)
    x, best = sizes, math.inf
    for _ in range(steps):
        image = B @ x
        best = min(best, float((image / x).max()))
        x = (image / image.max()).clamp(min=1e-150)
    return math.sqrt(best) * (1 + 4 * math.sqrt(len(A)) * _EPS)
