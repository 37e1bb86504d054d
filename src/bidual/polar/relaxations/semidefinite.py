"""The semidefinite bound of the steepest neuron, for a given V."""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.rounding import length, rounded_up
from bidual.polar.base import NeuronOracle, SteepestNeurons
from bidual.polar.relaxations.moments import MomentSplitting, row_to_cut
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_regions import SignRegion, in_units, size_of
from bidual.polar.search.local import LocalSearch

ROUND, _PATIENCE = 50, 4  # steps between two looks at the bound; looks without progress before it stops


@dataclass(eq=False)
class SemidefiniteBound(NeuronOracle):
    r"""An upper bound of max |V^T (X u)_+| from the moment relaxation of (u, (X u)_+) (notes on CP eq. 17-20).

    Products of a = (X u)_+ and b = (-X u)_+ are non-negative, and a_i b_i = 0. The cost of a step grows like n^3, so
    this is for n up to a few hundred. The lower bound is a local search's.
    """

    X: Float[Tensor, "n d"]
    tol: float = 1e-3
    max_steps: int = 1500
    starts: int = 64
    _scaled: Scaled = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._take(self.X)
        self._scaled = Scaled.of(self.X)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        found = LocalSearch(self.X, self.starts)._steepest(V, above, seeds)
        norm, x = float(torch.linalg.vector_norm(V)), self._scaled.x
        W = V.cpu() / norm
        relaxed = RegionRelaxation(SignRegion.whole(x), W.numpy())
        enough = max(above, found.bracket.lower) / (self._scaled.size * norm)
        upper = in_units(relaxed.run(enough, self.tol, self.max_steps), norm, W, x)
        return SteepestNeurons(
            Bracket(found.bracket.lower, self._scaled.bound(upper, length(V))), found.neurons, found.values
        )


class RegionRelaxation:
    r"""max |V^T (x u)_+| over a region, relaxed: 1 / min { 1/2 (tr U + tr W) : <V, E a w^T> = 1 } (see MomentSplitting).

    ``bound`` is the best proved upper bound so far, and ``N`` the multipliers that prove it; it only improves.
    """

    def __init__(self, region: SignRegion, V: Float[ndarray, "n c"]) -> None:
        self.V, self.bound = V, elementary(region, V)
        penalty = 5.0 / max(self.bound, 1e-9)
        self.region, self.N = region, np.zeros((2 * len(V), 2 * len(V)))
        self.splitting = MomentSplitting([region], V.shape[1], 1.0, self._onto_unit, penalty)

    def _onto_unit(self, P: Float[ndarray, "n c"], step: float) -> Float[ndarray, "n c"]:
        """The nearest P with <V, P> = 1."""
        return P + (1 - np.sum(self.V * P)) * self.V / np.sum(self.V * self.V)

    def run(self, enough: float, tol: float, max_steps: int) -> float:
        """Improve the bound until it is at most ``enough``, gains less than ``tol`` or runs out of steps."""
        bounds = [self.bound]
        for _ in range(0, max_steps, ROUND):
            if self.bound <= enough or stalled(bounds, tol):
                break
            self.splitting.run(ROUND)
            self._look()
            bounds.append(self.bound)
        return self.bound

    def _look(self) -> None:
        """Scale the multipliers from the splitting's own s V to V, and let the region judge them."""
        scale = float(np.sum(self.splitting.V * self.V)) / float(np.sum(self.V * self.V))
        if scale == 0 or not np.isfinite(scale):
            return
        N = self.splitting.multipliers()[0] / scale**2
        bound = self.region.bound(self.V, N)
        if bound < self.bound:
            self.bound, self.N = bound, N

    def directions(self) -> Float[ndarray, "q r"]:
        """Directions u that the relaxed solution points at."""
        return self.splitting.directions()

    def split(self) -> "list[RegionRelaxation]":
        """The two halves by the sign of the row that matters most, which inherit the bound; none if all are known."""
        weight = np.linalg.norm(self.V, axis=1)
        row = row_to_cut(self.region, self.splitting.moments[0], weight)
        return [] if row is None else [self._half(half) for half in self.region.split(row)]

    def _half(self, region: SignRegion) -> "RegionRelaxation":
        half = RegionRelaxation(region, self.V)
        half.splitting.resume(self.splitting)
        half.bound = min(half.bound, self.bound)
        return half


def stalled(bounds: list[float], tol: float) -> bool:
    """Whether the last looks together gained less than ``tol``, relatively."""
    return len(bounds) > _PATIENCE + 1 and abs(bounds[-1 - _PATIENCE] - bounds[-1]) <= tol * abs(bounds[-1])


def elementary(region: SignRegion, V: Float[ndarray, "n c"]) -> float:
    """|V^T a| <= |V|_F |x|_F with only the rows that are not negative, rounded up."""
    rows = region.signs >= 0
    product = size_of(V[rows]) * size_of(region.x[rows])
    return rounded_up(product) if V[rows].any() and region.x[rows].any() else 0.0
