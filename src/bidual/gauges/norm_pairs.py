"""Prices of norms C on the hidden and R on the output weights, 1/2 sum_j (|u_j|_C^2 + |w_j|_R^2) (BM eq. 14)."""

from abc import abstractmethod
from math import inf
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges.base import BlockGauge, Factors
from bidual.numerics.norms import L1, L2, LINF, Norm, Vectors


class NormPair:
    """The half of a gauge that prices factors."""

    hidden_norm: ClassVar[Norm]
    output_norm: ClassVar[Norm]

    def factor_penalty(self, factors: Factors) -> float:
        hidden, output = self.hidden_norm.value(factors.U.mT), self.output_norm.value(factors.W.mT)
        return float(0.5 * (hidden.square().sum() + output.square().sum()))

    def factor_subgradient(self, factors: Factors) -> Factors:
        C, R, (U, W) = self.hidden_norm, self.output_norm, factors
        return Factors(half_square_subgradient(C, U.mT).mT, half_square_subgradient(R, W.mT).mT)

    def factor_prox(self, factors: Factors, step: float) -> Factors:
        C, R, (U, W) = self.hidden_norm, self.output_norm, factors
        return Factors(half_square_prox(C, U.mT, step).mT, half_square_prox(R, W.mT, step).mT)


def half_square_subgradient(norm: Norm, U: Vectors) -> Vectors:
    """|u| s with |s|* = 1 and <u, s> = |u|: a subgradient of 1/2 |u|^2, whose product with u is |u|^2."""
    return norm.value(U)[..., None] * norm.dual.aligned(U)


def half_square_prox(norm: Norm, U: Vectors, step: float) -> Vectors:
    """argmin_q step/2 |q|^2 + 1/2 |q - u|_2^2.

    For l1 it is the soft threshold at t with t = step * |q|_1, for linf the clipping at s with
    step * s = sum_k (|u_k| - s)_+; both levels follow by sorting.
    """
    if norm.order == 2:
        return U / (1 + step)
    if step == 0:
        return U
    level = _level(U, step if norm.order == inf else 1 / step)
    small = U.sign() * torch.minimum(U.abs(), level)
    return small if norm.order == inf else U - small


def _level(U: Vectors, weight: float) -> Float[Tensor, "... 1"]:
    """The t >= 0 with sum_k (|u_k| - t)_+ = weight * t."""
    ordered = U.abs().sort(-1, descending=True).values
    count = torch.arange(1, U.shape[-1] + 1, dtype=U.dtype, device=U.device)
    return (ordered.cumsum(-1) / (count + weight)).amax(-1, keepdim=True)


class SliceGauge(NormPair, BlockGauge):
    """Sum of the norms of all rows of the blocks, or of all columns: see the two subclasses."""

    by_column: ClassVar[bool] = False

    @property
    @abstractmethod
    def cone_name(self) -> str: ...

    @property
    def _norm(self) -> Norm:
        return self.hidden_norm if self.by_column else self.output_norm

    def _slices(self, Z: Tensor) -> Tensor:
        """The vectors that are priced, as rows; its own inverse."""
        return Z.mT if self.by_column else Z

    def _factors(self, places: Tensor, slices: Tensor) -> Factors:
        """Neurons e_i z_i^T of rows z_i, or z_k e_k^T of columns."""
        return Factors(slices, places) if self.by_column else Factors(places, slices)

    def block_value(self, Z: Tensor) -> Tensor:
        return self._norm.value(self._slices(Z)).sum(1)

    def block_polar(self, G: Tensor) -> Tensor:
        return self._norm.dual.value(self._slices(G)).amax(1)

    def per_frobenius(self, rows: int, cols: int) -> float:
        """The dual norm is l1, at most the root of the length times l2, or at most l2."""
        return (rows if self.by_column else cols) ** 0.5 if self._norm.dual.order == 1 else 1.0

    def prox(self, Z: Tensor, step: float) -> Tensor:
        return self._slices(self._norm.prox(self._slices(Z), step))

    def split(self, Z: Tensor) -> Factors:
        slices = self._slices(Z)
        root = self._norm.value(slices).sqrt()
        return self._factors(torch.diag_embed(root), (slices * inverse(root)[:, :, None]).mT)

    def steepest(self, G: Tensor) -> Factors:
        slices = self._slices(G)
        best = self._norm.dual.value(slices).argmax(1)
        places = torch.eye(slices.shape[1], dtype=G.dtype, device=G.device)[best]
        aligned = self._norm.aligned(slices)[torch.arange(len(G), device=G.device), best]
        return self._factors(places[:, :, None], aligned[:, :, None])

    def smooth_factors(self, cols: int) -> bool:
        return False

    def cone(self, cols: int) -> str:
        return self.cone_name


class RowGauge(SliceGauge):
    r"""Sum of the norms of all rows, sum_p sum_i |Z_p[i, :]|_R.

    It is the gauge of the norm pair C = 1 and R in BM (14)-(15): neurons cost 1/2 (|u_j|_1^2 + |w_j|_R^2). The l1 ball
    has the corners +-e_i, so the polar of (15) is max over i of |G[i, :]|_R*, and Z = sum_i e_i z_i^T is a cheapest
    factorisation: one neuron per input.
    """

    hidden_norm: ClassVar[Norm] = L1


class PerInput(RowGauge):
    r"""One group per gate and input, sum_p sum_i |Z_p[i, :]|_2: the pair C = 1, R = 2. It selects inputs."""

    name, cone_name = "per_input", "second_order_per_row"
    output_norm = L2


class Entries(RowGauge):
    r"""The sum of absolute values of all entries: the pair C = 1, R = 1."""

    name, cone_name = "entries", "largest_per_entry"
    output_norm = L1


class Largest(RowGauge):
    r"""The largest entry of every row, sum_p sum_i max_k |Z_p[i, k]|: the pair C = 1, R = infinity of BM (14)-(15).

    On a dictionary of neurons, with blocks of one row, it is sum_j |z_j|_inf: the price of the outputs' linf norm
    under any norm of the hidden weights (BM Theorem B.1). Its polar is the largest l1 norm of a row, and its prox the
    residual of a projection on the l1 ball.
    """

    name, cone_name = "largest", "largest_per_row"
    output_norm = LINF


class ColumnGauge(SliceGauge):
    r"""Sum of the norms of all columns, sum_p sum_k |Z_p[:, k]|_C, the transpose of :class:`RowGauge`.

    It is the gauge of the norm pair C and R = 1 in BM (14)-(15): Z = sum_k z_k e_k^T, one neuron per output, is a
    cheapest factorisation.
    """

    by_column = True
    output_norm: ClassVar[Norm] = L1


class PerOutput(ColumnGauge):
    r"""One group per gate and output, sum_p sum_k |Z_p[:, k]|_2, the price of libraries without vector outputs.

    It is the gauge of the norm pair C = 2, R = 1 in BM (14)-(15): neurons cost 1/2 (|u_j|_2^2 + |w_j|_1^2).
    """

    name, cone_name = "per_output", "second_order_per_column"
    hidden_norm = L2

    def n_atoms(self, Z: Tensor) -> int:
        return int(Z.any(1).sum())

    def column_groups(self, cols: int) -> list[list[int]]:
        return [[k] for k in range(cols)]

    def smooth_factors(self, cols: int) -> bool:
        return cols == 1


class LargestPerOutput(ColumnGauge):
    r"""The largest entry of every column, sum_p sum_k max_i |Z_p[i, k]|: the pair C = infinity, R = 1."""

    name, cone_name = "largest_per_output", "largest_per_column"
    hidden_norm = LINF


def inverse(x: Tensor) -> Tensor:
    """1 / x, and 0 where x is 0."""
    return torch.where(x > 0, 1 / torch.where(x > 0, x, 1.0), 0.0)
