r"""Caps of the sphere around simplices, and the largest values of linear functions and of forms on them.

A cap has the computed centre m, and its angle b has the sine that is stored; the cosine that is stored is cos(b) to
gamma_3. Corners p and m have length one to gamma_(r+3): r squares and sums, a root, a quotient.

A corner's angle to m has the sine |t| / |p|, t = p - (p m) m / |m|^2. The computed t is off by gamma_r from the
product, by gamma_(2r+7) because |m|^2 is not one, and by 2 roundings; with the length of t, and |p|, that makes
gamma_(5r+18), which ``around`` adds to the sine. So all of the cone is within b of m; and if u = sum_k mu_k p_k is a
unit vector of the cone, m u / |m| >= sum_k mu_k |p_k| cos(b), hence

    sum_k mu_k |p_k| <= s (1 + gamma_3),   sum_k mu_k <= s (1 + gamma_(r+7)),   s = 1 / cosine.

Linear functions: a u <= phi(a m, |a - (a m) m|) for unit m, where phi(x, y) = max of x cos(t) + y sin(t) over
0 <= t <= b is 1-Lipschitz. The computed pair is off by gamma_(5r+15) |a| (2 r + 4 and 4 r + 14 operations), the value
of phi by gamma_6 |a| where x cos(b) + y sin(b) is right, and by as much again where the test whether y / x is beyond
tan(b) was wrong by its 6 roundings. So ``highest`` is right to gamma_(5r+28) |a|.

Forms: let f and R be the computed G m and G - G m m^T, off by gamma_(2r+4) |G|_F and gamma_(3r+11) |G|_F. The
map that is f on m and R across is within gamma_(4r+12) |G|_F of G, and its square on u = cos(t) m + sin(t) e is at most

    h(t) = q cos(t)^2 + 2 p sin(t) cos(t) + l sin(t)^2,   q = |f|^2,   p = |R^T f|,   l = |R|^2,

by f and R exactly as they are stored. h rises to b if 2 p cos(2b) >= (q - l) sin(2b); it never exceeds
(q + l) / 2 + |((q - l) / 2, p)|. The error gamma_c |R|_F |f| of p costs sqrt(h) >= |f| no more than gamma_c |G|_F, the
relative ones of q, p and h no more than gamma_(r+c+16) |G|_F; l is proved. So the root of ``square`` is right to
gamma_(5r+2c+29) |G|_F.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from bidual.numerics.rounding import gamma

_TINY = 1e-300


class Cap(NamedTuple):
    """The smallest cap around the mean of the corners that contains them; its cosine is NaN if it is no acute one."""

    centre: Float[ndarray, "m r"]
    cosine: Float[ndarray, " m"]
    sine: Float[ndarray, " m"]

    @classmethod
    def around(cls, corners: Float[ndarray, "m r r"]) -> "Cap":
        mean = corners.sum(1)
        centre = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        along = apply(corners, centre)
        across = np.linalg.norm(corners - along[:, :, None] * centre[:, None, :], axis=2)
        sine = across.max(1) + gamma(5 * corners.shape[1] + 18)  # sqrt(1 - cos^2) would lose it
        square = (1 - sine) * (1 + sine)
        return cls(centre, np.sqrt(np.where((along.min(1) > 0) & (square > 0), square, np.nan)), sine)

    def take(self, which: ndarray) -> "Cap":
        return Cap(*(part[which] for part in self))

    def project(self, a: Float[ndarray, "m r"]) -> Float[ndarray, "m r"]:
        """The point of the cone over the cap that is nearest to a."""
        return self._nearest(a, *self._split(a))

    def highest(self, a: Float[ndarray, "m r"]) -> tuple[Float[ndarray, "m r"], Float[ndarray, " m"]]:
        """That point, and the largest a u over unit u in the cap, 0 if it is negative."""
        along, across, length = self._split(a)
        inside = length * self.cosine <= along * self.sine
        most = np.where(inside, np.sqrt(along**2 + length**2), self._on_edge(along, length))
        return self._nearest(a, along, across, length), most

    def square(self, G: Float[ndarray, "m c r"]) -> Float[ndarray, " m"]:
        """A bound of |G u|^2 over unit u in the cap."""
        forth = apply(G, self.centre)
        rest = G - forth[:, :, None] * self.centre[:, None, :]
        q, p = (forth**2).sum(1), np.linalg.norm(apply(rest.transpose(0, 2, 1), forth), axis=1)
        top = largest_square(rest)
        slope = p * (self.cosine - self.sine) * (self.cosine + self.sine) - (q - top) * self.sine * self.cosine
        end = q * self.cosine**2 + 2 * p * self.sine * self.cosine + top * self.sine**2
        peak = (q + top) / 2 + np.sqrt(((q - top) / 2) ** 2 + p**2)
        return np.where(slope >= gamma(16) * (p + q + top), end, peak)

    def _split(self, a: Float[ndarray, "m r"]) -> tuple[ndarray, ndarray, ndarray]:
        """a m, a - (a m) m, and the length of that."""
        along = (a * self.centre).sum(1)
        across = a - along[:, None] * self.centre
        return along, across, np.linalg.norm(across, axis=1)

    def _on_edge(self, along: ndarray, length: ndarray) -> Float[ndarray, " m"]:
        return np.maximum(along * self.cosine + length * self.sine, 0)

    def _nearest(self, a: ndarray, along: ndarray, across: ndarray, length: ndarray) -> Float[ndarray, "m r"]:
        side = self.cosine[:, None] * self.centre + (self.sine / np.maximum(length, _TINY))[:, None] * across
        inside = length * self.cosine <= along * self.sine
        return np.where(inside[:, None], a, self._on_edge(along, length)[:, None] * side)


def largest_square(A: Float[ndarray, "m c r"], squarings: int = 3) -> Float[ndarray, " m"]:
    r"""Upper bounds of |A|^2, squares of spectral norms, which hold in real arithmetic; exact for two rows or columns.

    With N the Gram matrix of the short side k over its trace, and N' = N N^T, |N'| is |N|^2 (1 - k gamma_k) or more,
    because |N|_F^2 <= k |N|^2. After some steps |N|_F^(1/2^steps) is near to the |N| of the beginning, and above it to
    gamma_(k k). The Gram matrix is off by gamma_(q + 1) times its trace, q the long side, and the trace by gamma_(k+q).
    """
    short = A if A.shape[1] <= A.shape[2] else A.transpose(0, 2, 1)
    k, q = short.shape[1:]
    M = short @ short.transpose(0, 2, 1)
    trace = np.trace(M, axis1=1, axis2=2)
    if k == 2:
        top = trace / 2 + np.sqrt(((M[:, 0, 0] - M[:, 1, 1]) / 2) ** 2 + M[:, 1, 0] ** 2)
    else:
        top = trace * _norm_by_squaring(M / np.where(trace > 0, trace, 1)[:, None, None], squarings)
    return top + gamma(k * k + k + 2 * q + 16) * trace


def _norm_by_squaring(N: Float[ndarray, "m k k"], squarings: int) -> Float[ndarray, " m"]:
    for _ in range(squarings):
        N = N @ N.transpose(0, 2, 1)
    size = np.linalg.norm(N, axis=(1, 2))
    for _ in range(squarings):
        size = np.sqrt(size)
    return size


def apply(A: Float[ndarray, "m p q"], x: Float[ndarray, "m q"]) -> Float[ndarray, "m p"]:
    """Each matrix times its own vector."""
    return (A @ x[:, :, None])[:, :, 0]
