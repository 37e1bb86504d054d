r"""Cones over simplices of the sphere of R^r, many at once, and how to cut them.

Two halves cover their parent but for rounding, which adds up over cuts. Let u = sum_k mu_k p_k be in the parent,
mu >= 0, and L = sum_k mu_k |p_k|. The new corner is q = t (p_i + p_j) + d with |d| <= gamma_2 t |p_i + p_j|, one sum
and one quotient per entry, for any divisor 1 / t of the sum. If mu_i >= mu_j, a half contains

    u + (mu_j / t) d = (mu_i - mu_j) p_i + (mu_j / t) q + the other corners' part,

which is within gamma_2 mu_j |p_i + p_j| <= gamma_2 L of u, and whose own L is at most 1 + gamma_2 times the old one. A
unit vector of an orthant has L = |u|_1 <= sqrt(r). So every unit u has a path u_0 = u, u_1, u_2, ... through simplices,
one of every depth D until its simplex is not cut, with

    |u_D - u_E| <= sqrt(r) ((1 + gamma_2)^D - (1 + gamma_2)^E) <= sqrt(r) gamma_(2D) for E <= D, and
    L <= sqrt(r) (1 + gamma_2)^D.

Sums of numbers of one sign and quotients keep their signs: a simplex stays in its orthant, and no two corners are more
than a right angle apart.
"""

from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray


@dataclass(frozen=True, eq=False)
class Simplices:
    """Cones over simplices with r unit corners, and the signs of the rows of X there.

    Attributes:
        corners: (m, r, r), one corner per row.
        fixed: (m, c, r), the sum of v_i x_i^T over the rows known to be positive on the simplex.
        rows: (m, k), the rows of X that may have both signs, filled up with n, the index of a zero row.
        bound: (m,), of the objective on the simplex.
        edge: (m,), where to cut: r i + j for the edge from corner i to corner j.
        depth: (m,), how many cuts it is from its orthant.
    """

    corners: Float[ndarray, "m r r"]
    fixed: Float[ndarray, "m c r"]
    rows: Int[ndarray, "m k"]
    bound: Float[ndarray, " m"]
    edge: Int[ndarray, " m"]
    depth: Int[ndarray, " m"]

    @classmethod
    def orthants(cls, n: int, r: int, c: int) -> "Simplices":
        """The 2^r orthants, which cover the sphere."""
        corners = np.array([np.diag(signs) for signs in product([1.0, -1.0], repeat=r)])
        m = len(corners)
        rows = np.tile(np.arange(n), (m, 1))
        edge, depth = np.zeros((2, m), dtype=np.int64)
        return cls(corners, np.zeros((m, c, r)), rows, np.full(m, np.inf), edge, depth)

    def __len__(self) -> int:
        return len(self.corners)

    def take(self, which: ndarray | slice) -> "Simplices":
        return Simplices(*(getattr(self, part.name)[which] for part in fields(self)))

    def packed(self, n: int) -> "Simplices":
        """The same with no more columns of ``rows`` than needed."""
        width = max(int((self.rows < n).sum(1).max(initial=0)), 1)
        rows = np.sort(self.rows, axis=1)[:, :width]
        return replace(self, rows=rows)

    def halved(self) -> "Simplices":
        """Each simplex cut at the middle of its edge."""
        m, r, _ = self.corners.shape
        each, i, j = np.arange(m), self.edge // r, self.edge % r
        middle = self.corners[each, i] + self.corners[each, j]
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
        halves = np.repeat(self.corners[None], 2, axis=0)
        halves[0, each, i] = halves[1, each, j] = middle
        rest = [np.concatenate([part, part]) for part in (self.fixed, self.rows, self.bound, self.edge, self.depth + 1)]
        return Simplices(halves.reshape(2 * m, r, r), *rest)

    def wider_than(self, width: float) -> Bool[ndarray, " m"]:
        return np.abs(self.corners - self.corners[:, :1]).max((1, 2)) > width


def join(parts: list[Simplices], n: int) -> Simplices:
    """One batch of several."""
    width = max(part.rows.shape[1] for part in parts)
    rows = [np.pad(part.rows, ((0, 0), (0, width - part.rows.shape[1])), constant_values=n) for part in parts]
    names = [part.name for part in fields(Simplices) if part.name != "rows"]
    whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Simplices(rows=np.concatenate(rows), **whole)
