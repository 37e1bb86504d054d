"""The price Omega of a lifted variable, its polar, and optional abilities of a gauge."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from bidual.numerics.rounding import gamma, rounded_up
from bidual.types import Blocks


@dataclass(frozen=True)
class Bracket:
    """An interval around a number: certificates divide by ``upper``, which is proved; searches raise ``lower``."""

    lower: float
    upper: float


class Factors(NamedTuple):
    """Neurons of every block: Z_p = U_p W_p^T with U (p, a, m) and W (p, b, m)."""

    U: Tensor
    W: Tensor


class Gauge(ABC):
    r"""A gauge Omega of Z (p, a, b): convex, non-negative, positively homogeneous, zero at zero only.

    Its polar is Omega°(G) = sup { <G, Z> : Omega(Z) <= 1 }, so <G, Z> <= Omega°(G) Omega(Z).
    """

    name: ClassVar[str]

    def value(self, Z: Blocks) -> float:
        """Omega(Z)."""
        _three_dimensional(Z)
        return self._value(Z)

    def polar(self, G: Blocks) -> Bracket:
        """Omega°(G), bracketed; G is scaled to size one first, because squares of its entries may overflow."""
        _three_dimensional(G)
        size = float(G.abs().max()) if G.numel() else 0.0
        if size == 0 or not math.isfinite(size):
            return Bracket(size, size) if size == 0 else Bracket(0.0, math.inf)
        bracket = self._polar(G / size)
        entries = G.shape[1] * G.shape[2]
        error = gamma(4, G.dtype) * self.per_frobenius(*G.shape[1:]) * entries**0.5  # of G / size, at most one each
        return Bracket(size * bracket.lower, rounded_up(size * (bracket.upper + error)))

    def upper_bound(self, Z: Blocks) -> float:
        """An upper bound of Omega(Z) in real arithmetic, tight up to rounding."""
        _three_dimensional(Z)
        size = float(Z.abs().max()) if Z.numel() else 0.0
        if size == 0 or not math.isfinite(size):
            return size
        return rounded_up(size * self._upper_bound(Z / size) * (1 + gamma(4, Z.dtype)))

    def per_frobenius(self, rows: int, cols: int) -> float:
        """The largest Omega°(G) of one block (rows, cols) with |G|_F = 1."""
        return math.sqrt(rows * cols)

    def n_atoms(self, Z: Blocks) -> int:
        """The number of atoms of the gauge in Z: nonzero blocks, unless a subclass has smaller atoms."""
        return int(Z.flatten(1).any(1).sum())

    @abstractmethod
    def _value(self, Z: Tensor) -> float: ...

    @abstractmethod
    def _polar(self, G: Tensor) -> Bracket: ...

    def _upper_bound(self, Z: Tensor) -> float:
        """For a Z of largest entry one: values are sums of norms, with one rounding per entry unless overridden."""
        return self._value(Z) * (1 + gamma(Z.numel() + 8, Z.dtype))


class BlockGauge(Gauge):
    """A sum over blocks, whose polar is the largest over blocks. Subclasses price one block at a time."""

    @abstractmethod
    def block_value(self, Z: Blocks) -> Float[Tensor, " p"]:
        """The price of every block."""

    @abstractmethod
    def block_polar(self, G: Blocks) -> Float[Tensor, " p"]:
        """The polar of every block."""

    def _value(self, Z: Tensor) -> float:
        return float(self.block_value(Z).sum())

    def _polar(self, G: Tensor) -> Bracket:
        worst = float(self.block_polar(G).max())
        return Bracket(worst, worst * (1 + gamma(G.shape[1] * G.shape[2] + 8, G.dtype)))


@runtime_checkable
class Proximable(Protocol):
    """``prox(Z, step)`` = argmin_Q step * Omega(Q) + 1/2 |Q - Z|^2."""

    def prox(self, Z: Blocks, step: float) -> Blocks: ...


@runtime_checkable
class Factorised(Protocol):
    r"""Omega(Z) = min over Z_p = U_p W_p^T of ``factor_penalty``; ``split`` attains the minimum (BM Lemma 3.1).

    ``smooth_factors(cols)`` is whether the penalty is 1/2 (|U|^2 + |W|^2), so that smooth methods may use it.
    """

    def factor_penalty(self, factors: Factors) -> float: ...

    def split(self, Z: Blocks) -> Factors: ...

    def smooth_factors(self, cols: int) -> bool: ...


@runtime_checkable
class FactorSteps(Protocol):
    r"""The operations that first-order methods on factors need, besides Factorised (BM eq. 14).

    ``factor_subgradient(factors)`` is a subgradient S of the penalty with <S, factors> = 2 penalty;
    ``factor_prox(factors, step)`` = argmin_Q step * penalty(Q) + 1/2 |Q - factors|^2. ``steepest(G)`` are factors of
    penalty one for every block with <G_p, U_p W_p^T> = Omega°(G_p).
    """

    def factor_subgradient(self, factors: Factors) -> Factors: ...

    def factor_prox(self, factors: Factors, step: float) -> Factors: ...

    def steepest(self, G: Blocks) -> Factors: ...


@runtime_checkable
class EuclideanGroups(Protocol):
    r"""Omega is a sum of Euclidean norms; ``column_groups(cols)`` lists the columns of a block that share a norm."""

    def column_groups(self, cols: int) -> list[list[int]]: ...


@runtime_checkable
class Conic(Protocol):
    """Omega can be written with second-order or semidefinite cones: ``cone(cols)`` is their name."""

    def cone(self, cols: int) -> str: ...


def _three_dimensional(Z: Tensor) -> None:
    if Z.ndim != 3:
        raise ValueError(f"a lifted variable has shape (blocks, rows, cols), got {tuple(Z.shape)}.")
