r"""Bounds of f(u) = |z(u)|, z = V^T (X u)_+, on cones over simplices, of second order in their size.

Take a simplex with unit corners p_k, and u = sum_k mu_k p_k on it, mu >= 0, |u| = 1. It lies in the cap whose centre m
is the mean of the corners and whose angle has cosine min_k m p_k, so sum_k mu_k <= s, one over that cosine. A row x_i
with one sign at all corners has it on the simplex, and (x_i u)_+ is linear there. For others, a unit vector e, and
w_i = e v_i:

- if w_i >= 0, (x_i u)_+ is convex and homogeneous, so at most sum_k mu_k (x_i p_k)_+, which is linear in u;
- if w_i < 0, (x_i u)_+ is at least theta_i x_i u, for any theta_i in [0, 1].

Hence e z(u) <= a u with a known vector a, so that e z(u) is at most (1) s max_k (a p_k)_+, and (2) the length of the
projection of a to the cone over the cap, which is the maximum of a u over the cap. Without rows of w_i > 0 and with the
best theta, (2) is the maximum of e z over the cap, by von Neumann's theorem: concave ridges cost nothing.

Let g be the direction of z(m), and e run over an orthonormal basis that begins with g. With (1) for -g and for both
signs of the others, |z|^2 <= max(ahead, back)^2 + aside^2, where g z <= ahead, -g z <= back, |z - (g z) g| <= aside.
With one output there is no aside. With more, the sum of two maxima is improved. Let G be the matrix of all the linear
functions used for g, so that z = G u + sum_i v_i e_i with g sum_i v_i e_i <= 0 and |e_i| <= d_i,

    d_i = s h l / (h + l) if w_i >= 0, because |e_i| = min(sum_k mu_k (x_i p_k)_+, sum_k mu_k (x_i p_k)_-),
    d_i = s max((1 - theta_i) h, theta_i l) if w_i < 0,        h = max_k x_i p_k, -l = min_k x_i p_k.

Let E = sum_i |v_i - w_i g| d_i, P = I - g g^T, Q a bound of |G u| and A <= Q one of |P G u|. Where g z >= 0, it is at
most g G u, so |z|^2 <= (g G u)^2 + (|P G u| + E)^2 <= Q^2 + 2 E A + E^2. Norms of G u are at most s times the largest
at a corner, and at most the form of G on the cap (:mod:`bidual.polar.sphere.caps`).

All this holds for numbers as they are stored, in real arithmetic; :mod:`bidual.polar.sphere.simplex_rounding` adds the
rounding. A bound contains the residual of the function through the corners and no other rounding: a search that closed
simplices by less than their rounding would never end.
"""

from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from bidual.polar.sphere import simplex_rounding
from bidual.polar.sphere.caps import Cap, apply
from bidual.polar.sphere.simplices import Simplices

_TINY = 1e-300
_STEPS = 10  # of the improvement of theta
_REACH = 1.5  # theta is improved on simplices whose first bound is within this factor of the threshold


class Bounded(NamedTuple):
    """Simplices with bounds, rows of both signs and edges to cut; f at their centres; candidates for its maximum; s."""

    simplices: Simplices
    centres: Float[ndarray, "m r"]
    values: Float[ndarray, " m"]
    candidates: Float[ndarray, "m r"]
    stretch: Float[ndarray, " m"]


@dataclass(frozen=True, eq=False)
class SimplexBounds:
    """Bounds at one V.

    Attributes:
        X: (n + 1, r), with a zero row at the end; V and M, the rows v_i x_i^T, likewise.
    """

    X: Float[ndarray, "n r"]
    V: Float[ndarray, "n c"]
    M: Float[ndarray, "n cr"]

    @classmethod
    def of(cls, X: Float[ndarray, "n r"], V: Float[ndarray, "n c"]) -> "SimplexBounds":
        X, V = (np.concatenate([A, np.zeros((1, A.shape[1]))]) for A in (X, V))
        return cls(X, V, (V[:, :, None] * X[:, None, :]).reshape(len(X), -1))

    def __call__(self, simplices: Simplices, threshold: float) -> Bounded:
        """The simplices with their bounds, which are improved above the threshold only."""
        X = np.take(self.X, simplices.rows, axis=0)
        at_corners = simplices.corners @ X.transpose(0, 2, 1)
        rows = _Rows.of(X, np.take(self.V, simplices.rows, axis=0), at_corners)
        on = (rows.low >= 0)[:, None, :].astype(float)
        fixed = simplices.fixed + (on @ np.take(self.M, simplices.rows, axis=0)).reshape(simplices.fixed.shape)
        form = _Form.of(simplices.corners, fixed, rows, at_corners)
        bound, candidates = self._bound(form, threshold)
        left = np.where(rows.mixed, simplices.rows, len(self.X) - 1)
        edge = _worst_edge(simplices.corners, rows, at_corners, threshold)
        bound = np.where(np.isnan(bound), np.inf, bound)  # NaN proves nothing
        found = replace(simplices, fixed=fixed, rows=left, bound=np.minimum(bound, simplices.bound), edge=edge)
        return Bounded(found, form.cap.centre, form.value, candidates, 1 / form.cap.cosine)

    def _bound(self, form: "_Form", threshold: float) -> tuple[Float[ndarray, " m"], Float[ndarray, "m r"]]:
        bound, candidates = form.bound(form.rows.chord)
        live = np.flatnonzero((bound > threshold) & (bound <= _REACH * threshold))
        if len(live):
            part = form.take(live)
            better, candidates[live] = part.bound(part.improved(part.rows.chord, _STEPS))
            bound[live] = np.minimum(bound[live], better)
        return bound, candidates


class _Rows(NamedTuple):
    """Rows of X on each simplex, v_i = 0 unless they have both signs there; ``chord`` is h / (h + l), a first theta."""

    X: Float[ndarray, "m k r"]
    V: Float[ndarray, "m k c"]
    high: Float[ndarray, "m k"]
    low: Float[ndarray, "m k"]
    mixed: Bool[ndarray, "m k"]
    chord: Float[ndarray, "m k"]

    @classmethod
    def of(cls, X: Float[ndarray, "m k r"], V: Float[ndarray, "m k c"], at_corners: Float[ndarray, "m r k"]) -> "_Rows":
        high, low = at_corners.max(1), at_corners.min(1)
        mixed = (high > 0) & (low < 0)
        return cls(X, V * mixed[:, :, None], high, low, mixed, high / np.maximum(high - low, _TINY))

    def take(self, which: ndarray) -> "_Rows":
        return _Rows(*(part[which] for part in self))

    def errors(self, theta: Float[ndarray, "m k"], convex: Bool[ndarray, "m k"]) -> Float[ndarray, "m k"]:
        """d_i / s."""
        return np.where(convex, -self.chord * self.low, np.maximum((1 - theta) * self.high, -theta * self.low))


@dataclass(frozen=True, eq=False)
class _Form:
    """The data of the bounds on each simplex; ``G`` lacks the rows of w_i < 0, which are added with their theta."""

    corners: Float[ndarray, "m r r"]
    cap: Cap
    rows: _Rows
    value: Float[ndarray, " m"]
    g: Float[ndarray, "m c"]
    w: Float[ndarray, "m k"]
    G: Float[ndarray, "m c r"]
    rounding: Float[ndarray, " m"]
    back: Float[ndarray, " m"]
    aside: Float[ndarray, " m"]

    @classmethod
    def of(cls, corners: ndarray, fixed: ndarray, rows: _Rows, at_corners: Float[ndarray, "m r k"]) -> "_Form":
        cap, positive = Cap.around(corners), np.maximum(at_corners, 0)
        active = np.maximum(apply(rows.X, cap.centre), 0)
        z = apply(fixed, cap.centre) + (active[:, None, :] @ rows.V)[:, 0]
        g, value = _direction(z)
        w = apply(rows.V, g)
        through, missed = _interpolate(corners, positive @ (rows.V * (w >= 0)[:, :, None]))
        rounding = simplex_rounding.of_interpolation(missed, through, 1 / cap.cosine)
        others = _frame(g)
        W = rows.V @ others
        above = positive @ np.maximum(W, 0) + at_corners @ (np.minimum(W, 0) * rows.chord[:, :, None])
        most = np.maximum((corners @ fixed.transpose(0, 2, 1) @ others + above).max(1), 0) / cap.cosine[:, None]
        c = g.shape[1]
        aside = np.linalg.norm(np.maximum(most[:, 1:c], most[:, c:]), axis=1)
        return cls(corners, cap, rows, value, g, w, fixed + through.transpose(0, 2, 1), rounding, most[:, 0], aside)

    def take(self, which: ndarray) -> "_Form":
        cap, rows = self.cap.take(which), self.rows.take(which)
        rest = [getattr(self, part.name)[which] for part in fields(self)[3:]]
        return _Form(self.corners[which], cap, rows, *rest)

    def improved(self, theta: Float[ndarray, "m k"], steps: int) -> Float[ndarray, "m k"]:
        """Accelerated projected gradient on half the square of bound (2), whose gradient in a is the projection."""
        A = np.minimum(self.w, 0)[:, :, None] * self.rows.X
        start = apply(self.G.transpose(0, 2, 1), self.g)
        step = 1 / np.maximum(np.einsum("mkr,mkr->m", A, A), _TINY)[:, None]
        ahead, momentum = theta, 1.0
        for _ in range(steps):
            slope = apply(A, self.cap.project(start + (ahead[:, None, :] @ A)[:, 0]))
            moved = np.clip(ahead - step * slope, 0, 1)
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = moved + (momentum - 1) / following * (moved - theta)
            theta, momentum = moved, following
        return theta

    def bound(self, theta: Float[ndarray, "m k"]) -> tuple[Float[ndarray, " m"], Float[ndarray, "m r"]]:
        """The bound at theta, and the point of the cap where g G u is largest."""
        G = self.G + (np.where(self.w < 0, theta, 0)[:, :, None] * self.rows.V).transpose(0, 2, 1) @ self.rows.X
        a = apply(G.transpose(0, 2, 1), self.g)
        (highest, most), along = self.cap.highest(a), apply(self.corners, a)
        ahead = np.minimum(most, np.maximum(along.max(1), 0) / self.cap.cosine)
        bound = np.maximum(ahead, self.back) if G.shape[1] == 1 else self._with_aside(G, theta, along, ahead)
        length = np.linalg.norm(highest, axis=1)
        unit = highest / np.maximum(length, _TINY)[:, None]
        return bound + self.rounding, np.where(length[:, None] > 0, unit, self.cap.centre)

    def _with_aside(self, G: ndarray, theta: ndarray, along: ndarray, ahead: ndarray) -> Float[ndarray, " m"]:
        stretch = 1 / self.cap.cosine
        at_corners = G @ self.corners.transpose(0, 2, 1)
        across = stretch * np.linalg.norm(at_corners - self.g[:, :, None] * along[:, None, :], axis=1).max(1)
        sideways = np.linalg.norm(self.rows.V - self.w[:, :, None] * self.g[:, None, :], axis=2)
        E = stretch * (sideways * self.rows.errors(theta, self.w >= 0)).sum(1)
        square = np.minimum((at_corners**2).sum(1).max(1) * stretch**2, self.cap.square(G))
        across = np.minimum(across, np.sqrt(square))
        aside = np.minimum(self.aside, across + E) ** 2
        forward = np.minimum(square + 2 * E * across + E**2, ahead**2 + aside)
        return np.sqrt(np.maximum(forward, self.back**2 + aside))


def _direction(z: Float[ndarray, "m c"]) -> tuple[Float[ndarray, "m c"], Float[ndarray, " m"]]:
    """z / |z|, the first axis for zero, and |z|; entries are scaled first, or squares of tiny ones would have no digits
    and g not the length one."""
    top = np.abs(z).max(1)
    near = np.where(top[:, None] > 0, z / np.where(top > 0, top, 1)[:, None], np.eye(1, z.shape[1]))
    length = np.linalg.norm(near, axis=1)
    return near / length[:, None], top * length


def _interpolate(corners: Float[ndarray, "m r r"], values: Float[ndarray, "m r c"]) -> tuple[ndarray, ndarray]:
    """The linear function (m, r, c) with these values at the corners, and by how much it misses them, as computed."""
    try:
        through = np.linalg.solve(corners, values)
    except np.linalg.LinAlgError:  # corners that have become one
        through = np.linalg.pinv(corners) @ values
    return through, np.linalg.norm(values - corners @ through, axis=2).max(1)


def _frame(g: Float[ndarray, "m c"]) -> Float[ndarray, "m c q"]:
    """-g, and both signs of an orthonormal basis of the complement of g, by a reflection of the first axis to g."""
    c = g.shape[1]
    h = g + np.where(g[:, :1] >= 0, 1.0, -1.0) * np.eye(1, c)
    H = np.eye(c) - 2 * h[:, :, None] * h[:, None, :] / (h**2).sum(1)[:, None, None]
    return np.concatenate([-g[:, :, None], H[:, :, 1:], -H[:, :, 1:]], axis=2)


def _worst_edge(corners: ndarray, rows: _Rows, at_corners: Float[ndarray, "m r k"], size: float) -> Int[ndarray, " m"]:
    """The edge that costs the bounds most: sum_i |v_i| (x_i (p_j - p_k))^2 / (h + l) + size |p_j - p_k|^2 / 2."""
    weight = np.linalg.norm(rows.V, axis=2) / np.maximum(rows.high - rows.low, _TINY)
    r = corners.shape[1]
    pairs = list(combinations(range(r), 2)) or [(0, 0)]
    costs = []
    for j, k in pairs:  # differences first: narrow simplices would drown in the rounding of a Gram matrix
        spread, gap = (at_corners[:, j] - at_corners[:, k]) ** 2, (corners[:, j] - corners[:, k]) ** 2
        costs.append((weight * spread).sum(1) + size / 2 * gap.sum(1))
    return np.array([r * j + k for j, k in pairs])[np.argmax(costs, axis=0)]
