r"""The rounding errors of the bounds of :mod:`bidual.polar.sphere.simplex_bounds`, counted operation by operation.

Letters are those of that module; moreover S = sum_i |v_i| |x_i|, T is the interpolating part of G, and |G|_F <= |T|_F +
S. Counts k stand for errors gamma_k, in any order of sums; products of errors are in the roundings to spare.

From the sphere to a simplex of depth D. f is S-Lipschitz, and every unit u has a path of points of simplices, the last
within sqrt(r) gamma_(2D) of it (:mod:`bidual.polar.sphere.simplices`). A row has a sign because its computed products
x_i p_k have it, on this simplex or one on the path before it; so at the path's point there the sign is missed by at
most gamma_r |x_i| L, and at the last point by |x_i| sqrt(r) gamma_(r+2D), the error of (x_i u)_+. Together

    sqrt(r) gamma_(4D+r+1) S.

The path leads through all ancestors of a simplex: an inherited bound holds with the same errors.

On a simplex, for the u at the path's end scaled to length one, sum_k mu_k <= s (:mod:`bidual.polar.sphere.caps`):

- G u. Rows of one sign: a sum of at most n products, over any number of generations, since adding zeros is exact: n S.
  Values at corners: (n + r + 1) s S. Rows with theta: (n + 1) S. T: its residual at corners, which is measured, and
  (r + 1) s |T|_F for measuring. Two sums: 2 |G|_F. In all, s (missed + (r + 4) |T|_F + (n + r + 4) S), paid for once,
  because |(g z, P z)| is |z|.
- ahead. a = G^T g, and g of length one to c + 3: 2 c + 5; the cap, 5 r + 28, or the corners, 2 r + 14: s (5 r + 2 c +
  33) |G|_F. The sign of w_i can be wrong by c |v_i|: (c + 1) s S.
- |G u|: s (5 r + 2 c + 29) |G|_F by the cap, less at the corners; |P G u|: s (3 r + 4 c + 24) |G|_F, by the product
  with p_k, with a, |g|^2 and the norm; and it is at most |G u|.
- E. |v_i - w_i g|: (4 c + 12) |v_i|. d_i: h and l are off by r |x_i|, and h l / (h + l) and max((1 - theta) h, theta l)
  by no more. Sums, s: (n + 2 r + 4 c + 28) s S.
- back and aside. The frame is the reflection at h = g + (1, 0, ...), up to a sign, |h|^2 >= 2; it is off an orthonormal
  one by 2 (c + 5) / sqrt(2) for h, 2 (c + 3) for the products and sqrt(c) for the difference: 5 c + 14 in the spectral
  norm. Entries taken positive its norm is at most 3, so the errors of all its directions are together those of |v_i|:
  products with v_i, 3 c; with fixed, 3 (r + c); sums, n; products x_i p_k, r; s, r + 8: (n + 4 r + 9 c + 33) s S.

Roots of sums of squares are norms, whose errors add up like vectors. Where A <= Q, the root of Q^2 + 2 E A + E^2 grows
by at most sqrt(2) max(dQ, dA) + dE. The worst of the three ways to combine, at most

    s ((8 r + 6 c + 44) |G|_F + (sqrt(2) n + 6 r + 10 c + 38) S) + the error of G u,

is s (missed + gamma_(9r+6c+50) |T|_F) for each simplex, and s gamma_(2.5n+13r+15c+90) S once; and 8 roundings of the
bound. Underflows cost less than 1e-140, where some |v_i| |x_i| is about one.
"""

import math

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from bidual.numerics.rounding import gamma, rounded_up


def of_interpolation(
    missed: Float[ndarray, " m"], through: Float[ndarray, "m r c"], stretch: Float[ndarray, " m"]
) -> Float[ndarray, " m"]:
    """The addition to a bound on each simplex, if T has the residuals ``missed`` at corners."""
    r, c = through.shape[1:]
    size = np.linalg.norm(through, axis=(1, 2))
    return stretch * (missed * (1 + gamma(r + c + 16)) + gamma(9 * r + 6 * c + 50) * size)


def raised(bound: float, X: Float[ndarray, "n r"], V: Float[ndarray, "n c"], depth: int, stretch: float) -> float:
    """A bound of f on the sphere in real arithmetic, from the largest one computed on simplices so deep and wide."""
    (n, r), c = X.shape, V.shape[1]
    size = float(np.linalg.norm(V, axis=1) @ np.linalg.norm(X, axis=1)) * (1 + gamma(n + r + c + 8))
    share = stretch * gamma(2.5 * n + 13 * r + 15 * c + 90) + math.sqrt(r) * gamma(4 * depth + r + 1)
    return rounded_up(bound * (1 + gamma(8)) + share * size)
