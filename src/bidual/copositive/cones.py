"""The cones (2 D_p - I) X u >= 0 of all activation patterns, and bounds on them from multipliers (CP eq. 18-19)."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from bidual import patterns
from bidual.losses.base import Matrix
from bidual.norms import L2
from bidual.patterns.arrangement import MERGE
from bidual.patterns.facets import needed_rows
from bidual.polar.reduction import Scaled

_EPS = float(np.finfo(np.float64).eps)
_THINNEST = 1e-12  # cones count as no thinner, for the sake of the arithmetic
_CAPS = (1e2, 1e4, 1e6, 1e8, 1e10)  # on multipliers, in units of beta^2

Multipliers = Float[ndarray, "p f f"]  # N_p >= 0, symmetric, for the products of the facets of every cone
Forms = Float[ndarray, "p r r"]


@dataclass(frozen=True, eq=False)
class PatternCones:
    r"""Every pattern D_p of X that is not zero, with the facets K_p u >= 0 of its cone, in reduced coordinates.

    For u in the cone and N >= 0, u^T K^T N K u >= 0. So, for every V and N,

        max { |V^T D_p X u|^2 : K_p u >= 0, |u| <= 1 } <= lambda_max( X^T D_p V V^T D_p X + K_p^T N K_p ),

    and the largest over all p bounds the polar of the ReLU gauge: the dual of the relaxation (19) minimises this.

    Attributes:
        scaled: X in the coordinates of its row space.
        active: D_p as rows (p, n).
        facets: K_p (p, f, r), unit rows, zero where a cone has fewer.
        inside: a unit direction in the middle of every cone.
        lost: a bound of the norm of what the coordinates leave out of any K_p.
    """

    scaled: Scaled
    active: Bool[ndarray, "p n"]
    facets: Float[ndarray, "p f r"]
    inside: Float[ndarray, "p r"]
    lost: float

    @classmethod
    def of(cls, X: Float[Tensor, "n d"]) -> Self:
        """All patterns, by enumeration; it refuses what does not fit into memory."""
        X = X.detach().to("cpu", torch.float64)
        every = patterns.enumerate(X)
        active = every.active.numpy()
        needed = needed_rows(X.numpy(), active, complete=True)
        lit = active.any(1) & bool(X.any())
        scaled, length = Scaled.of(X), np.linalg.norm(X.numpy(), axis=1, keepdims=True)
        units = X.numpy() / np.where(length > 0, length, 1.0)
        small = units @ scaled.frame
        lost = float(np.linalg.norm(units - small @ scaled.frame.T)) + 8 * _EPS * math.sqrt(X.numel())
        inside = L2.unit(every.directions).numpy()[lit] @ scaled.frame
        return cls(scaled, active[lit], _facets(small, active[lit], needed[lit]), inside, lost)

    def __len__(self) -> int:
        return len(self.active)

    @cached_property
    def facet_counts(self) -> Int[ndarray, " p"]:
        return np.asarray(self.facets.any(2).sum(1))

    def slopes(self, V: Float[ndarray, "n c"]) -> Float[ndarray, "p r c"]:
        """x^T D_p V for every pattern."""
        n, r = self.scaled.x.shape
        products = (self.scaled.x[:, :, None] * V[:, None, :]).reshape(n, -1)
        return (self.active.astype(np.float64) @ products).reshape(len(self), r, V.shape[1])

    def forms(self, V: Float[ndarray, "n c"]) -> Forms:
        """x^T D_p V V^T D_p x for every pattern."""
        slope = self.slopes(V)
        return slope @ slope.transpose(0, 2, 1)

    @cached_property
    def thinness(self) -> Float[ndarray, " p"]:
        """The least singular value of K_p; rounding may take facets from a cone, so it is clipped above zero."""
        return np.maximum(self._axes[0][:, -1], _THINNEST) if self.facets.size else np.ones(len(self))

    @cached_property
    def frames(self) -> Float[ndarray, "p r r"]:
        r"""T_p, coordinates u = T z in which K_p T_p has orthonormal columns, up to the factor ``thinness``.

        |z| = |K u| / thinness, so in a thin cone, where K u is small, z is not large.
        """
        values, axes = self._axes
        scales = self.thinness[:, None] / np.maximum(values, self.thinness[:, None])
        return axes.transpose(0, 2, 1) * scales[:, None, :]

    @cached_property
    def _axes(self) -> tuple[Float[ndarray, "p r"], Float[ndarray, "p r r"]]:
        """Singular values and right singular vectors of every K_p."""
        p, f, r = self.facets.shape
        padded = np.zeros((p, max(r, f), r))
        padded[:, :f] = self.facets
        return np.linalg.svd(padded, full_matrices=False)[1:]

    def subset(self, index: Int[ndarray, " k"]) -> Self:
        """Some of the cones."""
        return replace(self, active=self.active[index], facets=self.facets[index], inside=self.inside[index])

    def polar(self, V: Matrix, N: Multipliers, beta: float) -> float:
        r"""The bound of max { |V^T (X u)_+| : |u| <= 1 } that the multipliers prove, with its rounding.

        Where it comes out near ``beta`` it has more digits. There, M = beta^2 T^T T - T^T (form + K^T N K) T is nearly
        semidefinite, and |V^T D_p X u|^2 <= beta^2 + eta R^2 for -eta its least eigenvalue and |z| <= R; in the cone
        |z| = |K u| / thinness, and |K u| <= 1^T K u <= |sum_j k_j|.
        """
        values = V.detach().to("cpu", torch.float64).numpy()
        norm = float(np.linalg.norm(values))
        if not len(self) or norm == 0:
            return self.scaled.bound(0.0, norm)
        p, f, _ = self.facets.shape
        if N.shape != (p, f, f) or not (np.isfinite(values).all() and np.isfinite(N).all()):
            return math.inf
        worst = math.sqrt(float(self._levels(values / norm, N / norm**2, self._level(beta, norm)).max()))
        between = 4 * MERGE * math.sqrt(len(self.scaled.x))  # directions between rows that count as one hyperplane
        return self.scaled.bound(norm * (worst + between), norm)

    def tamed(self, V: Float[ndarray, "n c"], N: Multipliers, beta: float) -> Multipliers:
        """The multipliers with large ones clipped where that proves more: rounding grows with them."""
        norm = float(np.linalg.norm(V)) or 1.0
        level, best = self._level(beta, norm), N
        least = self._levels(V / norm, N / norm**2, level)
        for cap in _CAPS:
            trial = np.minimum(N, cap * level * norm**2)
            levels = self._levels(V / norm, trial / norm**2, level)
            best, least = np.where((levels < least)[:, None, None], trial, best), np.minimum(levels, least)
        return best

    def _level(self, beta: float, norm: float) -> float:
        """beta^2 in the units of x and of V of norm one."""
        return min(beta / norm / self.scaled.size, 1e150) ** 2

    def _levels(self, V: Float[ndarray, "n c"], N: Multipliers, level: float) -> Float[ndarray, " p"]:
        """The proved bound of |V^T D_p x u|^2 in every cone."""
        N, slopes = np.maximum(0.5 * (N + N.transpose(0, 2, 1)), 0), self.slopes(V)
        return np.minimum(self._plain(slopes, N), self._framed(slopes, N, level))

    def _plain(self, slopes: Float[ndarray, "p r c"], N: Multipliers) -> Float[ndarray, " p"]:
        """lambda_max, with its rounding."""
        sizes, count = np.linalg.norm(N, axis=(1, 2)), self.facets.shape[1]
        levels = largest_eigenvalues(slopes @ slopes.transpose(0, 2, 1), self.facets, N)
        levels = np.maximum(levels, 0) + 16 * (sum(self.scaled.x.shape) + count) * _EPS * (1 + count * sizes)
        return np.asarray(levels + sizes * (2 * math.sqrt(count) * self.lost + self.lost**2))

    def _framed(self, slopes: Float[ndarray, "p r c"], N: Multipliers, level: float) -> Float[ndarray, " p"]:
        """level + eta R^2, with the rounding of M and what the coordinates leave out of K."""
        T, count = self.frames, self.facets.shape[1]
        S, K = T.transpose(0, 2, 1) @ slopes, self.facets @ T
        M = level * T.transpose(0, 2, 1) @ T - S @ S.transpose(0, 2, 1) - K.transpose(0, 2, 1) @ N @ K
        size, reach = np.linalg.norm(N, axis=(1, 2)), np.linalg.norm(K, axis=(1, 2))
        rounding = level + np.linalg.norm(S, axis=(1, 2)) + 1e-8 + size * reach * (reach + math.sqrt(count))
        eta = np.maximum(0, -np.linalg.eigvalsh(M)[:, 0]) + 16 * (sum(self.scaled.x.shape) + count) * _EPS * rounding
        total = np.linalg.norm(self.facets.sum(1), axis=1) + math.sqrt(count) * (self.lost + 8 * _EPS)
        R = np.hypot((total + self.lost) / self.thinness, 1.0) * (1 + 1e-12)  # 1 for axes that count as less thin
        return np.asarray(level + eta * R**2 + size * (2 * reach * R * self.lost + self.lost**2))


def largest_eigenvalues(forms: Forms, facets: Float[ndarray, "p f r"], N: Multipliers) -> Float[ndarray, " p"]:
    """lambda_max(form + K^T N K) of every cone."""
    values: ndarray = np.linalg.eigvalsh(forms + facets.transpose(0, 2, 1) @ N @ facets)[:, -1]
    return values


def _facets(
    units: Float[ndarray, "n r"], active: Bool[ndarray, "p n"], needed: Bool[ndarray, "p n"]
) -> Float[ndarray, "p f r"]:
    """The needed rows of every pattern, turned to its side, padded with zeros."""
    width = int(needed.sum(1).max(initial=0))
    order = np.argsort(~needed, axis=1, kind="stable")[:, :width]
    there = np.take_along_axis(needed, order, 1)
    side = np.where(np.take_along_axis(active, order, 1), 1.0, -1.0) * there
    return np.asarray(side[:, :, None] * units[order])
