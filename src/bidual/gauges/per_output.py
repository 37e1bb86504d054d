import torch
from torch import Tensor

from bidual.gauges.base import BlockGauge, Factors
from bidual.gauges.factor_prices import NormPair, steepest_of_blocks, unit_vectors
from bidual.gauges.group import inverse, shrink
from bidual.numerics.norms import L1, L2


class PerOutput(NormPair, BlockGauge):
    r"""One group per gate and output, sum_p sum_k |Z_p[:, k]|_2, as libraries without vector outputs charge.

    It is the gauge of the norm pair C = 2, R = 1 in BM (14)-(15): neurons cost 1/2 (|u_j|_2^2 + |w_j|_1^2).
    """

    name = "per_output"
    hidden_norm, output_norm = L2, L1

    def block_value(self, Z: Tensor) -> Tensor:
        return torch.linalg.vector_norm(Z, dim=1).sum(1)

    def block_polar(self, G: Tensor) -> Tensor:
        return torch.linalg.vector_norm(G, dim=1).amax(1)

    def per_frobenius(self, rows: int, cols: int) -> float:
        return 1.0

    def prox(self, Z: Tensor, step: float) -> Tensor:
        return Z * shrink(torch.linalg.vector_norm(Z, dim=1, keepdim=True), step)

    def n_atoms(self, Z: Tensor) -> int:
        return int(Z.any(1).sum())

    def column_groups(self, cols: int) -> list[list[int]]:
        return [[k] for k in range(cols)]

    def split(self, Z: Tensor) -> Factors:
        root = torch.linalg.vector_norm(Z, dim=1).sqrt()
        return Factors(Z * inverse(root)[:, None, :], torch.diag_embed(root))

    def steepest(self, G: Tensor) -> Factors:
        return steepest_of_blocks(L2.value(G.mT), L2.unit(G.mT), unit_vectors(len(G), G.shape[2], G))

    def smooth_factors(self, cols: int) -> bool:
        return cols == 1

    def cone(self, cols: int) -> str:
        return "second_order_per_column"
