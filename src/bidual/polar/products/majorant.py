r"""The quadratic form that bounds a neuron in a cell, for given multipliers (docs/product_bound.md).

With t = X u, h = |t|, a = h + t, b = h - t, all products that :class:`Multipliers` weighs are non-negative or zero, so

    2 w^T V^T (X u)_+ = w^T V^T a <= w^T V^T a + (weighted products) =: F(z, h) <= max over h of F(z, h) = z^T C z,

and with |w| = |u| = 1 no neuron of the cell is steeper than the largest eigenvalue of C. The maximum is at h = Y z.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.eigenvalue_bounds import symmetric
from bidual.polar.products.cells import Cell
from bidual.polar.products.multipliers import Multipliers, Workspace
from bidual.types import Matrix


class Slopes(NamedTuple):
    """The derivatives of <C, M> in V, in the rows of forms that a, b and the cell's forms meet, and in the rest."""

    V: Matrix
    plus: Float[Tensor, "m z"]
    minus: Float[Tensor, "m z"]
    cones: Float[Tensor, "k z"]
    form_pairs: Float[Tensor, "k k"]
    balance: Float[Tensor, ""]
    slack: Float[Tensor, " m"]
    omega: Float[Tensor, " m"]
    pairs: list[Tensor]
    shares: Float[Tensor, " m"] | None


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
    space: Workspace = field(default_factory=Workspace)

    @cached_property
    def _products(self) -> tuple[Tensor, Tensor]:
        """(N_aa - N_bb - N_ab + N_ab^T) X, and half of (N_aa + N_bb - N_ab - N_ab^T) X up to what is antisymmetric."""
        pairs = self.at.pairs
        X = pairs.down(self.cell.pre[:, self.cell.n_outputs :])
        matrix = self.space.matrix("combined", pairs.count)
        skew = pairs.combined((1.0, -1.0, -1.0), matrix) @ X
        skew += pairs.combined((1.0, -1.0, 1.0), matrix).T @ X
        return pairs.up(skew), pairs.up(pairs.combined((1.0, 1.0, -1.0), matrix) @ X)

    def _N_times(self, x: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """N x, for clusters where there are any."""
        below = self.at.pairs.below(self.space.matrix("below", self.at.pairs.count))
        return below @ x + below.T @ x - below.diagonal() * x

    @cached_property
    def diagonal(self) -> Float[Tensor, " m"]:
        """D."""
        pairs = self.at.pairs
        return (self.at.slack + pairs.up(self._N_times(pairs.down(self.at.omega)))) / self.at.omega

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
        G = self.at.pairs.below(self.space.matrix("below", len(diagonal))).neg_()
        G.diagonal().add_(diagonal)
        root, info = torch.linalg.cholesky_ex(G)
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
        C[c:, c:] += X.T @ (self.diagonal[:, None] * X + 2 * self._products[1])
        C[c:, :c] += 2 * cell.X[cell.positive].T @ self.V[cell.positive]
        C = symmetric(C) + self._solved[0]
        C.diagonal().add_(at.balance * cell.balance)
        return C

    def slopes(self, M: Float[Tensor, "z z"]) -> Slopes:
        """The derivatives of <C, M>; by Danskin's theorem those of F at h = Y z."""
        assert self.Y is not None
        c, cell, at, pairs = self.cell.n_outputs, self.cell, self.at, self.at.pairs
        A, B = self.Y + cell.pre, self.Y - cell.pre  # of a and b
        MA, MB = A @ M, B @ M
        of_D = -(MA * B + MB * A).sum(1) / 2  # t^2 - h^2 = -a b
        f = of_D / at.omega
        V = torch.zeros_like(self.V)
        V[cell.free] = MA[:, :c]
        V[cell.positive] = 2 * cell.X[cell.positive] @ M[c:, :c]
        sums = [pairs.down(part) for part in (A, B, MA, MB, f, at.omega)]
        weighed = self._N_times(sums[4])
        of_omega = pairs.up(weighed) - of_D * self.diagonal / at.omega
        form_slopes = cell.forms @ M
        return Slopes(
            V,
            MA,
            MB,
            form_slopes,
            form_slopes @ cell.forms.T,
            (M.diagonal() * cell.balance).sum(),
            f,
            of_omega,
            self._of_pairs(sums, pairs.where, pairs.support.ends),
            None if pairs.labels is None else self._of_shares(A, B, sums, f, weighed),
        )

    def slopes_everywhere(self, M: Tensor, places: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """The derivatives of <C, M> in the weights of pairs at other places than those that have a weight."""
        assert self.Y is not None
        A, B = self.Y + self.cell.pre, self.Y - self.cell.pre
        f = -((A @ M) * B).sum(1) / self.at.omega
        sums = [self.at.pairs.down(part) for part in (A, B, A @ M, B @ M, f, self.at.omega)]
        return self._of_pairs(sums, [i * self.at.pairs.count + j for i, j in places], places)

    def _of_pairs(
        self, sums: list[Tensor], where: Sequence[Tensor], ends: Sequence[tuple[Tensor, Tensor]]
    ) -> list[Tensor]:
        A, B, MA, MB, f, omega = sums
        product = self.space.matrix("combined", len(A))
        slopes = []
        for at, (i, j), (left, right) in zip(where, ends, ((MA, A), (MB, B), (MA, B)), strict=True):
            met = torch.mm(left, right.T, out=product).view(-1).index_select(0, at)
            slopes.append(2 * met + f[i] * omega[j] + f[j] * omega[i])
        return slopes

    def _of_shares(self, A: Tensor, B: Tensor, sums: list[Tensor], f: Tensor, weighed: Tensor) -> Tensor:
        pairs = self.at.pairs
        labels, omega = pairs.labels, self.at.omega
        plus, minus, mixed = (pairs.dense(kind) for kind in range(3))
        _, _, MA, MB, _, sum_omega = sums
        of_a = plus @ MA + plus.T @ MA + mixed @ MB
        of_b = minus @ MB + minus.T @ MB + mixed.T @ MA
        met = 2 * ((of_a[labels] * A).sum(1) + (of_b[labels] * B).sum(1))
        return met + f * self._N_times(sum_omega)[labels] + omega * weighed[labels]
