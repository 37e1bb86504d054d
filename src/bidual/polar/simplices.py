r"""Cones over simplices of the sphere of R^r, and bounds of |V^T (X u)_+| on them, many at once.

A cell is the cone over r unit corners p_k. Write u = sum_k mu_k p_k, mu >= 0, |u| = 1, and t_i = x_i u, so that t_i is
known at the corners, and a row that has one sign at all corners has it on the cell. With the cap of centre m and angle
delta around the cell, 1 <= sum_k mu_k <= s = 1 / cos delta. Only rows of both signs need a bound, here z = V^T (X u)_+:

1. With a unit vector g, w_i = g v_i. If w_i >= 0, (t_i)_+ is convex in u and at most sum_k mu_k (x_i p_k)_+, a linear
   function of u that is exact at the corners. If w_i < 0, (t_i)_+ is at least theta_i t_i, for any theta_i in [0, 1].
   So g z <= g G u for a matrix G (c, r), with no constant term; all of z = G u + sum_i v_i e_i.
2. |e_i| <= d_i: s h l / (h + l), where h and -l are the largest and the least x_i p_k, if w_i >= 0, because then e_i is
   -min(sum mu (x_i p)_+, sum mu (x_i p)_-); and s max((1 - theta_i) h, theta_i l) if w_i < 0.
3. One output: |z| <= max(g G u, sum_i |w_i| d_i - g G u). The maximum of a linear function a u on the cell is at most
   the length of the projection of a to the cone over the cap, and at most s times its largest value at a corner.
   Without rows of w_i > 0 the first is the exact maximum over the cap, at the best theta (von Neumann): it is a ridge.
4. More outputs: with P = I - g g^T, |z|^2 <= |G u|^2 + 2 E |P G u| + E^2, E = sum_i |P v_i| d_i, wherever
   2 g G u >= sum_i |w_i| d_i, and |z| is at most the root of that plus sum_i |w_i| d_i elsewhere. |P G u| is at most s
   times its largest value at a corner, and so is |G u|; on the cap with u = cos m + sin t moreover |G u|^2 <=
   cos^2 |G m|^2 + 2 sin cos |G m G t| + sin^2 |G t|^2, largest over angles in [0, delta] in closed form.

All are of second order in delta: h, l, E and P G u (for g near z(m)/|z(m)|) are of first order.
"""

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Simplices:
    """Cones over simplices.

    Attributes:
        corners: (m, r, r), unit rows.
        fixed: (m, c, r), the sum of v_i x_i^T over the rows known to be positive on the cell.
        rows: (m, k), the rows of X that may have both signs, filled up with n, the index of a zero row.
        bound: (m,), of f on the cell.
    """

    corners: Float[ndarray, "m r r"]
    fixed: Float[ndarray, "m c r"]
    rows: Int[ndarray, "m k"]
    bound: Float[ndarray, " m"]

    @classmethod
    def orthants(cls, n: int, r: int, c: int) -> "Simplices":
        """The 2^r orthants, which cover the sphere."""
        corners = np.array([np.diag(signs) for signs in product([1.0, -1.0], repeat=r)])
        m = len(corners)
        return cls(corners, np.zeros((m, c, r)), np.tile(np.arange(n), (m, 1)), np.full(m, np.inf))

    def __len__(self) -> int:
        return len(self.corners)

    def take(self, which: ndarray | slice) -> "Simplices":
        return Simplices(self.corners[which], self.fixed[which], self.rows[which], self.bound[which])

    def packed(self, n: int) -> "Simplices":
        """The same with no more columns of ``rows`` than needed."""
        width = max(int((self.rows < n).sum(1).max(initial=0)), 1)
        rows = np.sort(self.rows, axis=1)[:, :width]
        return Simplices(self.corners, self.fixed, rows, self.bound)

    def halved(self) -> "Simplices":
        """Each cell cut at the middle of its longest edge."""
        m, r, _ = self.corners.shape
        cosines = self.corners @ self.corners.transpose(0, 2, 1)
        longest = cosines.reshape(m, -1).argmin(1)
        each, i, j = np.arange(m), longest // r, longest % r
        middle = self.corners[each, i] + self.corners[each, j]
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
        halves = np.repeat(self.corners[None], 2, axis=0)
        halves[0, each, i] = halves[1, each, j] = middle
        twice = [np.concatenate([part, part]) for part in (self.fixed, self.rows, self.bound)]
        return Simplices(halves.reshape(2 * m, r, r), twice[0], twice[1], twice[2])


def join(parts: list[Simplices], n: int) -> Simplices:
    """One batch of several."""
    width = max(part.rows.shape[1] for part in parts)
    rows = [np.pad(part.rows, ((0, 0), (0, width - part.rows.shape[1])), constant_values=n) for part in parts]
    corners, fixed, bound = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("corners", "fixed", "bound")
    )
    return Simplices(corners, fixed, np.concatenate(rows), bound)


class Bounded(NamedTuple):
    """Cells with their bounds, f at their centres, and where their bound is attained, a good candidate."""

    cells: Simplices
    centres: Float[ndarray, "m r"]
    values: Float[ndarray, " m"]
    candidates: Float[ndarray, "m r"]


class SimplexBounds:
    """Bounds at one V; see the module for the formulas.

    Attributes:
        steps: of the accelerated projected gradient in theta.
        reach: theta is improved on cells whose first bound is within this factor of the threshold.
    """

    def __init__(self, X: Float[ndarray, "n r"], V: Float[ndarray, "n c"], steps: int = 10, reach: float = 1.5) -> None:
        self.n, self.r, self.c = len(X), X.shape[1], V.shape[1]
        self._X, self._V = (np.concatenate([A, np.zeros((1, A.shape[1]))]) for A in (X, V))
        self._M = (self._V[:, :, None] * self._X[:, None, :]).reshape(self.n + 1, -1)
        self._steps, self._reach = steps, reach

    def __call__(self, cells: Simplices, threshold: float) -> Bounded:
        X = np.take(self._X, cells.rows, axis=0)
        T = cells.corners @ X.transpose(0, 2, 1)
        high, low = T.max(1), T.min(1)
        on = low >= 0
        mixed = (high > 0) & ~on
        moved = on[:, None, :].astype(float) @ np.take(self._M, cells.rows, axis=0)
        fixed = cells.fixed + moved.reshape(-1, self.c, self.r)
        cap = _Cap.around(cells.corners)
        V = np.take(self._V, cells.rows, axis=0) * mixed[:, :, None]
        face = _Face.of(cells.corners, cap, fixed, X, V, T, high, low)
        theta = np.where(face.w < 0, high / np.maximum(high - low, _TINY), 0.0)
        bound, candidates = face.bound(theta)
        live = np.flatnonzero((bound > threshold) & (bound <= self._reach * threshold))
        if len(live) and self._steps:
            part = face.take(live)
            better, candidates[live] = part.bound(part.improved(theta[live], self._steps))
            bound[live] = np.minimum(bound[live], better)
        rows = np.where(mixed, cells.rows, self.n)
        return Bounded(
            Simplices(cells.corners, fixed, rows, np.minimum(bound, cells.bound)), cap.centre, face.value, candidates
        )


class _Cap(NamedTuple):
    """The smallest cap around the mean of the corners that contains them."""

    centre: Float[ndarray, "m r"]
    cosine: Float[ndarray, " m"]
    sine: Float[ndarray, " m"]

    @classmethod
    def around(cls, corners: Float[ndarray, "m r r"]) -> "_Cap":
        mean = corners.sum(1)
        centre = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        cosine = np.minimum((corners @ centre[:, :, None])[:, :, 0].min(1), 1.0)
        return cls(centre, cosine, np.sqrt(1 - cosine**2))

    def project(self, a: Float[ndarray, "m r"]) -> Float[ndarray, "m r"]:
        """The nearest point to a of the cone over the cap; its length is the maximum of a u over the cap, if not < 0."""
        along = (a * self.centre).sum(1)
        across = a - along[:, None] * self.centre
        length = np.linalg.norm(across, axis=1)
        size = np.maximum(along * self.cosine + length * self.sine, 0)
        side = self.cosine[:, None] * self.centre + (self.sine / np.maximum(length, _TINY))[:, None] * across
        return np.where((length * self.cosine <= along * self.sine)[:, None], a, size[:, None] * side)

    def take(self, which: ndarray) -> "_Cap":
        return _Cap(*(part[which] for part in self))


class _Face(NamedTuple):
    """What the bounds of a batch of cells are made of; rows of one sign have v = 0."""

    corners: Float[ndarray, "m r r"]
    cap: _Cap
    value: Float[ndarray, " m"]
    g: Float[ndarray, "m c"]
    w: Float[ndarray, "m k"]
    X: Float[ndarray, "m k r"]
    V: Float[ndarray, "m k c"]
    high: Float[ndarray, "m k"]
    low: Float[ndarray, "m k"]
    G: Float[ndarray, "m c r"]
    residual: Float[ndarray, " m"]

    @classmethod
    def of(
        cls, corners: ndarray, cap: _Cap, fixed: ndarray, X: ndarray, V: ndarray, T: ndarray, high: ndarray, low: ndarray
    ) -> "_Face":
        centre = cap.centre[:, :, None]
        z = (fixed @ centre)[:, :, 0] + (np.maximum(X @ centre, 0).transpose(0, 2, 1) @ V)[:, 0]
        value = np.linalg.norm(z, axis=1)
        g = z / np.maximum(value, _TINY)[:, None]
        w = (V @ g[:, :, None])[:, :, 0]
        at_corners = np.maximum(T, 0) @ (V * (w > 0)[:, :, None])
        through = np.linalg.solve(corners, at_corners)
        residual = np.linalg.norm(at_corners - corners @ through, axis=2).max(1)
        return cls(corners, cap, value, g, w, X, V, high, low, fixed + through.transpose(0, 2, 1), residual)

    def take(self, which: ndarray) -> "_Face":
        parts = {name: getattr(self, name) for name in self._fields if name != "cap"}
        return _Face(cap=self.cap.take(which), **{name: part[which] for name, part in parts.items()})

    def improved(self, theta: Float[ndarray, "m k"], steps: int) -> Float[ndarray, "m k"]:
        """theta after accelerated projected gradient steps on half the square of the projection of a = G^T g."""
        A = np.minimum(self.w, 0)[:, :, None] * self.X
        start = (self.g[:, None, :] @ self.G)[:, 0]
        step = 1 / np.maximum(np.einsum("mkr,mkr->m", A, A), _TINY)[:, None]
        ahead, momentum = theta, 1.0
        for _ in range(steps):
            slope = A @ self.cap.project(start + (ahead[:, None, :] @ A)[:, 0])[:, :, None]
            moved = np.clip(ahead - step * slope[:, :, 0], 0, 1)
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = moved + (momentum - 1) / following * (moved - theta)
            theta, momentum = moved, following
        return theta

    def bound(self, theta: Float[ndarray, "m k"]) -> tuple[Float[ndarray, " m"], Float[ndarray, "m r"]]:
        """Formulas 3 and 4 at theta, and the point of the cap where g G u is largest."""
        concave = self.w < 0
        stretch = 1 / self.cap.cosine
        chord = -self.high * self.low / np.maximum(self.high - self.low, _TINY)
        off = np.where(concave, np.maximum((1 - theta) * self.high, -theta * self.low), np.maximum(chord, 0))
        d = stretch[:, None] * off
        G = self.G + (np.where(concave, theta, 0)[:, :, None] * self.V).transpose(0, 2, 1) @ self.X
        a = (self.g[:, None, :] @ G)[:, 0]
        slack = (np.abs(self.w) * d).sum(1)
        highest = self.cap.project(a)
        bound = self._scalar(a, highest, slack) if G.shape[1] == 1 else self._vector(G, a, d, slack)
        length = np.linalg.norm(highest, axis=1, keepdims=True)
        candidates = np.where(length > 0, highest / np.maximum(length, _TINY), self.cap.centre)
        return bound + stretch * self.residual, candidates

    def _scalar(self, a: ndarray, highest: ndarray, slack: ndarray) -> Float[ndarray, " m"]:
        at_corners = (self.corners @ a[:, :, None])[:, :, 0]
        stretch, least = 1 / self.cap.cosine, at_corners.min(1)
        ahead = np.minimum(np.linalg.norm(highest, axis=1), stretch * np.maximum(at_corners.max(1), 0))
        return np.maximum(ahead, slack - np.where(least > 0, 1, stretch) * least)

    def _vector(self, G: ndarray, a: ndarray, d: ndarray, slack: ndarray) -> Float[ndarray, " m"]:
        at_corners = G @ self.corners.transpose(0, 2, 1)
        along = (self.corners @ a[:, :, None])[:, :, 0]
        across = np.linalg.norm(at_corners - self.g[:, :, None] * along[:, None, :], axis=1).max(1)
        sideways = np.linalg.norm(self.V - self.w[:, :, None] * self.g[:, None, :], axis=2)
        E, stretch = (sideways * d).sum(1), 1 / self.cap.cosine
        square = np.minimum((at_corners**2).sum(1).max(1) * stretch**2, _form_on_cap(G, self.cap))
        bound = np.sqrt(square + 2 * E * stretch * across + E**2)
        return bound + np.where(2 * along.min(1) >= slack, 0, slack)


def _form_on_cap(G: Float[ndarray, "m c r"], cap: _Cap) -> Float[ndarray, " m"]:
    """A bound of |G u|^2: q cos^2 + 2 p sin cos + l sin^2 = (q + l) / 2 + |(q - l) / 2, p| cos(2 angle - phase)."""
    forth = (G @ cap.centre[:, :, None])[:, :, 0]
    q = (forth**2).sum(1)
    rest = G - forth[:, :, None] * cap.centre[:, None, :]
    p = np.linalg.norm((forth[:, None, :] @ rest)[:, 0], axis=1)
    top = np.linalg.eigvalsh(rest @ rest.transpose(0, 2, 1))[:, -1]
    phase = np.arctan2(p, (q - top) / 2)
    angle = np.minimum(phase, 2 * np.arctan2(cap.sine, cap.cosine))
    return (q + top) / 2 + np.hypot(p, (q - top) / 2) * np.cos(phase - angle)


Chosen = Bool[ndarray, " m"]
