r"""The bound of a cell's steepest neuron, proved in floating point for any multipliers (docs/product_bound.md).

For every Y, F(z, h) is F(z, Y z) + 2 (h - Y z)^T R z - (h - Y z)^T H (h - Y z) with

    R = N_aa A + N_bb B + N_ab B + N_ab^T A - D Y + ((V 0) + G_a + G_b) / 2,   A = Y + E,  B = Y - E,

so its maximum over h is at most F(z, Y z) + (R z)^T H^-1 (R z). H omega >= e > 0 with N >= 0 proves
H >= diag(e / omega) (2 x_i x_j <= x_i^2 omega_j / omega_i + x_j^2 omega_i / omega_j). So

    largest eigenvalue of the matrix of F(z, Y z)  +  sum_i (omega_i / e_i) |R_i|^2

bounds the steepest neuron, whatever Y and the multipliers are; no factorisation is trusted. All entries are polynomials
of the given numbers, so each is off by at most gamma_k times the same polynomial of their absolute values, where k
counts the roundings that a term passes.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from bidual.numerics.eigenvalue_bounds import largest_eigenvalues, symmetric
from bidual.numerics.rounding import gamma, length, rounded_up
from bidual.polar.products.cells import Cell
from bidual.polar.products.majorant import Majorant
from bidual.polar.products.multipliers import Multipliers, Pairs
from bidual.types import Matrix

_LARGEST = 1e30  # of any number that goes in; underflows are then far below the allowance for them
_UNDERFLOW = 1e-200


def proved_bound(cell: Cell, V: Matrix, at: Multipliers) -> float:
    """An upper bound of w^T V^T (X u)_+ over neurons of a cell with |w| = |u| = 1; infinity where none is proved."""
    majorant = Majorant(cell, V, at)
    if majorant.Y is None or not _valid(cell, at):
        return math.inf
    numbers = _Numbers.of(majorant, majorant.Y)
    if not all(bool((part.abs() <= _LARGEST).all()) for part in numbers.all()):
        return math.inf
    depth = 2 * len(V) + 2 * at.pairs.count + 2 * len(cell.forms) + cell.size + 64  # roundings of a term, at most
    error = gamma(depth) * (1 + gamma(depth))
    sizes = numbers.absolute()
    slack = numbers.dominance() - error * sizes.dominance() - _UNDERFLOW
    if not bool((slack > 0).all()):
        return math.inf
    residual = numbers.residual().abs() + error * sizes.residual() + _UNDERFLOW
    rest = float((at.omega / slack * residual.square().sum(1)).sum()) * (1 + gamma(depth))
    top = float(largest_eigenvalues(symmetric(numbers.form())[None])[0])
    return max(rounded_up(top + rounded_up(error * length(sizes.form()) + rest + _UNDERFLOW)), 0.0)


def _valid(cell: Cell, at: Multipliers) -> bool:
    """Whether what must not be negative is not, and cones are used only where signs are known."""
    weights = (at.on_plus, at.on_minus, at.form_pairs, *at.pairs.values)
    cones = (at.cone_plus, at.cone_minus, at.form_cones)
    signed = cell.signs is not None or not any(bool(g.any()) for g in cones)
    shares = at.pairs.shares is None or bool((at.pairs.shares >= 0).all())
    return signed and shares and bool((at.omega > 0).all()) and all(bool((w >= 0).all()) for w in weights)


@dataclass(frozen=True, eq=False)
class _Numbers:
    """What the polynomials of the proof are made of; with ``minus`` = 1 they are those of absolute values."""

    E: Tensor
    V: Tensor
    Y: Tensor
    D: Tensor
    omega: Tensor
    pairs: Pairs
    P: Tensor
    plus: tuple[Tensor, Tensor, Tensor]  # weights of forms, lengths and directions of cones
    minus_rows: tuple[Tensor, Tensor, Tensor]
    forms: tuple[Tensor, Tensor, Tensor]
    kappa: Tensor
    balance: Tensor
    active: tuple[Tensor, Tensor]  # pre-activations and V of the fixed rows that are active
    minus: float = -1.0

    @classmethod
    def of(cls, majorant: Majorant, Y: Tensor) -> Self:
        cell, at, V = majorant.cell, majorant.at, majorant.V
        c = cell.n_outputs

        def padded(M: Tensor) -> Tensor:
            return torch.nn.functional.pad(M, (0, cell.size - c))

        def on_u(g: Tensor) -> Tensor:
            return torch.nn.functional.pad(g, (c, 0))

        cones = [(_lengths(g), on_u(g)) for g in (at.cone_plus, at.cone_minus, at.form_cones)]
        return cls(
            cell.pre,
            padded(V[cell.free]),
            Y,
            majorant.diagonal,
            at.omega,
            at.pairs,
            cell.forms,
            (at.on_plus, *cones[0]),
            (at.on_minus, *cones[1]),
            (at.form_pairs, *cones[2]),
            cell.norm_form,
            at.balance * cell.balance,
            (on_u(cell.X[cell.positive]), padded(V[cell.positive])),
        )

    def all(self) -> list[Tensor]:
        single = [self.E, self.V, self.Y, self.D, self.omega, self.P, self.kappa, self.balance, *self.active]
        shares = [] if self.pairs.shares is None else [self.pairs.shares]
        return [*single, *self.plus, *self.minus_rows, *self.forms, *self.pairs.values, *shares]

    def absolute(self) -> Self:
        """The same with absolute values, and plus for minus."""

        def positive(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(part.abs() for part in value)
            return value.abs() if isinstance(value, Tensor) else value

        values = {field.name: positive(getattr(self, field.name)) for field in fields(self)}
        return replace(self, **values | {"minus": 1.0})

    def _rows(self, parts: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        weights, lengths, directions = parts
        return weights @ self.P + lengths[:, None] * self.kappa + directions

    def _both(self) -> tuple[Tensor, Tensor]:
        return self.Y + self.E, self.Y + self.minus * self.E

    def _met(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """N_aa A, N_bb B, N_ab B, N_ab^T A."""
        plus, minus, mixed = (self.pairs.dense(kind) for kind in range(3))
        A, B = (self.pairs.down(part) for part in self._both())
        met = (plus @ A + plus.T @ A, minus @ B + minus.T @ B, mixed @ B, mixed.T @ A)
        aa, bb, ab, ba = (self.pairs.up(part) for part in met)
        return aa, bb, ab, ba

    def dominance(self) -> Tensor:
        """H omega."""
        plus, minus, mixed = (self.pairs.dense(kind) for kind in range(3))
        omega = self.pairs.down(self.omega)
        both = plus + plus.T + minus + minus.T + mixed + mixed.T
        return self.D * self.omega + self.minus * self.pairs.up(both @ omega)

    def residual(self) -> Tensor:
        """R."""
        rows = 0.5 * (self.V + self._rows(self.plus) + self._rows(self.minus_rows))
        return torch.stack(self._met()).sum(0) + self.minus * self.D[:, None] * self.Y + rows

    def form(self) -> Tensor:
        """The matrix of F(z, Y z), not symmetric yet."""
        A, B = self._both()
        aa, bb, ab, _ = self._met()
        T = A.T @ (self.V + self._rows(self.plus) + aa + 2 * ab) + B.T @ (self._rows(self.minus_rows) + bb)
        T += self.E.T @ (self.D[:, None] * self.E) + self.minus * (self.Y.T @ (self.D[:, None] * self.Y))
        T += self.P.T @ self._rows(self.forms) + 2 * self.active[0].T @ self.active[1]
        return T + torch.diag(self.balance)


def _lengths(g: Tensor) -> Tensor:
    """Upper bounds of the lengths of rows; squares must not underflow unnoticed."""
    return torch.linalg.vector_norm(g, dim=1) * (1 + gamma(g.shape[1] + 8)) + 1e-150 * g.any(1).to(g)
