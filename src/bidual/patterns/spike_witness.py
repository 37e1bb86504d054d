"""Neurons that prove a matrix not to be spike-free (CP eq. 7)."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.numerics.rounding import TINY, gamma, length

_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class Witness:
    r"""A neuron u and a functional z with z^T (X u)_+ > |X^T z| |u|.

    If (X u)_+ were X w with |w| <= |u|, then z^T (X u)_+ = (X^T z)^T w <= |X^T z| |u|. No rank has to be decided.
    """

    u: Float[Tensor, " d"]
    z: Float[Tensor, " n"]

    def margin(self, X: Float[Tensor, "n d"]) -> float:
        """z^T (X u)_+ - |X^T z| |u|, less an allowance for rounding; positive proves that X is not spike-free."""
        reach, size = self._sides(X)
        return reach - size

    def length(self, X: Float[Tensor, "n d"]) -> float:
        """A lower bound of the shortest |w| / |u| with X w = (X u)_+."""
        reach, size = self._sides(X)
        return reach / max(size, _EPS * reach) * (1 - 4 * _EPS)

    def lifted(self, X: Float[Tensor, "n d"], rows: Int[Tensor, " r"]) -> Self:
        """The witness for X, from this one for the unit directions of some of its rows."""
        z = X.new_zeros(len(X))
        z[rows] = self.z / torch.linalg.vector_norm(X[rows], dim=1)
        return type(self)(self.u / torch.linalg.vector_norm(self.u), z / torch.linalg.vector_norm(z))

    def _sides(self, X: Tensor) -> tuple[float, float]:
        """z^T (X u)_+ rounded down and |X^T z| |u| rounded up: terms go through n + d operations, and n."""
        sizes = X.abs(), self.u.abs(), self.z.abs()
        error, underflow = gamma(sum(X.shape) + 8), X.numel() * TINY
        most = float(sizes[2] @ (sizes[0] @ sizes[1]))
        reach = float(self.z @ (X @ self.u).clamp(min=0)) - error * most - underflow
        across = length(X.T @ self.z) + error * length(sizes[0].T @ sizes[2]) + underflow
        return reach, across * length(self.u) * (1 + 4 * _EPS)


def partial_correlation(T: Float[Tensor, "r d"], H: Float[Tensor, "r r"]) -> Witness:
    r"""T u = e_i - (H_ij / H_jj) e_j for the pair with the largest H_ij / sqrt(H_ii H_jj); H = (T T^T)^-1.

    If that is rho > 0, the shortest preimage of (T u)_+ = e_i is longer than u by the factor 1 / sqrt(1 - rho^2).
    """
    scale = H.diagonal().rsqrt()
    best = int((H * scale * scale[:, None]).fill_diagonal_(-2).argmax())
    i, j = divmod(best, len(H))
    target = torch.zeros_like(H[0])
    target[i], target[j] = 1.0, -H[i, j] / H[j, j]
    return Witness(T.T @ (H @ target), H[i].clone())


def outside_range(T: Float[Tensor, "r d"]) -> Witness:
    r"""The neuron, among candidates, whose positive part is farthest from the range of T, which has dependent rows.

    With Q an orthonormal basis of the range, f(u) = (I - Q Q^T)(T u)_+ is piecewise linear and changes its slope across
    the hyperplane of any row i that takes part in a dependency. So f is not zero at all three of u0 and u0 ± s t_i,
    where u0 lies on that hyperplane only and s is too small to cross another one.
    """
    basis, values, rows = torch.linalg.svd(T, full_matrices=False)
    kept = values > max(T.shape) * _EPS * values[0]
    Q, W = basis[:, kept], rows[kept]
    generator = torch.Generator().manual_seed(0)
    trials = [torch.randn(32, len(W), generator=generator, dtype=T.dtype) @ W, T[:32]]
    for i in Q.square().sum(1).argsort()[:8].tolist():
        trials.append(_across(T, i, torch.randn(len(W), generator=generator, dtype=T.dtype) @ W))
    U = torch.cat(trials)
    P = (T @ U.T).clamp(min=0) / torch.linalg.vector_norm(U, dim=1).clamp(min=torch.finfo(T.dtype).tiny)
    residual = P - Q @ (Q.T @ P)
    best = int(torch.linalg.vector_norm(residual, dim=0).argmax())
    return Witness(U[best], residual[:, best])


def _across(T: Tensor, i: int, direction: Tensor) -> Tensor:
    """Three points on and beside the hyperplane of row i, with no other hyperplane between them."""
    on = direction - (T[i] @ direction) * T[i]
    heights, slopes = (T @ on).abs(), (T @ T[i]).abs()
    crossed = (slopes > _EPS) & (heights > 1e3 * _EPS)
    step = 0.5 * float((heights / slopes)[crossed].min()) if bool(crossed.any()) else 1.0
    return torch.stack([on + step * T[i], on - step * T[i], on])
