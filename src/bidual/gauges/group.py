import torch
from torch import Tensor

from bidual.gauges.base import BlockGauge, Factors
from bidual.gauges.norm_pairs import half_square_prox, inverse
from bidual.numerics.norms import LINF


class Group(BlockGauge):
    r"""Sum of Frobenius norms of the blocks, sum_p |Z_p|_F: one group per gate.

    As a price on neurons it charges 1/2 (|U_p|_F^2 + |W_p|_op^2), because |U W^T|_F <= |U|_F |W|_op.
    """

    name = "frobenius"

    def block_value(self, Z: Tensor) -> Tensor:
        return torch.linalg.vector_norm(Z, dim=(1, 2))

    def block_polar(self, G: Tensor) -> Tensor:
        return self.block_value(G)

    def per_frobenius(self, rows: int, cols: int) -> float:
        return 1.0

    def prox(self, Z: Tensor, step: float) -> Tensor:
        norm = self.block_value(Z)[:, None, None]
        return Z * shrink(norm, step)

    def column_groups(self, cols: int) -> list[list[int]]:
        return [list(range(cols))]

    def split(self, Z: Tensor) -> Factors:
        root = self.block_value(Z).sqrt()
        eye = torch.eye(Z.shape[2], dtype=Z.dtype, device=Z.device)
        return Factors(Z * inverse(root)[:, None, None], root[:, None, None] * eye)

    def factor_penalty(self, factors: Factors) -> float:
        outer = torch.linalg.matrix_norm(factors.W, ord=2).square().sum()
        return float(0.5 * (factors.U.square().sum() + outer))

    def factor_subgradient(self, factors: Factors) -> Factors:
        left, values, right = torch.linalg.svd(factors.W, full_matrices=False)
        return Factors(factors.U, values[:, :1, None] * left[:, :, :1] @ right[:, :1])

    def factor_prox(self, factors: Factors, step: float) -> Factors:
        left, values, right = torch.linalg.svd(factors.W, full_matrices=False)
        return Factors(factors.U / (1 + step), left * half_square_prox(LINF, values, step)[:, None, :] @ right)

    def steepest(self, G: Tensor) -> Factors:
        eye = torch.eye(G.shape[2], dtype=G.dtype, device=G.device).expand(len(G), -1, -1)
        return Factors(G * inverse(self.block_value(G))[:, None, None], eye)

    def smooth_factors(self, cols: int) -> bool:
        return cols == 1

    def cone(self, cols: int) -> str:
        return "second_order"


def shrink(norm: Tensor, step: float) -> Tensor:
    """(1 - step / norm)_+, the factor of a soft threshold, 0 at norm 0."""
    return (1 - step / norm.clamp(min=torch.finfo(norm.dtype).tiny)).clamp(min=0)
