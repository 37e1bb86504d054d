"""Projection onto the cones of many activation patterns at once."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bidual.patterns.cones import facet_normals, non_negative_least_squares

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
        found = [facet_normals(samples, pattern) for pattern in patterns.cpu().numpy()]
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
