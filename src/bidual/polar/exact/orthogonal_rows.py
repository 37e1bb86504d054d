"""A cheap upper bound of the ReLU polar, exact for the closed forms of whitened data."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.gram import Gram, norm_bound, power_of_two
from bidual.numerics.rounding import TINY, gamma, rounded_up

_LEAST = 1e-150  # of the entries of x in x > 0
_EQUAL = 1e-13  # for lengths that differ by less, relatively, both bounds agree
_SHORTEST = 2.0**-1000  # rows are scaled as if they were no shorter


def polar_bound_orthogonal_rows(X: Float[Tensor, "n d"], V: Float[Tensor, "n c"]) -> float:
    r"""An upper bound of max { |V^T (X u)_+| : |u| <= 1 }, valid for every X and made for orthogonal rows.

    For positive scales S = diag(s_i) and T = S^-1 X, h = (T u)_+ is non-negative and |h| <= |T u| <= |T|_op. With
    A = S V,

        |V^T (X u)_+|^2 = h^T A A^T h <= |T|_op^2 min( |A|_op^2, lambda_max((A A^T)_+) ),

    the second because h^T M h <= h^T M_+ h for h >= 0, with the positive part of each entry. The better of s_i = |x_i|
    and s_i = 1 is taken. Orthogonal rows have |T|_op = 1 at s_i = |x_i|; the bound is then exact where any two rows of
    A are parallel or make no acute angle, and where A's top left singular vector has one sign (CP Theorem 2). Any
    s_i > 0 is valid, so that their own rounding costs nothing; entries of T and A are rounded once.
    """
    if len(X) != len(V):
        raise ValueError(f"V must have one row per sample ({len(X)}), got {len(V)}.")
    X, V = X.to(torch.float64), V.to(torch.float64)
    X, V = (torch.where((X.any(1) & V.any(1))[:, None], part, 0.0) for part in (X, V))  # zero rows take no part
    units = power_of_two(X), power_of_two(V)
    if not all(map(math.isfinite, units)):
        return math.inf
    if not bool(X.any()):
        return 0.0
    best = _better(X / units[0], V / units[1])
    underflow = 4 * TINY * (X.numel() + V.numel())  # of X and V divided by their units
    return rounded_up(rounded_up(rounded_up(best + underflow) * max(units)) * min(units))


def _better(x: Tensor, v: Tensor) -> float:
    """The better of both scales; one of them where lengths agree, and bounds would. Zero rows take no part."""
    v, scales = torch.where(x.any(1, keepdim=True), v, 0.0), _lengths(x)
    by_rows = norm_bound(x / scales, 1) * _nonnegative_bound(scales * v, 1)
    if bool(scales.max() <= scales.min() * (1 + _EQUAL)):
        return by_rows
    return min(by_rows, norm_bound(x) * _nonnegative_bound(v))


def _lengths(x: Float[Tensor, "n d"]) -> Float[Tensor, "n 1"]:
    """About the lengths of rows, even of very short ones; one for zero rows."""
    tops = x.abs().amax(1, keepdim=True).clamp(min=_SHORTEST)
    return torch.where(x.any(1, keepdim=True), tops * torch.linalg.vector_norm(x / tops, dim=1, keepdim=True), 1.0)


def _nonnegative_bound(A: Tensor, roundings: int = 0) -> float:
    """An upper bound of max { |A^T h| : h >= 0, |h| <= 1 }, for entries with that many ``roundings``."""
    largest = norm_bound(A, roundings)
    if not 0 < largest < math.inf:
        return largest
    unit = power_of_two(A)
    return min(largest, rounded_up(_positive_part_bound(A / unit, roundings=roundings) * unit))


def _positive_part_bound(A: Tensor, steps: int = 20, roundings: int = 0) -> float:
    r"""sqrt(lambda_max((A A^T)_+)) rounded up: lambda_max(B) <= max_i (B x)_i / x_i for all B >= 0, x > 0.

    B = G_+ + error s s^T is no smaller than (A A^T)_+ in any entry, up to three roundings. Nothing cancels in B x, so
    that a sum and its quotient are right up to n + 1 roundings; underflows cost n 2^-1022 / 1e-150.
    """
    gram = Gram.of(A[A.any(1)], roundings)
    B = gram.G.clamp(min=0) + gram.error * torch.outer(gram.sizes, gram.sizes)
    x, best, n = gram.sizes.clamp(min=_LEAST), math.inf, len(B)
    for _ in range(steps):
        image = B @ x
        best = min(best, float((image / x).max()))
        x = (image / image.max()).clamp(min=_LEAST)
    return rounded_up(math.sqrt(rounded_up(best * (1 + gamma(n + 8)) + n * TINY / _LEAST)))
