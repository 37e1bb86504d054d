r"""Several outputs (PR A.11): the steepest sub-network of |V^T f(X)| from queries with one output.

|V^T f| = max over unit g of (V g)^T f, so the maximum is that of N(V g) over the sphere of outputs, where N, the polar
for one output, is convex, even and positively homogeneous. On the cone of corners g_1, ..., g_c, g = sum_i l_i g_i with
l >= 0 has N(V g) <= sum_i l_i N(V g_i), a linear function a^T g whose largest value on the unit vectors of the cone is
the length of the projection of a onto it. Cones with too large a bound are cut in half.

Rounding is allowed for where it happens: in V = B Q^T and a rest, which is measured (:func:`_principal`), in the
queries B g (:meth:`_Search.query`), in the projection, of which any point is checked (:func:`_cone_bound`), and in the
corners of cut cones (:meth:`_Search.cut`).
"""

import heapq
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, product
from math import prod, sqrt
from time import perf_counter
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.numerics.eigenvalue_bounds import orthogonality_error
from bidual.numerics.linear_algebra import nonnegative_multipliers
from bidual.numerics.rounding import TINY, gamma, length, rounded_up
from bidual.operators.parallel import Widths, as_widths, sub_network_features
from bidual.polar.base import Neurons, SteepestNeurons
from bidual.polar.subnetworks.base import ParallelOracle

_CUT_OUTPUTS = 4  # beyond, all cones of the first cut would be too many
_QUIET = 0.9  # of ``above``: corners below it need not be known
_LISTED = 500


@dataclass(eq=False)
class AllOutputs(ParallelOracle):
    """An oracle for one output, for any number of them.

    Attributes:
        scalar: the oracle for one output; the bracket is as sound as its.
        tol: relative width of the bracket, where queries suffice.
        max_queries: of the oracle; a bracket that is stopped early is wider, and as valid.
        looseness: the share of the excess over ``above`` that stays open (see :class:`Sphere`).
    """

    scalar: ParallelOracle
    tol: float = 1e-6
    max_queries: int = 200
    looseness: float = 0.1
    widths: Widths = field(init=False)

    def __post_init__(self) -> None:
        self.widths, self.X, self.lengths = self.scalar.widths, self.scalar.X, self.scalar.lengths

    def within(self, seconds: float | None) -> Self:
        other = super().within(seconds)
        other.scalar = self.scalar.within(seconds)
        return other

    def _steepest(self, V: Tensor, above: float, seeds: Neurons | None) -> SteepestNeurons:
        axes, B, rest = _principal(V)
        run = _Search(self, B, above)
        run.search(self._deadline())
        neurons = torch.cat([*run.found, *([] if seeds is None else [seeds.to(self.X)])])
        outputs = sub_network_features(self.X, neurons, as_widths(self.widths)).T @ V
        upper = rounded_up(run.upper * (1 + orthogonality_error(axes)) + rest * self.reach)
        return SteepestNeurons.ranked(neurons, torch.linalg.vector_norm(outputs, dim=1), above, upper, _LISTED)

    @property
    def reach(self) -> float:
        """A bound of |f(X)|_2, because |f(x)| <= sqrt(m_1 m_2 ...) |x|, and of |f(x)| for rows of length one."""
        return rounded_up(sqrt(prod(as_widths(self.widths))) * max(length(self.X), 1.0))


class _Search:
    """One query over the directions of the outputs, in the coordinates of the principal axes of V: |B^T f|."""

    def __init__(self, settings: AllOutputs, B: Float[Tensor, "n r"], above: float) -> None:
        self.settings, self.B, self.above = settings, B, above
        self.corners: list[Float[ndarray, " r"]] = []
        self.bounds: list[float] = []
        self.found: list[Neurons] = []
        self.closed, self.cuts = 0.0, 0
        self.queue: list[tuple[float, int, tuple[int, ...], Float[ndarray, " r"]]] = []
        self.serial = count()

    @property
    def threshold(self) -> float:
        best = max(self.above, *self.bounds)  # no cut improves the oracle's bound at a corner
        loose = self.settings.looseness * (best - self.above) if self.above > 0 else 0.0
        return best + max(self.settings.tol * best, loose)

    @property
    def upper(self) -> float:
        """After a cut, a unit vector of the cone is within l |e| of the two halves, where e is the rounding of the new
        corner and l its share in the vector: at most sqrt(r), because corners of a cone have no obtuse angles. So a
        unit vector is within e' = cuts sqrt(r) |e| of all cones together, and N(B e') <= e' |N of the axes|."""
        r = self.B.shape[1]
        moved = self.cuts * sqrt(r) * gamma(r + 16)
        return rounded_up(max(self.closed, -self.queue[0][0] if self.queue else 0.0) * (1 + moved) + moved * self.most)

    @property
    def most(self) -> float:
        """N(B g) <= sum_k |g_k| N(B e_k) for every unit g."""
        return rounded_up(float(np.linalg.norm(self.bounds[: self.B.shape[1]])) * (1 + gamma(self.B.shape[1] + 4)))

    def search(self, deadline: float) -> None:
        r = self.B.shape[1]
        axes = [self.query(e) for e in np.eye(r)]
        if r > _CUT_OUTPUTS:
            self.closed = self.most
            return
        for signs in product((1.0, -1.0), repeat=r - 1):
            self.add(tuple(axes), np.array([1.0, *signs]))
        most = self.settings.max_queries
        while self.queue and -self.queue[0][0] > self.threshold and len(self.corners) < most:
            if perf_counter() > deadline:
                break
            self.cut(*heapq.heappop(self.queue)[2:])

    def query(self, g: Float[ndarray, " r"]) -> int:
        """The number of a new corner g, with the bound N(B g); v_i is off by at most gamma(r) |b_i| |g|."""
        v = self.B @ torch.from_numpy(g).to(self.B)[:, None]
        found = self.settings.scalar._steepest(v, _QUIET * self.above, None)
        error = gamma(len(g) + 4) * length(self.B) * self.settings.reach
        self.corners.append(g)
        self.bounds.append(rounded_up(found.bracket.upper + error))
        self.found.append(found.neurons[:_LISTED])
        return len(self.corners) - 1

    def add(self, cone: tuple[int, ...], signs: Float[ndarray, " r"]) -> None:
        """Queue a cone, given by its corners and their signs, with its bound."""
        G = signs[:, None] * np.stack([self.corners[k] for k in cone])
        bound = _cone_bound(G, np.array([self.bounds[k] for k in cone]))
        heapq.heappush(self.queue, (-bound, next(self.serial), cone, signs))

    def cut(self, cone: tuple[int, ...], signs: Float[ndarray, " r"]) -> None:
        """Two halves, cut at the middle of the longest edge. It is in the orthant of the cone, as all its corners are,
        and off by gamma(r + 8) of its length."""
        self.cuts += 1
        G = signs[:, None] * np.stack([self.corners[k] for k in cone])
        cosine = G @ G.T + 2 * np.eye(len(G))
        i, j = np.unravel_index(int(cosine.argmin()), cosine.shape)
        middle = self.query((G[i] + G[j]) / np.linalg.norm(G[i] + G[j]))
        for old in (int(i), int(j)):
            corners, turned = list(cone), signs.copy()
            corners[old], turned[old] = middle, 1.0
            self.add(tuple(corners), turned)


def _cone_bound(G: Float[ndarray, "r r"], b: Float[ndarray, " r"]) -> float:
    r"""A bound of sum_i l_i b_i over all l >= 0 with |sum_i l_i g_i| <= 1, for corners g_i without obtuse angles.

    If g_i^T q >= b_i - e for all i, then sum_i l_i b_i <= (sum_i l_i g_i)^T q + e sum_i l_i <= |q| + e sum_i l_i for
    any q, and sum_i l_i <= sqrt(r) / min |g_i|. The best q is the projection onto the cone of the a with G a = b; for
    narrow cones, whose a is lost in rounding, a multiple of the middle of the cone.
    """
    middle = G.sum(0)
    candidates = [middle * float((b / (G @ middle)).max())]
    with suppress(np.linalg.LinAlgError):
        candidates.append(G.T @ nonnegative_multipliers(G, np.linalg.solve(G, b)))
    return min(_checked(G, b, q) for q in candidates)


def _checked(G: Float[ndarray, "r r"], b: Float[ndarray, " r"], q: Float[ndarray, " r"]) -> float:
    """|q| + e sqrt(r) / min |g_i|, see :func:`_cone_bound`."""
    r, size = len(q), length(torch.from_numpy(q))
    shortest, longest = (float(end) for end in np.sort(np.linalg.norm(G, axis=1))[[0, -1]])
    missing = float((b - G @ q).max()) + gamma(r + 4) * (longest * size + float(b.max())) + r * TINY
    return rounded_up(size + max(missing, 0.0) * sqrt(r) / shortest * 1.001) if np.isfinite(missing) else np.inf


def _principal(V: Float[Tensor, "n c"]) -> tuple[Float[Tensor, "c r"], Float[Tensor, "n r"], float]:
    """Q, the directions of outputs in which V is not zero, B = V Q, and the length of the rest V - B Q^T; with it,
    |V^T f| <= |Q| |B^T f| + |rest| |f|, and |Q| is one and what Q lacks to be orthonormal."""
    _, values, axes = torch.linalg.svd(V, full_matrices=False)
    Q = axes[values > 1e-13 * values[0]].T
    B = V @ Q
    error = gamma(Q.shape[1] + 4) * (length(V) + length(B) * length(Q))
    return Q, B, rounded_up(length(V - B @ Q.T) + error)
