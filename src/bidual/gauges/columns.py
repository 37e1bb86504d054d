from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from bidual.gauges.base import BlockGauge, Factors
from bidual.gauges.factor_prices import NormPair, steepest_of_blocks, unit_vectors
from bidual.gauges.group import inverse
from bidual.numerics.norms import L1, L2, LINF, Norm


class ColumnGauge(NormPair, BlockGauge):
    r"""Sum of the norms of all columns, sum_p sum_k |Z_p[:, k]|_C, the transpose of :class:`RowGauge`.

    It is the gauge of the norm pair C and R = 1 in BM (14)-(15): Z = sum_k z_k e_k^T, one neuron per output, is a
    cheapest factorisation.
    """

    output_norm: ClassVar[Norm] = L1

    def block_value(self, Z: Tensor) -> Tensor:
        return self.hidden_norm.value(Z.mT).sum(1)

    def block_polar(self, G: Tensor) -> Tensor:
        return self.hidden_norm.dual.value(G.mT).amax(1)

    def per_frobenius(self, rows: int, cols: int) -> float:
        return rows**0.5 if self.hidden_norm.dual.order == 1 else 1.0

    def prox(self, Z: Tensor, step: float) -> Tensor:
        return self.hidden_norm.prox(Z.mT, step).mT

    def split(self, Z: Tensor) -> Factors:
        root = self.hidden_norm.value(Z.mT).sqrt()
        return Factors(Z * inverse(root)[:, None, :], torch.diag_embed(root))

    def steepest(self, G: Tensor) -> Factors:
        hidden = self.hidden_norm
        return steepest_of_blocks(hidden.dual.value(G.mT), hidden.aligned(G.mT), unit_vectors(len(G), G.shape[2], G))

    def smooth_factors(self, cols: int) -> bool:
        return False

    @abstractmethod
    def cone(self, cols: int) -> str: ...


class PerOutput(ColumnGauge):
    r"""One group per gate and output, sum_p sum_k |Z_p[:, k]|_2, the price of libraries without vector outputs.

    It is the gauge of the norm pair C = 2, R = 1 in BM (14)-(15): neurons cost 1/2 (|u_j|_2^2 + |w_j|_1^2).
    """

    name = "per_output"
    hidden_norm = L2

    def n_atoms(self, Z: Tensor) -> int:
        return int(Z.any(1).sum())

    def column_groups(self, cols: int) -> list[list[int]]:
        return [[k] for k in range(cols)]

    def smooth_factors(self, cols: int) -> bool:
        return cols == 1

    def cone(self, cols: int) -> str:
        return "second_order_per_column"


class LargestPerOutput(ColumnGauge):
    r"""The largest entry of every column, sum_p sum_k max_i |Z_p[i, k]|: the pair C = infinity, R = 1."""

    name = "largest_per_output"
    hidden_norm = LINF

    def cone(self, cols: int) -> str:
        return "largest_per_column"
