"""Projection onto many polyhedral cones at once."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from bidual.patterns.pattern_cone import pattern_cone

_PASSES = 40  # the most exchanges per constraint
_OUTSIDE = 1e-10
_APEX = 1e-14  # shorter projections, relative to the point, are rounded zeros


@dataclass(frozen=True, eq=False)
class Cones:
    r"""K_p = { u : rows_p u >= 0 }, one for each of P activation patterns: (2 D_p - I) X u >= 0 (BM eq. 19).

    ``rows`` (P, f, d) are unit normals of facets, zero rows where a cone has fewer than f; a cone without interior has
    normals of both signs for every equation.
    """

    rows: Float[Tensor, "p f d"]

    @classmethod
    def of(cls, X: Float[Tensor, "n d"], patterns: Bool[Tensor, "p n"]) -> "Cones":
        """Without redundant inequalities, which most of the n are."""
        samples = X.detach().cpu().double().numpy()
        found = [_normals(samples, pattern) for pattern in patterns.cpu().numpy()]
        rows = np.zeros((len(found), max((len(k) for k in found), default=0), X.shape[1]))
        for one, normals in zip(rows, found, strict=True):
            one[: len(normals)] = normals
        return cls(torch.from_numpy(rows).to(X.device))

    def project(self, U: Float[Tensor, "p d m"]) -> Float[Tensor, "p d m"]:
        """The nearest point of its cone for every column: u + K^T l, l >= 0, the shortest of these (Moreau)."""
        p, d, m = U.shape
        K = self.rows.repeat_interleave(m, 0)
        points = U.mT.reshape(p * m, d).to(self.rows)  # in double precision, which faces need
        outside = ((K @ points[:, :, None])[:, :, 0] < 0).any(1)
        result = points.clone()
        if bool(outside.any()):
            K, u = K[outside], points[outside]
            nearest = u + (K.mT @ non_negative_least_squares(K.mT, -u)[:, :, None])[:, :, 0]
            size, length = torch.linalg.vector_norm(nearest, dim=1), torch.linalg.vector_norm(u, dim=1)
            result[outside] = torch.where((size > _APEX * length)[:, None], nearest, 0.0)
        return result.reshape(p, m, d).mT.to(U)

    def contains(self, U: Float[Tensor, "p d m"]) -> Bool[Tensor, "p m"]:
        """Whether a column lies in its cone, up to rounding."""
        size, slack = torch.linalg.vector_norm(U, dim=1), max(_OUTSIDE, 8 * torch.finfo(U.dtype).eps)
        return (self.rows @ U.to(self.rows)).amin(1) >= -slack * size if self.rows.shape[1] else size >= 0


def non_negative_least_squares(A: Float[Tensor, "q d f"], b: Float[Tensor, "q d"]) -> Float[Tensor, "q f"]:
    """argmin |A x - b| over x >= 0 for many (A, b), by the active sets of Lawson and Hanson (1974), all in step.

    In every pass a problem either frees its steepest variable, or moves towards the least squares solution on its free
    variables until one of them is zero again. The free columns stay independent.
    """
    q, _, f = A.shape
    x, free = b.new_zeros(q, f), torch.zeros(q, f, dtype=torch.bool, device=b.device)
    flat = 64 * torch.finfo(b.dtype).eps * torch.linalg.vector_norm(b, dim=1) * torch.linalg.matrix_norm(A)
    open_ = torch.arange(q, device=b.device)
    for _ in range(_PASSES * max(f, 1)):
        x[open_], free[open_], done = _exchange(A[open_], b[open_], x[open_], free[open_], flat[open_])
        open_ = open_[~done]
        if not len(open_):
            return x
    raise FloatingPointError(f"{len(open_)} projections found no face after {_PASSES} exchanges per constraint.")


def _exchange(
    A: Float[Tensor, "q d f"],
    b: Float[Tensor, "q d"],
    x: Float[Tensor, "q f"],
    free: Bool[Tensor, "q f"],
    flat: Float[Tensor, " q"],
) -> tuple[Float[Tensor, "q f"], Bool[Tensor, "q f"], Bool[Tensor, " q"]]:
    """One pass: x, the free variables, and which problems are solved."""
    shortest = torch.linalg.pinv(A * free[:, None, :], rtol=1e-13) @ b[:, :, None]
    target = torch.where(free, shortest[:, :, 0], 0.0)
    blocked = free & (target <= 0)
    ratio = torch.where(blocked, x / (x - target).clamp(min=torch.finfo(x.dtype).tiny), 1.0)
    step = ratio.amin(1, keepdim=True)
    x = torch.where(free, x + step * (target - x), 0.0).clamp(min=0)
    inside = ~blocked.any(1)
    leaving = blocked & (ratio <= step)
    x, free = torch.where(leaving, 0.0, x), free & ~leaving
    slope = (A.mT @ (b - (A @ x[:, :, None])[:, :, 0])[:, :, None])[:, :, 0]
    slope = torch.where(free, -torch.inf, slope)
    steepest = slope.amax(1)
    done = inside & (steepest <= flat)
    enters = torch.nn.functional.one_hot(slope.argmax(1), x.shape[1]).bool() & (inside & ~done)[:, None]
    return x, free | enters, done


def _normals(X: Float[ndarray, "n d"], pattern: Bool[ndarray, " n"]) -> Float[ndarray, "f d"]:
    cone = pattern_cone(X, pattern)
    span = np.linalg.qr(cone.basis, mode="complete").Q[:, cone.basis.shape[1] :].T  # where the cone is flat
    return np.concatenate([cone.rows @ cone.basis.T, span, -span])
