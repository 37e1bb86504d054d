r"""The quadratic form that bounds a neuron in a cell, for given multipliers (docs/product_bound.md).

With t = X u, h = |t|, a = h + t, b = h - t, all products that :class:`Multipliers` weighs are non-negative or zero, so

    2 w^T V^T (X u)_+ = w^T V^T a <= w^T V^T a + (weighted products) =: F(z, h) <= max over h of F(z, h) = z^T C z,

and with |w| = |u| = 1 no neuron of the cell is steeper than the largest eigenvalue of C. The maximum is at h = Y z.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.eigenvalue_bounds import symmetric
from bidual.polar.products.cells import Cell
from bidual.polar.products.multipliers import Multipliers, Pairs
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

    @cached_property
    def _dense(self) -> tuple[Tensor, Tensor, Tensor]:
        plus, minus, mixed = (self.at.pairs.dense(kind) for kind in range(3))
        return plus, minus, mixed

    def _times(self, A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """N_aa A, N_bb A, N_ab A and N_ab^T A, for clusters where there are any."""
        plus, minus, mixed = self._dense
        return plus @ A + plus.T @ A, minus @ A + minus.T @ A, mixed @ A, mixed.T @ A

    @cached_property
    def _products(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The four parts of N times X, and N omega."""
        c, pairs = self.cell.n_outputs, self.at.pairs
        parts = self._times(pairs.down(torch.cat([self.cell.pre[:, c:], self.at.omega[:, None]], 1)))
        weight = pairs.up(_total([part[:, -1] for part in parts]))
        aa, bb, ab, ba = (pairs.up(part[:, :-1]) for part in parts)
        return aa, bb, ab, ba, weight

    @cached_property
    def diagonal(self) -> Float[Tensor, " m"]:
        """D."""
        return (self.at.slack + self._products[4]) / self.at.omega

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        """The forms that a and b are multiplied with."""
        at, cell = self.at, self.cell
        plus = at.on_plus @ cell.forms + cone_rows(cell, at.cone_plus)
        return plus, at.on_minus @ cell.forms + cone_rows(cell, at.cone_minus)

    @cached_property
    def _solved(self) -> tuple[Tensor, Tensor] | None:
        """L^T H^-1 L and Y = -H^-1 L, where h meets z by -2 h^T L z; None where H is not positive definite.

        H = D - S K S^T, with S the identity or clusters: with T^2 = S^T D^-1 S, a diagonal, and Z = T^-1 S^T D^-1 L,
        H^-1 L = D^-1 (L + S T^-1 ((I - T K T)^-1 - I) Z) by Woodbury's formula.
        """
        c, pairs, D = self.cell.n_outputs, self.at.pairs, self.diagonal
        plus, minus = self._rows
        aa, bb, ab, ba, _ = self._products
        L = -0.5 * (plus + minus)
        L[:, :c] -= 0.5 * self.V[self.cell.free]
        L[:, c:] -= aa - bb - ab + ba
        T = pairs.down(_shares(pairs, D) / D).clamp(min=1e-300).sqrt()
        Z = pairs.down(L / D[:, None]) / T[:, None]
        inner = torch.zeros_like(self._dense[0])
        for part in self._dense:
            inner -= part + part.T
        inner = T[:, None] * inner * T
        inner.diagonal().add_(1)
        root, info = torch.linalg.cholesky_ex(inner)
        if int(info):
            return None
        W = torch.linalg.solve_triangular(root, Z, upper=False)
        Q = torch.linalg.solve_triangular(root.T, W, upper=True)
        quadratic = W.T @ W
        if pairs.labels is not None:
            quadratic += L.T @ (L / D[:, None]) - Z.T @ Z
        return quadratic, -(L + pairs.up((Q - Z) / T[:, None])) / D[:, None]

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
        aa, bb, ab, ba, _ = self._products
        X = cell.pre[:, c:]
        met = plus - minus
        met[:, :c] += self.V[cell.free]
        C = cell.pre.T @ met + cell.forms.T @ (at.form_pairs @ cell.forms + cone_rows(cell, at.form_cones))
        C[c:, c:] += X.T @ (self.diagonal[:, None] * X + aa + bb - ab - ba)
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
        weighed = _total(self._times(sums[4]))
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
            self._of_pairs(sums, [(at // pairs.count, at % pairs.count) for at in pairs.where]),
            None if pairs.labels is None else self._of_shares(A, B, sums, f, weighed),
        )

    def slopes_everywhere(self, M: Tensor, places: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """The derivatives of <C, M> in the weights of pairs at other places than those that have a weight."""
        assert self.Y is not None
        A, B = self.Y + self.cell.pre, self.Y - self.cell.pre
        f = -((A @ M) * B).sum(1) / self.at.omega
        return self._of_pairs([self.at.pairs.down(part) for part in (A, B, A @ M, B @ M, f, self.at.omega)], places)

    def _of_pairs(self, sums: list[Tensor], places: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        A, B, MA, MB, f, omega = sums
        kinds = ((MA, A), (MB, B), (MA, B))
        return [
            2 * (left @ right.T)[i, j] + f[i] * omega[j] + f[j] * omega[i]
            for (i, j), (left, right) in zip(places, kinds, strict=True)
        ]

    def _of_shares(self, A: Tensor, B: Tensor, sums: list[Tensor], f: Tensor, weighed: Tensor) -> Tensor:
        labels, omega = self.at.pairs.labels, self.at.omega
        (aa, _, _, ba), (_, bb, ab, _) = self._times(sums[2]), self._times(sums[3])
        met = 2 * (((aa + ab)[labels] * A).sum(1) + ((bb + ba)[labels] * B).sum(1))
        by_omega = _total(self._times(sums[5]))
        return met + f * by_omega[labels] + omega * weighed[labels]


def _total(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0)


def _shares(pairs: Pairs, D: Tensor) -> Tensor:
    return torch.ones_like(D) if pairs.shares is None else pairs.shares
