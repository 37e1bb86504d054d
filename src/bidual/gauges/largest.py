import torch
from torch import Tensor

from bidual.gauges.base import BlockGauge, Factors
from bidual.gauges.factor_prices import NormPair, steepest_of_blocks, unit_vectors
from bidual.gauges.group import inverse
from bidual.gauges.rows import RowGauge
from bidual.numerics.norms import L1, LINF


class Largest(RowGauge):
    r"""The largest entry of every row, sum_p sum_i max_k |Z_p[i, k]|: the pair C = 1, R = infinity of BM (14)-(15).

    On a dictionary of neurons, with blocks of one row, it is sum_j |z_j|_inf: the price of the outputs' linf norm
    under any norm of the hidden weights (BM Theorem B.1). Its polar is the largest l1 norm of a row, and its prox what
    a projection on the l1 ball leaves.
    """

    name = "largest"
    output_norm = LINF

    def cone(self, cols: int) -> str:
        return "largest_per_row"


class LargestPerOutput(NormPair, BlockGauge):
    r"""The largest entry of every column, sum_p sum_k max_i |Z_p[i, k]|: the pair C = infinity, R = 1 of BM (14)-(15).

    The transpose of :class:`Largest`: Z = sum_k z_k e_k^T, one neuron per output, is a cheapest factorisation.
    """

    name = "largest_per_output"
    hidden_norm, output_norm = LINF, L1

    def block_value(self, Z: Tensor) -> Tensor:
        return LINF.value(Z.mT).sum(1)

    def block_polar(self, G: Tensor) -> Tensor:
        return L1.value(G.mT).amax(1)

    def per_frobenius(self, rows: int, cols: int) -> float:
        return rows**0.5

    def prox(self, Z: Tensor, step: float) -> Tensor:
        return LINF.prox(Z.mT, step).mT

    def split(self, Z: Tensor) -> Factors:
        root = LINF.value(Z.mT).sqrt()
        return Factors(Z * inverse(root)[:, None, :], torch.diag_embed(root))

    def steepest(self, G: Tensor) -> Factors:
        return steepest_of_blocks(L1.value(G.mT), LINF.aligned(G.mT), unit_vectors(len(G), G.shape[2], G))

    def smooth_factors(self, cols: int) -> bool:
        return False

    def cone(self, cols: int) -> str:
        return "largest_per_column"
