"""The first layer of a sub-network: on the cone of an activation pattern, (X w)_+ = D X w."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray

from bidual.numerics.linear_algebra import nonnegative_multipliers
from bidual.numerics.rounding import exact_product, gamma
from bidual.patterns.cones import facet_normals, non_negative_least_squares
from bidual.patterns.exact_arrangement import exact_patterns

Points = Float[ndarray, "k r"]
Bounds = Float[ndarray, " k"]
_INSIDE = 1e-12  # how far outside a unit vector counts as inside; more than rounding


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """All activation patterns of X (n, r) that are not off everywhere, with their cones.

    Attributes:
        X: rows of length one or zero, to rounding and a rank cut; of rank r.
        D: the patterns.
    """

    X: Float[ndarray, "n r"]
    D: Float[ndarray, "p n"]

    @classmethod
    def of(cls, X: Float[ndarray, "n r"]) -> "FirstLayer":
        patterns = exact_patterns(X)
        alive = (patterns & X.any(1)).any(1)
        return cls(X, patterns[alive].astype(np.float64))

    def __len__(self) -> int:
        return len(self.D)

    @cached_property
    def normals(self) -> Float[ndarray, "p f r"]:
        """Rows of X that bound the cone of every pattern: its facets, or all rows where these cannot be distinguished.
        They are the rows themselves and not computed normals, so that no point of a cone is cut off; in the plane they
        are scaled to length one."""
        signed = (2 * self.D - 1)[:, :, None] * self.X
        try:
            facets = [facet_normals(self.X, pattern > 0) for pattern in self.D]
        except FloatingPointError:
            facets = [np.zeros((0, self.X.shape[1]))] * len(self)
        found = [own_rows(*pair) for pair in zip(facets, signed, strict=True)]
        rows = np.zeros((len(found), max(map(len, found), default=0), self.X.shape[1]))
        for one, own in zip(rows, found, strict=True):
            one[: len(own)] = own
        return _units(rows) if rows.shape[2] == 2 else rows

    def slopes(self, u: Float[ndarray, "k n"]) -> Float[ndarray, "k p r"]:
        """X^T D_p u."""
        return np.einsum("kn,pn,nr->kpr", u, self.D, self.X, optimize=True)

    def project(
        self, points: Float[ndarray, "*k r"], patterns: Int[ndarray, "*k"]
    ) -> tuple[Float[ndarray, "*k r"], Float[ndarray, "*k"]]:
        r"""The nearest point P(c) of its pattern's cone for every point c, and a bound of |P(c)|.

        |P(c)| <= |c + K^T l| for all l >= 0; see :func:`_combined` for the rounding of the sum. In the plane |P(c)| is
        |c|, or the largest r^T c over the border rays r, which are off by gamma(4) times one.
        """
        flat, K = points.reshape(-1, points.shape[-1]), self.normals[patterns.reshape(-1)]
        outside = (np.einsum("kfr,kr->kf", K, flat) < 0).any(1)
        nearest, error = flat.copy(), gamma(flat.shape[1] + 16) * _lengths(flat)
        if outside.any():
            nearest[outside], more = self._from_outside(flat[outside], K[outside])
            error[outside] += more
        bounds = _lengths(nearest) * (1 + gamma(flat.shape[1] + 4)) + error
        return nearest.reshape(points.shape), bounds.reshape(points.shape[:-1])

    def _from_outside(self, points: Points, K: Float[ndarray, "k f r"]) -> tuple[Points, Bounds]:
        """On a face: in the plane a border ray or zero, in general c + K^T l with the l >= 0 that makes it shortest;
        and how far it is off, besides a few units of |c|."""
        if points.shape[1] == 2:
            rays = np.stack([-K[:, :, 1], K[:, :, 0]], 2)
            rays = np.concatenate([rays, -rays], 1)
            inside = (np.einsum("kfr,kgr->kgf", K, rays) >= -_INSIDE).all(2) & rays.any(2)
            along = np.where(inside, np.einsum("kgr,kr->kg", rays, points), 0.0).clip(min=0)
            best = along.argmax(1)
            index = np.arange(len(points))
            return along[index, best][:, None] * rays[index, best], np.zeros(len(points))
        A, b = torch.from_numpy(K).mT, torch.from_numpy(-points)
        try:
            multipliers = non_negative_least_squares(A, b).numpy()
        except FloatingPointError:
            multipliers = np.stack([nonnegative_multipliers(normals, -c) for normals, c in zip(K, points, strict=True)])
        return _combined(points, multipliers, K)


def own_rows(facets: Float[ndarray, "f r"], rows: Float[ndarray, "n r"]) -> Float[ndarray, "g r"]:
    """The rows that facets were computed from; all rows if some facet is none of them."""
    rows, facets = rows[rows.any(1)], facets[facets.any(1)]
    apart = np.abs(_units(facets)[:, None] - _units(rows)).max(2, initial=0.0)
    if not len(facets) or not bool((apart.min(1, initial=1.0) < 1e-13).all()):
        return rows
    return rows[np.unique(apart.argmin(1))]


def _units(rows: Float[ndarray, "*k r"]) -> Float[ndarray, "*k r"]:
    lengths = _lengths(rows)[..., None]
    return rows / np.where(lengths > 0, lengths, 1.0)


def _lengths(rows: Float[ndarray, "*k r"]) -> Float[ndarray, "*k"]:
    return np.sqrt(np.einsum("...r,...r->...", rows, rows))


def _combined(c: Points, multipliers: Float[ndarray, "k f"], K: Float[ndarray, "k f r"]) -> tuple[Points, Bounds]:
    """c + K^T l in twice the precision, because l is large where cones are narrow: to a unit of itself and
    gamma(f + 2)^2 times |c| and the sum of l (Ogita, Rump & Oishi 2005, Accurate sum and dot product, Proposition 5.5).
    A sum that overflows is replaced by c, that of l = 0."""
    total, error = c, np.zeros_like(c)
    for k in range(K.shape[1]):
        product, below = exact_product(multipliers[:, k, None], K[:, k])
        grown = total + product
        part = grown - total
        error = error + (below + ((total - (grown - part)) + (product - part)))
        total = grown
    spent = gamma(K.shape[1] + 4) ** 2 * (_lengths(c) + 1.001 * multipliers.sum(1))
    lost = ~np.isfinite(total + error).all(1)
    return np.where(lost[:, None], c, total + error), np.where(lost, 0.0, spent)
