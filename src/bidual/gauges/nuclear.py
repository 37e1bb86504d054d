import math

import torch
from torch import Tensor

from bidual.gauges.base import BlockGauge, Bracket, Factors
from bidual.gauges.group import shrink
from bidual.gauges.norm_pairs import NormPair
from bidual.numerics.eigenvalue_bounds import largest_eigenvalues
from bidual.numerics.norms import L2
from bidual.numerics.rounding import gamma


class Nuclear(NormPair, BlockGauge):
    r"""Sum of nuclear norms of the blocks, sum_p |Z_p|_*.

    The price of a gated or linear two-layer network with c outputs under weight decay (BM eq. 2 and 5). With c = 1 it
    is the group norm.
    """

    name = "nuclear"
    hidden_norm = output_norm = L2

    def block_value(self, Z: Tensor) -> Tensor:
        if min(Z.shape[1:]) == 1:
            return torch.linalg.vector_norm(Z, dim=(1, 2))
        used = Z.flatten(1).any(1)
        values = Z.new_zeros(len(Z))
        values[used] = torch.linalg.svdvals(_short_factor(Z[used])).sum(1)
        return values

    def block_polar(self, G: Tensor) -> Tensor:
        if min(G.shape[1:]) == 1:
            return torch.linalg.vector_norm(G, dim=(1, 2))
        return torch.linalg.eigvalsh(_short_gram(G))[:, -1].clamp(min=0).sqrt()

    def per_frobenius(self, rows: int, cols: int) -> float:
        return 1.0

    def _polar(self, G: Tensor) -> Bracket:
        """The largest eigenvalue of a Gram matrix, proved: see :mod:`bidual.numerics.eigenvalue_bounds`."""
        if min(G.shape[1:]) == 1:
            return super()._polar(G)
        M = _short_gram(G)
        guesses = torch.linalg.eigvalsh(M)[:, -1]
        size = float(torch.linalg.vector_norm(G, dim=(1, 2)).max()) ** 2
        bound = float(largest_eigenvalues(M, guesses).max()) + gamma(max(G.shape[1:]) + 8, G.dtype) * size
        return Bracket(math.sqrt(max(float(guesses.max()), 0.0)), math.sqrt(bound) * (1 + gamma(8, G.dtype)))

    def _upper_bound(self, Z: Tensor) -> float:
        """sum_j |Z q_j| |q_j| + sqrt(k) |Z - sum_j (Z q_j) q_j^T|_F for any vectors q_j, by the triangle inequality:
        exact for right singular vectors, and valid for computed ones."""
        if min(Z.shape[1:]) == 1:
            return super()._upper_bound(Z)
        Z = Z[Z.flatten(1).any(1)]
        Z = Z if Z.shape[1] >= Z.shape[2] else Z.mT
        k, error = Z.shape[2], gamma(sum(Z.shape[1:]) + 8, Z.dtype)
        Q = torch.linalg.svd(_short_factor(Z), full_matrices=False).Vh.mT
        B = Z @ Q
        price = torch.linalg.vector_norm(B, dim=1) * torch.linalg.vector_norm(Q, dim=1)
        sizes = [torch.linalg.vector_norm(part, dim=(1, 2)) for part in (Z - B @ Q.mT, Z, B, Q)]
        rest = math.sqrt(k) * (sizes[0] + error * (sizes[1] + sizes[2] * sizes[3]))
        return float(price.sum() + rest.sum()) * (1 + gamma(Z.numel() + 8, Z.dtype))

    def prox(self, Z: Tensor, step: float) -> Tensor:
        """Soft threshold of the singular values, through the Gram matrix of the short side."""
        norm = torch.linalg.vector_norm(Z, dim=(1, 2))
        if min(Z.shape[1:]) == 1:
            return Z * shrink(norm, step)[:, None, None]
        result = torch.zeros_like(Z)
        large = norm > step  # the spectral norm is at most the Frobenius norm: the other blocks vanish
        if bool(large.any()):
            result[large] = _threshold(Z[large], step)
        return result

    def n_atoms(self, Z: Tensor) -> int:
        """The sum of ranks; singular values below 1e-4 of the largest are rounding."""
        values = torch.linalg.svdvals(_short_factor(Z[Z.flatten(1).any(1)]))
        return int((values > 1e-4 * values.max()).sum()) if values.numel() else 0

    def column_groups(self, cols: int) -> list[list[int]]:
        """Only with one output is the nuclear norm a sum of Euclidean norms."""
        return [[0]] if cols == 1 else []

    def split(self, Z: Tensor) -> Factors:
        left, values, right = torch.linalg.svd(Z, full_matrices=False)
        root = values.sqrt()[:, None, :]
        return Factors(left * root, right.mT * root)

    def steepest(self, G: Tensor) -> Factors:
        left, _, right = torch.linalg.svd(G, full_matrices=False)
        return Factors(left[:, :, :1], right[:, :1].mT)

    def smooth_factors(self, cols: int) -> bool:
        return True

    def cone(self, cols: int) -> str:
        return "second_order" if cols == 1 else "semidefinite"


def _short_gram(Z: Tensor) -> Tensor:
    """Z Z^T or Z^T Z of every block, whichever is smaller."""
    return Z @ Z.mT if Z.shape[1] <= Z.shape[2] else Z.mT @ Z


def _short_factor(Z: Tensor) -> Tensor:
    """A matrix with the singular values of every block and both sides short: R of a QR of the tall form."""
    tall = Z if Z.shape[1] >= Z.shape[2] else Z.mT
    return torch.linalg.qr(tall, mode="r").R if tall.shape[1] > 2 * tall.shape[2] else tall


def _threshold(Z: Tensor, step: float) -> Tensor:
    values, vectors = torch.linalg.eigh(_short_gram(Z))
    factor = (vectors * shrink(values.clamp(min=0).sqrt(), step)[:, None, :]) @ vectors.mT
    return factor @ Z if Z.shape[1] <= Z.shape[2] else Z @ factor
