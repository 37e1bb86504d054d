r"""Several outputs (PR A.11): the steepest sub-network of |V^T f(X)| from questions with one output.

|V^T f| = max over unit g of (V g)^T f, so the maximum is that of N(V g) over the sphere of outputs, where N, the polar
for one output, is convex, even and positively homogeneous. On the cone of corners g_1, ..., g_c, g = sum_i l_i g_i with
l >= 0 has N(V g) <= sum_i l_i N(V g_i), a linear function a^T g whose largest value on the unit vectors of the cone is
the length of the projection of a onto it. Cones with too large a bound are cut in half.
"""

import heapq
from dataclasses import dataclass, field
from itertools import count, product
from math import sqrt
from time import perf_counter
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import nnls
from torch import Tensor

from bidual.gauges import Bracket
from bidual.operators.parallel import Widths, as_widths, sub_network_features
from bidual.parallel.base import ParallelOracle
from bidual.polar.base import Neurons, Peaks

_CUT_OUTPUTS = 4  # beyond, all cones of the first cut would be too many
_QUIET = 0.9  # of the value asked about: corners below it need not be known
_LISTED = 500
_EPS = float(np.finfo(np.float64).eps)


@dataclass(eq=False)
class AllOutputs(ParallelOracle):
    """An oracle for one output, for any number of them.

    Attributes:
        scalar: the oracle for one output; the bracket is as sound as its.
        tol: relative width of the bracket, where questions suffice.
        max_questions: to the oracle; the bracket of a search that is stopped is wider, and as valid.
        looseness: asked what exceeds ``above``, leave open this share of the excess (see :class:`Sphere`).
    """

    scalar: ParallelOracle
    tol: float = 1e-6
    max_questions: int = 200
    looseness: float = 0.1
    widths: Widths = field(init=False)

    def __post_init__(self) -> None:
        self.widths, self.X, self.lengths = self.scalar.widths, self.scalar.X, self.scalar.lengths

    def within(self, seconds: float | None) -> Self:
        other = super().within(seconds)
        other.scalar = self.scalar.within(seconds)
        return other

    def _peaks(self, V: Tensor, above: float, seeds: Neurons | None) -> Peaks:
        axes, rest = _principal(V)
        run = _Run(self, V @ axes, above)
        run.search(self._deadline())
        widths = as_widths(self.widths)
        neurons = torch.cat([*run.found, *([] if seeds is None else [seeds.to(self.X)])])
        values = torch.linalg.vector_norm(sub_network_features(self.X, neurons, widths).T @ V, dim=1)
        order = torch.argsort(values, descending=True)[:_LISTED]
        lower = float(values[order[0]]) if len(order) else 0.0
        allowance = sqrt(np.prod(widths) * len(self.X)) * (rest + 64 * _EPS * float(torch.linalg.vector_norm(V)))
        return Peaks(Bracket(lower, max(run.upper, lower) + allowance), neurons[order], values[order])


class _Run:
    """One search over the directions of the outputs, in the coordinates of the principal axes of V."""

    def __init__(self, settings: AllOutputs, B: Float[Tensor, "n r"], above: float) -> None:
        self.settings, self.B, self.above = settings, B, above
        self.corners: list[Float[ndarray, " r"]] = []
        self.bounds: list[float] = []
        self.found: list[Neurons] = []
        self.closed = 0.0
        self.queue: list[tuple[float, int, tuple[int, ...], Float[ndarray, " r"]]] = []
        self.serial = count()

    @property
    def threshold(self) -> float:
        best = max(self.above, *self.bounds)  # at a corner, no cut improves what the oracle can say
        loose = self.settings.looseness * (best - self.above) if self.above > 0 else 0.0
        return best + max(self.settings.tol * best, loose)

    @property
    def upper(self) -> float:
        return max(self.closed, -self.queue[0][0] if self.queue else 0.0)

    def search(self, deadline: float) -> None:
        r = self.B.shape[1]
        axes = [self.ask(e) for e in np.eye(r)]
        if r > _CUT_OUTPUTS:
            self.closed = float(np.linalg.norm([self.bounds[k] for k in axes]))
            return
        for signs in product((1.0, -1.0), repeat=r - 1):
            self.add(tuple(axes), np.array([1.0, *signs]))
        most = self.settings.max_questions
        while self.queue and -self.queue[0][0] > self.threshold and len(self.corners) < most:
            if perf_counter() > deadline:
                break
            self.cut(*heapq.heappop(self.queue)[2:])

    def ask(self, g: Float[ndarray, " r"]) -> int:
        """A corner, with the bound of its question."""
        v = self.B @ torch.from_numpy(g).to(self.B)[:, None]
        peaks = self.settings.scalar._peaks(v, _QUIET * self.above, None)
        self.corners.append(g)
        self.bounds.append(peaks.bracket.upper)
        self.found.append(peaks.neurons[:_LISTED])
        return len(self.corners) - 1

    def add(self, cell: tuple[int, ...], signs: Float[ndarray, " r"]) -> None:
        """A cone, given by corners and which of them are turned round, with its bound."""
        G = signs[:, None] * np.stack([self.corners[k] for k in cell])
        bound = _cone_bound(G, np.array([self.bounds[k] for k in cell]))
        heapq.heappush(self.queue, (-bound, next(self.serial), cell, signs))

    def cut(self, cell: tuple[int, ...], signs: Float[ndarray, " r"]) -> None:
        """Two halves, cut at the middle of the longest edge."""
        G = signs[:, None] * np.stack([self.corners[k] for k in cell])
        cosine = G @ G.T + 2 * np.eye(len(G))
        i, j = np.unravel_index(int(cosine.argmin()), cosine.shape)
        middle = self.ask((G[i] + G[j]) / np.linalg.norm(G[i] + G[j]))
        for old in (int(i), int(j)):
            corners, turned = list(cell), signs.copy()
            corners[old], turned[old] = middle, 1.0
            self.add(tuple(corners), turned)


def _cone_bound(G: Float[ndarray, "r r"], b: Float[ndarray, " r"]) -> float:
    """The most of sum_i l_i b_i over unit vectors sum_i l_i g_i of the cone; for narrow cones, whose a is lost in
    rounding, sum_i l_i <= 1 / sqrt(least cosine of two corners) bounds it."""
    cosine = float((G @ G.T).min())
    narrow = float(b.max()) / sqrt(cosine) * (1 + 1e-12) if cosine > 0 else np.inf
    condition = float(np.linalg.cond(G))
    if not condition < 1e8:
        return narrow
    slope = np.linalg.solve(G, b)
    weights, _ = nnls(G.T, slope)  # the projection onto the cone
    error = 64 * len(b) * _EPS * condition * float(np.linalg.norm(slope))
    return max(min(float(np.linalg.norm(G.T @ weights)) + error, narrow), float(b.max()))


def _principal(V: Float[Tensor, "n c"]) -> tuple[Float[Tensor, "c r"], float]:
    """The directions of outputs in which V is not zero, and the length of what is left of it."""
    _, values, axes = torch.linalg.svd(V, full_matrices=False)
    kept = values > 1e-13 * values[0]
    return axes[kept].T, float(torch.linalg.vector_norm(values[~kept]))
