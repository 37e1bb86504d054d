from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from bidual.gauges.base import BlockGauge, Factors
from bidual.gauges.factor_prices import NormPair, steepest_of_blocks, unit_vectors
from bidual.gauges.group import inverse
from bidual.numerics.norms import L1, L2, LINF, Norm


class RowGauge(NormPair, BlockGauge):
    r"""Sum of the norms of all rows, sum_p sum_i |Z_p[i, :]|_R.

    It is the gauge of the norm pair C = 1 and R in BM (14)-(15): neurons cost 1/2 (|u_j|_1^2 + |w_j|_R^2). The l1 ball
    has the corners +-e_i, so the polar of (15) is max over i of |G[i, :]|_R*, and Z = sum_i e_i z_i^T is a cheapest
    factorisation: one neuron per input.
    """

    hidden_norm: ClassVar[Norm] = L1

    def block_value(self, Z: Tensor) -> Tensor:
        return self.output_norm.value(Z).sum(1)

    def block_polar(self, G: Tensor) -> Tensor:
        return self.output_norm.dual.value(G).amax(1)

    def prox(self, Z: Tensor, step: float) -> Tensor:
        return self.output_norm.prox(Z, step)

    def split(self, Z: Tensor) -> Factors:
        root = self.output_norm.value(Z).sqrt()
        return Factors(torch.diag_embed(root), (Z * inverse(root)[:, :, None]).mT)

    def steepest(self, G: Tensor) -> Factors:
        output = self.output_norm
        return steepest_of_blocks(output.dual.value(G), unit_vectors(len(G), G.shape[1], G), output.aligned(G))

    def smooth_factors(self, cols: int) -> bool:
        return False

    def per_frobenius(self, rows: int, cols: int) -> float:
        """The dual of the output norm is l1, at most sqrt(cols) times l2, or at most l2."""
        return cols**0.5 if self.output_norm.dual.order == 1 else 1.0

    @abstractmethod
    def cone(self, cols: int) -> str: ...


class PerInput(RowGauge):
    r"""One group per gate and input, sum_p sum_i |Z_p[i, :]|_2: the pair C = 1, R = 2. It selects inputs."""

    name = "per_input"
    output_norm = L2

    def cone(self, cols: int) -> str:
        return "second_order_per_row"


class Entries(RowGauge):
    r"""The sum of absolute values of all entries: the pair C = 1, R = 1."""

    name = "entries"
    output_norm = L1

    def cone(self, cols: int) -> str:
        return "largest_per_entry"


class Largest(RowGauge):
    r"""The largest entry of every row, sum_p sum_i max_k |Z_p[i, k]|: the pair C = 1, R = infinity of BM (14)-(15).

    On a dictionary of neurons, with blocks of one row, it is sum_j |z_j|_inf: the price of the outputs' linf norm
    under any norm of the hidden weights (BM Theorem B.1). Its polar is the largest l1 norm of a row, and its prox the
    residual of a projection on the l1 ball.
    """

    name = "largest"
    output_norm = LINF

    def cone(self, cols: int) -> str:
        return "largest_per_row"
