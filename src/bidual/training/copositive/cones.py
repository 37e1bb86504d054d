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

from bidual.numerics import eigenvalue_bounds as spectral_bounds
from bidual.numerics.rounding import TINY, gamma, length
from bidual.patterns.row_directions import unit_rows
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_regions import size_of
from bidual.training.copositive.covering import Covering
from bidual.types import Matrix

_THINNEST = 1e-12  # frames count cones as no thinner, for the sake of the arithmetic
_CAPS = (1e2, 1e4, 1e6, 1e8, 1e10)  # on multipliers, in units of beta^2
_UP = 1 + gamma(16)  # covers a few roundings

Multipliers = Float[ndarray, "p f f"]  # N_p >= 0, symmetric, for the products of the facets of every cone
Forms = Float[ndarray, "p r r"]
Facets = Float[ndarray, "p f r"]  # of every cone, zero rows where one has fewer


@dataclass(frozen=True, eq=False)
class PatternCones:
    r"""Every pattern D_p of X that is not zero, with the facets K_p u >= 0 of its cone, in reduced coordinates.

    For u in the cone and N >= 0, u^T K^T N K u >= 0. So, for every V and N,

        max { |V^T D_p X u|^2 : K_p u >= 0, |u| <= 1 } <= lambda_max( X^T D_p V V^T D_p X + K_p^T N K_p ),

    and the largest over all p bounds the polar of the ReLU gauge: the dual of the relaxation (19) minimises this.

    Attributes:
        scaled: X in the coordinates of its row space.
        active: D_p as rows (p, n).
        facets: K_p (p, f, r), rows of length about one, zero where a cone has fewer.
        inside: a unit direction in the middle of every cone.
        covering: the source of patterns and facets, and a bound of their errors.
    """

    scaled: Scaled
    active: Bool[ndarray, "p n"]
    facets: Facets
    inside: Float[ndarray, "p r"]
    covering: Covering

    @classmethod
    def of(cls, X: Float[Tensor, "n d"]) -> Self:
        """All patterns, by enumeration; refused if they do not fit into memory."""
        X = X.detach().to("cpu", torch.float64)
        scaled = Scaled.of(X)
        covering = Covering.of(unit_rows(X).numpy() @ scaled.frame)
        lit = covering.active.any(1) & bool(X.any())
        active = covering.active[lit]
        facets = _facets(covering.rows, active, covering.needed[lit])
        return cls(scaled, active, facets, covering.inside[lit], covering)

    def __len__(self) -> int:
        return len(self.active)

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
        """About the least singular value of K_p, clipped above zero: cones may lack facets."""
        return np.maximum(self._axes[0][:, -1], _THINNEST) if self.facets.size else np.ones(len(self))

    @cached_property
    def frames(self) -> Float[ndarray, "p r r"]:
        r"""T_p, coordinates u = T z in which K_p T_p has about orthonormal columns, up to the factor ``thinness``.

        |z| is about |K u| / thinness, so in a thin cone, where K u is small, z is not large.
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
        return replace(self, active=self.active[index], facets=self.facets[index], inside=self.inside[index])

    @cached_property
    def missed(self) -> float:
        """A bound of |(x u)_+ - D_p x u| over all cones and all unit u in them."""
        return self.covering.missed(self.scaled.x)

    @cached_property
    def reach(self) -> Float[ndarray, " p"]:
        r"""An upper bound R^2 of |z|^2 over all unit u = T z in every cone, infinity where T may be singular.

        In the cone |K u| <= 1^T K u <= |sum_j k_j| =: tau, so that for B = (K T, thinness T)

            sigma_min(B)^2 |z|^2 <= |K u|^2 + thinness^2 |u|^2 <= tau^2 + thinness^2.
        """
        (_, f, r), T, thin = self.facets.shape, self.frames, self.thinness
        B = np.concatenate([self.facets @ T, thin[:, None, None] * T], 1)
        off = gamma(r + 4) * (_sizes(self.facets) + thin) * _sizes(T)
        least = spectral_bounds.least_eigenvalues(torch.from_numpy(B.transpose(0, 2, 1) @ B)).numpy()
        sigma = np.sqrt(np.maximum(least - gamma(f + 2 * r + 4) * _sizes(B) ** 2, 0) / _UP) / _UP - off
        tau = np.linalg.norm(self.facets.sum(1), axis=1) + gamma(f + r + 4) * math.sqrt(f) * _sizes(self.facets)
        return np.where(sigma > 0, (tau**2 + thin**2) / np.where(sigma > 0, sigma, 1.0) ** 2 * _UP, np.inf)

    def polar(self, V: Matrix, N: Multipliers, beta: float) -> float:
        r"""The bound of max { |V^T (X u)_+| : |u| <= 1 } that the multipliers prove, in real arithmetic.

        It has more digits near ``beta``. There, M = beta^2 T^T T - T^T (form + K^T N K) T is nearly semidefinite, and
        |V^T D_p x u|^2 <= beta^2 + eta R^2 for M >= -eta I and |z| <= R.
        """
        V = V.detach().to("cpu", torch.float64)
        norm, (p, f, _) = length(V), self.facets.shape
        if norm == 0 or not self.scaled.x.size:
            return self.scaled.bound(0.0, norm)
        if N.shape != (p, f, f) or not (math.isfinite(norm) and np.isfinite(N).all()):
            return math.inf
        W = V / norm
        with np.errstate(over="ignore", invalid="ignore"):
            levels = self._levels(W.numpy(), N / norm / norm, self._level(beta, norm))
        worst = math.sqrt(float(levels.max(initial=0.0))) if not np.isnan(levels).any() else math.inf
        return self.scaled.bound(self.scaled.in_units(worst * _UP + self.missed * length(W), norm, W), norm)

    def capped(self, V: Float[ndarray, "n c"], N: Multipliers, beta: float) -> Multipliers:
        """The multipliers, capped where that proves a smaller bound: rounding grows with them."""
        norm = size_of(V) or 1.0
        level, best = self._level(beta, norm), N
        least = self._levels(V / norm, N / norm / norm, level)
        for cap in _CAPS:
            trial = np.minimum(N, cap * level * norm * norm)
            if np.array_equal(trial, N):
                break
            levels = self._levels(V / norm, trial / norm / norm, level)
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
        """lambda_max, proved, with the errors of the entries of the matrix."""
        K, off = self.facets, gamma(len(self.scaled.x) + 4) * size_of(self.scaled.x)
        forms = slopes @ slopes.transpose(0, 2, 1) + K.transpose(0, 2, 1) @ N @ K
        error = _square_error(slopes, off) + _sizes(N) * _square_error(K, 0.0, K.shape[1])
        found = spectral_bounds.largest_eigenvalues(spectral_bounds.symmetric(torch.from_numpy(forms))).numpy()
        return np.asarray((np.maximum(found, 0) + error + TINY**0.5) * _UP)

    def _framed(self, slopes: Float[ndarray, "p r c"], N: Multipliers, level: float) -> Float[ndarray, " p"]:
        """level + eta R^2, with the errors of the entries of M: K T by gamma_r |K| |T|, T^T x^T D V like x^T D V."""
        (n, r), T = self.scaled.x.shape, self.frames
        S, K = T.transpose(0, 2, 1) @ slopes, self.facets @ T
        M = level * T.transpose(0, 2, 1) @ T - S @ S.transpose(0, 2, 1) - K.transpose(0, 2, 1) @ N @ K
        wide = gamma(n + r + 4) * size_of(self.scaled.x) * _sizes(T)
        far = gamma(r + 4) * _sizes(self.facets) * _sizes(T)
        error = gamma(r + 16) * level * _sizes(T) ** 2 + _square_error(S, wide)
        error = error + _sizes(N) * _square_error(K, far, K.shape[1]) + TINY**0.5
        least = spectral_bounds.least_eigenvalues(spectral_bounds.symmetric(torch.from_numpy(M))).numpy()
        return np.asarray((level + (np.maximum(0, -least) + error * _UP) * self.reach) * _UP)


def _square_error(A: Float[ndarray, "p a b"], off: Float[ndarray, " p"] | float, more: int = 0) -> Float[ndarray, " p"]:
    r"""A bound of the error of A A^T, or of A^T N A for |N| = 1, if A itself is off by ``off``: 2 |A| off + off^2, and
    gamma of a product by its inner dimension, of ``more`` for one more, and of a few sums."""
    size = _sizes(A) + off
    return np.asarray(2 * size * off + off**2 + gamma(max(A.shape[1:]) + more + 16) * size**2)


def _sizes(A: Float[ndarray, "p a b"]) -> Float[ndarray, " p"]:
    """Upper bounds of the Frobenius norms."""
    entries = A.shape[1] * A.shape[2]
    return np.asarray(np.linalg.norm(A, axis=(1, 2)) * (1 + gamma(entries + 8)) + entries * TINY**0.5)


def likely_levels(forms: Forms, facets: Facets, N: Multipliers) -> Float[ndarray, " p"]:
    """About lambda_max(form + K^T N K) of every cone, for searches and not for proofs."""
    values: ndarray = np.linalg.eigvalsh(forms + facets.transpose(0, 2, 1) @ N @ facets)[:, -1]
    return values


def _facets(units: Float[ndarray, "n r"], active: Bool[ndarray, "p n"], needed: Bool[ndarray, "p n"]) -> Facets:
    """The needed rows of every pattern, turned to its side, padded with zeros."""
    width = int(needed.sum(1).max(initial=0))
    order = np.argsort(~needed, axis=1, kind="stable")[:, :width]
    there = np.take_along_axis(needed, order, 1)
    side = np.where(np.take_along_axis(active, order, 1), 1.0, -1.0) * there
    return np.asarray(side[:, :, None] * units[order])
