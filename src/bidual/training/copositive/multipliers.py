"""The best multipliers of many cones at once, for a given dual point: relaxed cone-constrained PCA (CP eq. 3)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from bidual.training.copositive.cones import Facets, Forms, Multipliers, likely_levels

_STAGES = tuple(10.0 ** (k / 2) for k in range(13))  # weights of lambda against the barriers, in units of 1 / level
_STEPS = 4  # of Newton's method at each


def feasible_multipliers(forms: Forms, facets: Facets, inside: Float[ndarray, "p r"], level: float) -> Multipliers:
    r"""For every cone an N >= 0 that brings lambda_max(form + K^T N K) to ``level``, or about as low as it goes.

    Newton's method on the barrier tau lambda - log det(lambda I - form - K^T N K) - sum log N_ij, tau growing, for all
    cones at once until they reach ``level``. ``inside`` is a direction u within each cone: N_ij starts at
    level / (k_i u k_j u), which is its size if the cone is thin.
    """
    best = np.zeros((*facets.shape[:2], facets.shape[1]))
    counts = facets.any(2).sum(1)
    for count in np.unique(counts[counts > 1]):  # real facets come first; a Newton step costs their number to the sixth
        like = np.flatnonzero(counts == count)
        with np.errstate(all="ignore"):  # numbers that are not finite are not used
            best[like, :count, :count] = _feasible_multipliers(forms[like], facets[like, :count], inside[like], level)
    return best


def _feasible_multipliers(forms: Forms, facets: Facets, inside: Float[ndarray, "p r"], level: float) -> Multipliers:
    """The same for cones with equally many facets."""
    best = np.zeros((*facets.shape[:2], facets.shape[1]))
    least = likely_levels(forms, facets, best)
    open_ = np.flatnonzero(least > level)
    barrier = _Barrier.start(forms[open_], facets[open_], inside[open_], level)
    for tau in _STAGES if len(open_) else ():
        for _ in range(_STEPS):
            barrier.step(tau / level)
        N = barrier.symmetric()
        value = likely_levels(forms[open_], facets[open_], N)
        better = value < least[open_]
        best[open_[better]], least[open_[better]] = N[better], value[better]
        left = least[open_] > level
        if not left.any():
            break
        open_, barrier = open_[left], barrier.only(left)
    return best


@dataclass(eq=False)
class _Barrier:
    """The state of Newton's method: lambda and N_ij of every cone, over pairs i < j of its facets."""

    forms: Forms
    facets: Facets
    level: Float[ndarray, " p"]
    N: Float[ndarray, "p k"]

    @classmethod
    def start(cls, forms: Forms, facets: ndarray, inside: ndarray, level: float) -> "_Barrier":
        width = np.maximum(np.einsum("pfr,pr->pf", facets, inside), 1e-9)
        i, j = np.triu_indices(facets.shape[1], 1)
        barrier = cls(forms, facets, np.zeros(len(forms)), 0.1 * level / (width[:, i] * width[:, j]))
        barrier.level = 2 * np.maximum(likely_levels(forms, facets, barrier.symmetric()), level)
        return barrier

    @property
    def pairs(self) -> tuple[Int[ndarray, " k"], Int[ndarray, " k"]]:
        i, j = np.triu_indices(self.facets.shape[1], 1)
        return i, j

    def symmetric(self) -> Multipliers:
        f, (i, j) = self.facets.shape[1], self.pairs
        N = np.zeros((len(self.N), f, f))
        N[:, i, j] = N[:, j, i] = self.N
        return N

    def only(self, kept: Bool[ndarray, " p"]) -> "_Barrier":
        return _Barrier(self.forms[kept], self.facets[kept], self.level[kept], self.N[kept])

    def step(self, tau: float) -> None:
        """A damped step of length 1 / (1 + decrement), which stays inside; none where rounding prevents it."""
        slope, hessian = self._model(tau)
        move = -_solved(hessian, slope)
        decrement = np.sqrt(np.maximum(-(slope * move).sum(1), 0))
        length = np.where(decrement > 0.25, 1 / (1 + decrement), 1.0)[:, None]
        level, N = self.level + length[:, 0] * move[:, 0], self.N + length * move[:, 1:]
        trial = _Barrier(self.forms, self.facets, level, N)
        fine = np.isfinite(move).all(1) & (trial.N > 0).all(1) & np.isfinite(level)
        trial.N = np.where(fine[:, None], trial.N, self.N)
        fine &= level > likely_levels(self.forms, self.facets, trial.symmetric())
        self.level = np.where(fine, level, self.level)
        self.N = np.where(fine[:, None], trial.N, self.N)

    def _model(self, tau: float) -> tuple[Float[ndarray, "p m"], Float[ndarray, "p m m"]]:
        """Gradient and Hessian in (lambda, N), with W = (lambda I - form - K^T N K)^-1, from K W K^T and K W^2 K^T."""
        K, (i, j), p = self.facets, self.pairs, len(self.N)
        inner = self.forms + K.transpose(0, 2, 1) @ self.symmetric() @ K
        values, vectors = np.linalg.eigh(inner)
        gaps = np.maximum(self.level[:, None] - values, 1e-300)
        turned = K @ vectors
        once = (turned / gaps[:, None, :]) @ turned.transpose(0, 2, 1)
        twice = (turned / gaps[:, None, :] ** 2) @ turned.transpose(0, 2, 1)
        inverse = 1 / self.N
        slope = np.concatenate([tau - (1 / gaps).sum(1)[:, None], 2 * once[:, i, j] - inverse], axis=1)
        hessian = np.zeros((p, 1 + len(i), 1 + len(i)))
        hessian[:, 0, 0] = (1 / gaps**2).sum(1)
        hessian[:, 0, 1:] = hessian[:, 1:, 0] = -2 * twice[:, i, j]
        block = once[:, i[:, None], i] * once[:, j[:, None], j] + once[:, i[:, None], j] * once[:, j[:, None], i]
        hessian[:, 1:, 1:] = 2 * block
        diagonal = 1 + np.arange(len(i))
        hessian[:, diagonal, diagonal] += inverse**2
        return slope, hessian


def _solved(hessian: Float[ndarray, "p m m"], slope: Float[ndarray, "p m"]) -> Float[ndarray, "p m"]:
    """Newton's steps, scaled to a diagonal of ones with a tiny ridge; NaN where the model is not finite."""
    scale = np.sqrt(np.diagonal(hessian, axis1=1, axis2=2))
    unit = hessian / scale[:, :, None] / scale[:, None, :] + 1e-13 * np.eye(hessian.shape[1])
    good = np.isfinite(unit).all((1, 2)) & np.isfinite(slope).all(1)
    unit[~good] = np.eye(hessian.shape[1])
    try:
        found = np.linalg.solve(unit, (slope / scale)[:, :, None])[:, :, 0] / scale
    except np.linalg.LinAlgError:  # one of them is singular: no step
        return np.full_like(slope, np.nan)
    return np.where(good[:, None], found, np.nan)
