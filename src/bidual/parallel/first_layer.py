"""The first layer of a sub-network: on the cone of an activation pattern, (X w)_+ = D X w."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.optimize import nnls

from bidual.factored.cones import Cones, non_negative_least_squares
from bidual.patterns import enumerate as all_patterns


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """All activation patterns of X (n, r) that are not off everywhere, with their cones."""

    X: Float[ndarray, "n r"]
    D: Float[ndarray, "p n"]

    @classmethod
    def of(cls, X: Float[ndarray, "n r"]) -> "FirstLayer":
        patterns = all_patterns(torch.from_numpy(X)).active.numpy()
        alive = (patterns & X.any(1)).any(1)
        return cls(X, patterns[alive].astype(np.float64))

    def __len__(self) -> int:
        return len(self.D)

    @cached_property
    def normals(self) -> Float[ndarray, "p f r"]:
        """The facets of every cone; all rows of X where nearly equal ones leave too little room to tell."""
        try:
            return Cones.of(torch.from_numpy(self.X), torch.from_numpy(self.D > 0)).rows.numpy()
        except FloatingPointError:
            return (2 * self.D - 1)[:, :, None] * self.X

    def slopes(self, u: Float[ndarray, "k n"]) -> Float[ndarray, "k p r"]:
        """X^T D_p u."""
        return np.einsum("kn,pn,nr->kpr", u, self.D, self.X, optimize=True)

    def project(self, points: Float[ndarray, "*k r"], cells: Int[ndarray, "*k"]) -> Float[ndarray, "*k r"]:
        """The nearest point of its cell's cone for every point."""
        flat, K = points.reshape(-1, points.shape[-1]), self.normals[cells.reshape(-1)]
        outside = (np.einsum("kfr,kr->kf", K, flat) < 0).any(1)
        nearest = flat.copy()
        if outside.any():
            nearest[outside] = self._from_outside(flat[outside], K[outside])
        return nearest.reshape(points.shape)

    def _from_outside(self, points: Float[ndarray, "k r"], K: Float[ndarray, "k f r"]) -> Float[ndarray, "k r"]:
        """On a face: in the plane a border ray or zero, in general u + K^T l with the l >= 0 that makes it shortest."""
        if points.shape[1] == 2:
            rays = np.stack([-K[:, :, 1], K[:, :, 0]], 2)
            rays = np.concatenate([rays, -rays], 1)
            inside = (np.einsum("kfr,kgr->kgf", K, rays) >= -1e-12).all(2) & rays.any(2)
            along = np.where(inside, np.einsum("kgr,kr->kg", rays, points), 0.0).clip(min=0)
            best = along.argmax(1)
            index = np.arange(len(points))
            return along[index, best][:, None] * rays[index, best]
        A, b = torch.from_numpy(K).mT, torch.from_numpy(-points)
        try:
            return points + (A @ non_negative_least_squares(A, b)[:, :, None])[:, :, 0].numpy()
        except FloatingPointError:  # any l >= 0 makes a vector that is no shorter than the nearest point
            return points + np.stack(
                [normals.T @ _multipliers(normals, u) for normals, u in zip(K, points, strict=True)]
            )


def _multipliers(normals: Float[ndarray, "f r"], u: Float[ndarray, " r"]) -> Float[ndarray, " f"]:
    """l >= 0 that makes u + K^T l short, zero where none is found."""
    try:
        return np.asarray(nnls(normals.T, -u)[0])
    except RuntimeError:
        return np.zeros(len(normals))
