r"""The quadratic form that bounds a neuron in a cell, for given multipliers (docs/product_bound.md).

With t = X u, h = |t|, a = h + t, b = h - t, all products that :class:`Multipliers` weighs are non-negative or zero, so

    2 w^T V^T (X u)_+ = w^T V^T a <= w^T V^T a + (weighted products) =: F(z, h) <= max over h of F(z, h) = z^T C z,

and with |w| = |u| = 1 no neuron of the cell is steeper than the largest eigenvalue of C. The maximum is at h = Y z.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.eigenvalue_bounds import symmetric
from bidual.polar.products.cells import Cell
from bidual.polar.products.multipliers import Multipliers
from bidual.types import Matrix


def cone_rows(cell: Cell, g: Float[Tensor, "m d"]) -> Float[Tensor, "m z"]:
    """The forms |g| kappa + g u, which are not negative."""
    rows = torch.linalg.vector_norm(g, dim=1)[:, None] * cell.norm_form
    rows[:, cell.n_outputs :] += g
    return rows


@dataclass(frozen=True, eq=False)
class Majorant:
    """C and Y for a dual point V and multipliers; V has a row for every row of the cell's X."""

    cell: Cell
    V: Matrix
    at: Multipliers

    @cached_property
    def _N(self) -> tuple[Tensor, Tensor, Tensor]:
        """N_aa, N_bb and N_ab, of clusters where there are any."""
        plus, minus, mixed = (self.at.pairs.dense(kind) for kind in range(3))
        return plus + plus.T, minus + minus.T, mixed

    @cached_property
    def _products(self) -> tuple[Tensor, Tensor]:
        """(N_aa - N_bb - N_ab + N_ab^T) X and (N_aa + N_bb - N_ab - N_ab^T) X."""
        pairs, (plus, minus, mixed) = self.at.pairs, self._N
        X = pairs.down(self.cell.pre[:, self.cell.n_outputs :])
        return pairs.up((plus - minus - mixed + mixed.T) @ X), pairs.up((plus + minus - mixed - mixed.T) @ X)

    @cached_property
    def _N_of_all(self) -> Float[Tensor, "p p"]:
        plus, minus, mixed = self._N
        return plus + minus + mixed + mixed.T

    @cached_property
    def diagonal(self) -> Float[Tensor, " m"]:
        """D."""
        pairs = self.at.pairs
        return (self.at.slack + pairs.up(self._N_of_all @ pairs.down(self.at.omega))) / self.at.omega

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        """The forms that a and b are multiplied with."""
        at, cell = self.at, self.cell
        plus = at.on_plus @ cell.forms + cone_rows(cell, at.cone_plus)
        return plus, at.on_minus @ cell.forms + cone_rows(cell, at.cone_minus)

    @cached_property
    def _solved(self) -> tuple[Tensor, Tensor] | None:
        """L^T H^-1 L and Y = -H^-1 L, where h meets z by -2 h^T L z; None where H is not positive definite.

        H = D - S K S^T, with S the identity or clusters. With t = S^T D^-1 S, a diagonal, G = t^-1 - K and
        z = t^-1 S^T D^-1 L, H^-1 L = D^-1 (L + S (t^-1 G^-1 z - z)) by Woodbury's formula; without clusters G is H.
        """
        c, pairs, D = self.cell.n_outputs, self.at.pairs, self.diagonal
        plus, minus = self._rows
        L = -0.5 * (plus + minus)
        L[:, :c] -= 0.5 * self.V[self.cell.free]
        L[:, c:] -= self._products[0]
        if pairs.shares is None:
            solved = self._inverse(D, L)
            return None if solved is None else (solved[0], -solved[1])
        inverse = 1 / pairs.down(pairs.shares / D).clamp(min=1e-100)
        sums = pairs.down(L / D[:, None])
        z = inverse[:, None] * sums
        solved = self._inverse(inverse, z)
        if solved is None:
            return None
        quadratic = solved[0] + L.T @ (L / D[:, None]) - sums.T @ z
        return quadratic, -(L + pairs.up(inverse[:, None] * solved[1] - z)) / D[:, None]

    def _inverse(self, diagonal: Tensor, z: Tensor) -> tuple[Tensor, Tensor] | None:
        """z^T G^-1 z and G^-1 z, where G is the diagonal less N; None where it is not positive definite."""
        root, info = torch.linalg.cholesky_ex(torch.diag(diagonal) - self._N_of_all)
        if int(info):
            return None
        W = torch.linalg.solve_triangular(root, z, upper=False)
        return W.T @ W, torch.linalg.solve_triangular(root.T, W, upper=True)

    @property
    def Y(self) -> Float[Tensor, "m z"] | None:
        """The h = Y z at which F is largest."""
        return None if self._solved is None else self._solved[1]

    @cached_property
    def C(self) -> Float[Tensor, "z z"] | None:
        """The majorant; None where H is not positive definite in floating point."""
        if self._solved is None:
            return None
        c, cell, at = self.cell.n_outputs, self.cell, self.at
        plus, minus = self._rows
        X = cell.pre[:, c:]
        met = plus - minus
        met[:, :c] += self.V[cell.free]
        C = cell.pre.T @ met + cell.forms.T @ (at.form_pairs @ cell.forms + cone_rows(cell, at.form_cones))
        C[c:, c:] += X.T @ (self.diagonal[:, None] * X + self._products[1])
        C[c:, :c] += 2 * cell.X[cell.positive].T @ self.V[cell.positive]
        C = symmetric(C) + self._solved[0]
        C.diagonal().add_(at.balance * cell.balance)
        return C

    def moments(self, M: Float[Tensor, "z z"]) -> tuple[Tensor, Tensor, Tensor]:
        """The moments of a, of b and of the cell's forms with z: derivatives of <C, M> in the rows that they meet."""
        assert self.Y is not None
        return (self.Y + self.cell.pre) @ M, (self.Y - self.cell.pre) @ M, self.cell.forms @ M

    def slopes(self, M: Float[Tensor, "z z"], places: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """The derivatives of <C, M> in the weights of pairs, for each kind at its places (rows, columns).

        By Danskin's theorem they are those of F at h = Y z, with D_i = (slack_i + (N omega)_i) / omega_i in it.
        """
        assert self.Y is not None
        pairs, (MA, MB, _) = self.at.pairs, self.moments(M)
        A, B = self.Y + self.cell.pre, self.Y - self.cell.pre
        f = -(MA * B).sum(1) / self.at.omega  # t^2 - h^2 = -a b
        A, B, MA, MB, f, omega = (pairs.down(part) for part in (A, B, MA, MB, f, self.at.omega))
        both = torch.outer(f, omega)
        both = both + both.T
        kinds = zip(places, ((MA, A), (MB, B), (MA, B)), strict=True)
        return [(2 * left @ right.T + both)[i, j] for (i, j), (left, right) in kinds]
