"""Multipliers of the products that are known to be non-negative in a cell."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.polar.products.cells import Cell
from bidual.runtime.registry import Part


@dataclass(frozen=True, eq=False)
class Support(Part):
    """Which pairs of rows or clusters have a weight.

    Attributes:
        count: p, the number of rows or clusters.
        where: for each kind of :class:`Pairs`, the places k p + l.
    """

    count: int
    where: tuple[Tensor, ...]
    name = "support_of_pairs"

    @cached_property
    def places(self) -> Int[Tensor, " q"]:
        """Of all kinds."""
        return torch.cat(self.where)

    @cached_property
    def below(self) -> Int[Tensor, " q"]:
        """The places of all kinds, turned into the lower triangle."""
        first, second = self.places // self.count, self.places % self.count
        return torch.maximum(first, second) * self.count + torch.minimum(first, second)

    @cached_property
    def times(self) -> Float[Tensor, " q"]:
        """How often a weight counts in that triangle of N: twice on the diagonal."""
        return 1.0 + (self.places // self.count == self.places % self.count).double()


@dataclass(frozen=True, eq=False)
class Pairs(Part):
    r"""Non-negative weights on products of a = h + t and b = h - t, or of their sums over clusters of rows.

    ``plus`` weighs a_k a_l, ``minus`` b_k b_l, each for pairs k > l in both orders, and ``mixed`` 2 a_k b_l. With
    ``labels`` and ``shares`` a_k stands for the sum of shares_i a_i over the rows i of cluster k.

    Attributes:
        support: which pairs.
        values: for each kind, the weights.
    """

    support: Support
    values: tuple[Tensor, ...]
    labels: Int[Tensor, " m"] | None = None
    shares: Float[Tensor, " m"] | None = None
    name = "pairs_of_rows"

    @classmethod
    def none(cls, like: Tensor, count: int, labels: Tensor | None = None, shares: Tensor | None = None) -> Self:
        nowhere = torch.zeros(0, dtype=torch.long)
        return cls(Support(count, (nowhere,) * 3), (like.new_zeros(0),) * 3, labels, shares)

    @property
    def count(self) -> int:
        return self.support.count

    @property
    def where(self) -> tuple[Tensor, ...]:
        return self.support.where

    def dense(self, kind: int) -> Float[Tensor, "p p"]:
        """The weights of a kind as a matrix; of ``plus`` and ``minus`` one triangle."""
        full = self.values[kind].new_zeros(self.count * self.count)
        full[self.where[kind]] = self.values[kind]
        return full.view(self.count, self.count)

    def down(self, A: Tensor) -> Tensor:
        """S^T A: sums of rows over clusters."""
        if self.labels is None or self.shares is None:
            return A
        shares = self.shares if A.ndim == 1 else self.shares[:, None]
        return A.new_zeros(self.count, *A.shape[1:]).index_add_(0, self.labels, shares * A)

    def up(self, B: Tensor) -> Tensor:
        """S B: what clusters give to their rows."""
        if self.labels is None or self.shares is None:
            return B
        return (self.shares if B.ndim == 1 else self.shares[:, None]) * B[self.labels]

    def of_row(self, row: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights of a_i a_f, b_i b_f, a_i b_f and b_i a_f for one row f and all rows i."""
        plus, minus, mixed = (self.dense(kind) for kind in range(3))
        k = row if self.labels is None else int(self.labels[row])
        share = 1.0 if self.shares is None else float(self.shares[row])
        columns = (plus[k] + plus[:, k], minus[k] + minus[:, k], mixed[:, k], mixed[k])
        both, other, ab, ba = (share * self.up(column) for column in columns)
        return both, other, ab, ba

    def without(self, row: int) -> Self:
        """Without one row."""
        keep = torch.arange(self._rows()) != row
        if self.labels is not None and self.shares is not None:
            return replace(self, labels=self.labels[keep], shares=self.shares[keep])
        place = torch.cumsum(keep, 0) - 1
        where, values = [], []
        for at, value in zip(self.where, self.values, strict=True):
            first, second = at // self.count, at % self.count
            left = (first != row) & (second != row)
            where.append(place[first[left]] * (self.count - 1) + place[second[left]])
            values.append(value[left])
        return replace(self, support=Support(self.count - 1, tuple(where)), values=tuple(values))

    def _rows(self) -> int:
        return self.count if self.labels is None else len(self.labels)


@dataclass(frozen=True, eq=False)
class Multipliers(Part):
    r"""What a :class:`Majorant` weighs the products of a cell with (docs/product_bound.md).

    Attributes:
        omega, slack: positive; the multiplier of h_i^2 = t_i^2 is D_i = (slack_i + (N omega)_i) / omega_i, with which
            H = D - N is an M-matrix, and so positive definite.
        pairs: of products of two rows.
        on_plus, on_minus: non-negative, of a_i and b_i with the cell's forms.
        cone_plus, cone_minus: g of a_i (|g| kappa + g u) >= 0, and of b_i.
        balance: any number, of |u|^2 - |w|^2 = 0.
        form_pairs: non-negative, of products of two forms.
        form_cones: g of (P z)_k (|g| kappa + g u) >= 0.
    """

    omega: Float[Tensor, " m"]
    slack: Float[Tensor, " m"]
    pairs: Pairs
    on_plus: Float[Tensor, "m k"]
    on_minus: Float[Tensor, "m k"]
    cone_plus: Float[Tensor, "m d"]
    cone_minus: Float[Tensor, "m d"]
    balance: Float[Tensor, ""]
    form_pairs: Float[Tensor, "k k"]
    form_cones: Float[Tensor, "k d"]
    name = "product_multipliers"

    def scaled(self, factor: float) -> Self:
        """The multipliers for ``factor`` times V."""
        weights = {f.name: factor * getattr(self, f.name) for f in fields(self) if f.name not in ("omega", "pairs")}
        values = tuple(factor * value for value in self.pairs.values)
        return replace(self, pairs=replace(self.pairs, values=values), **weights)

    def compact(self) -> Self:
        """In single precision, as a witness is kept: any multipliers prove something, and these hardly less. Unchanged
        where a number has no counterpart there."""
        numbers = [self.omega, self.slack, *self.pairs.values]
        if not all(bool((part.float() > 0).all() and part.float().isfinite().all()) for part in numbers):
            return self
        return self._as(torch.float32, torch.int32)

    def wide(self) -> Self:
        """In double precision."""
        return self._as(torch.float64, torch.int64)

    def _as(self, number: torch.dtype, place: torch.dtype) -> Self:
        parts = {f.name: getattr(self, f.name).to(number) for f in fields(self) if f.name != "pairs"}
        pairs = self.pairs
        support = replace(pairs.support, where=tuple(where.to(place) for where in pairs.where))
        values = tuple(value.to(number) for value in pairs.values)
        labels = None if pairs.labels is None else pairs.labels.to(place)
        shares = None if pairs.shares is None else pairs.shares.to(number)
        return replace(self, pairs=Pairs(support, values, labels, shares), **parts)

    def inherited(self, cell: Cell, row: int, sign: int) -> Self:
        """The same weights in the half of a cell where a free row has a sign: not worse there, in real arithmetic.

        With h_f = s t_f one of a_f, b_f is 2 s t_f, twice a form, and the other is zero; h_f^2 - t_f^2 vanishes.
        """
        at = int((cell.free == row).nonzero()[0, 0])
        left = torch.arange(len(self.omega)) != at
        plus, minus, mixed, mixed_back = self.pairs.of_row(at)
        slack = self.slack + (plus + minus + mixed + mixed_back) * self.omega[at]
        unit = 2 * cell.unit(row)
        new_plus, new_minus = (plus, mixed_back) if sign > 0 else (mixed, minus)
        own, cone = (self.on_plus, self.cone_plus) if sign > 0 else (self.on_minus, self.cone_minus)
        k = self.form_pairs.shape[0]
        form_pairs = self.form_pairs.new_zeros(k + 1, k + 1)
        form_pairs[:k, :k], form_pairs[k, :k] = self.form_pairs, unit * own[at]
        return replace(
            self,
            omega=self.omega[left],
            slack=slack[left],
            pairs=self.pairs.without(at),
            on_plus=torch.cat([self.on_plus, 2 * unit * new_plus[:, None]], 1)[left],
            on_minus=torch.cat([self.on_minus, 2 * unit * new_minus[:, None]], 1)[left],
            cone_plus=self.cone_plus[left],
            cone_minus=self.cone_minus[left],
            form_pairs=form_pairs,
            form_cones=torch.cat([self.form_cones, unit * cone[at][None]]),
        )
