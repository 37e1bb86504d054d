"""The cheap bound of the steepest neuron, for many samples."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.lbfgs import descend
from bidual.polar.base import SteepestNeurons
from bidual.polar.relaxations.aggregates import Aggregated, RowMultipliers
from bidual.polar.relaxations.reduction import ScaledOracle

_WIDTHS = (0.1, 0.03, 0.01, 0.003, 0.0003)  # smoothing of the top eigenvalue, as shares of it
_MOST_SUMS = 40


@dataclass(eq=False)
class DiagonalBound(ScaledOracle):
    r"""An upper bound of max |V^T (X u)_+| from one multiplier per row and a few per output, O(n d^2) a step.

    It starts at t = |V|^2 + |V| |V^T X| / |X|, whose bound is the elementary 1/2 |V^T X| + 1/2 |V| |X|, and descends
    from there; ``sums=True`` adds the products of V_+^T a, V_-^T a, V_+^T b, V_-^T b (see :class:`Aggregated`).
    """

    X: Float[Tensor, "n d"]
    sums: bool = True
    steps: int = 80
    starts: int = 64

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        norm = float(torch.linalg.vector_norm(V))
        W = V.cpu() / norm
        bound = diagonal_bound(torch.from_numpy(self._scaled.x), W, self.sums, self.steps)
        return self._search(V, above, seeds).with_upper(self._in_units_of(V, W, norm, bound))


def diagonal_bound(x: Float[Tensor, "n r"], V: Float[Tensor, "n c"], sums: bool, steps: int) -> float:
    """The best proved bound of max |V^T (x u)_+| over unit u, for x and V of norm about one."""
    simple = Aggregated(x, V, x.new_zeros(len(x), 0))
    start = RowMultipliers(_elementary(x, V), x.new_zeros(0, 0))
    better = _minimised(simple, start, steps)
    bounds = [simple.bound(start), simple.bound(better)]
    P = _sums(V)
    if sums and P.shape[1]:
        full = Aggregated(x, V, P)
        small = x.new_full((2 * P.shape[1], 2 * P.shape[1]), 1e-4)
        options = (RowMultipliers(better.t * growth, small) for growth in (1.01, 1.1, 2.0, 10.0))
        inside = next((w for w in options if bool(torch.isfinite(full.level(w, 1.0)))), None)
        bounds += [full.bound(_minimised(full, inside, steps))] if inside is not None else []
    return min(bounds)


def _elementary(x: Tensor, V: Tensor) -> Tensor:
    """The constant t whose bound is 1/2 |V^T x| + 1/2 |V| |x|."""
    size, slope, cross = (float(torch.linalg.matrix_norm(part, 2)) for part in (x, V, V.T @ x))
    return x.new_full((len(x),), slope * (slope + cross / size) * (1 + 1e-6))


def _sums(V: Tensor) -> Tensor:
    """The positive and negative parts of the columns of V, summed over outputs where those are too many."""
    parts = torch.cat([V.clamp(min=0), (-V).clamp(min=0)], 1)
    if parts.shape[1] > _MOST_SUMS:
        parts = torch.stack([V.clamp(min=0).sum(1), (-V).clamp(min=0).sum(1)], 1)
    norms = torch.linalg.vector_norm(parts, dim=0)
    return parts[:, norms > 0] / norms[norms > 0]


def _minimised(bound: Aggregated, start: RowMultipliers, steps: int) -> RowMultipliers:
    """Descent on log t and the roots of K, while the smoothing of the top eigenvalue shrinks."""
    n, side = len(start.t), len(start.K)

    def unpack(point: Tensor) -> RowMultipliers:
        K = point[n:].reshape(side, side).square()
        return RowMultipliers(point[:n].exp(), 0.5 * (K + K.T))

    point = torch.cat([start.t.log(), start.K.sqrt().ravel()])
    for share in _WIDTHS:
        width = share * float(bound.level(unpack(point), 1e-9))
        if not 0 < width < math.inf:
            break
        point = descend(lambda p, width=width: bound.level(unpack(p), width), point, steps)  # type: ignore[misc]
    return unpack(point)
