"""The semidefinite bound of the steepest neuron, for a given V."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.numerics.rounding import rounded_up
from bidual.polar.base import SteepestNeurons
from bidual.polar.relaxations.moments import ROUND, MomentSplitting, row_to_cut, stalled
from bidual.polar.relaxations.reduction import ScaledOracle
from bidual.polar.relaxations.sign_regions import SignRegion, size_of


@dataclass(eq=False)
class SemidefiniteBound(ScaledOracle):
    r"""An upper bound of max |V^T (X u)_+| from the moment relaxation of (u, (X u)_+) (notes on CP eq. 17-20).

    Products of a = (X u)_+ and b = (-X u)_+ are non-negative, and a_i b_i = 0. The cost of a step grows like n^3, so
    this is for n up to a few hundred.
    """

    X: Float[Tensor, "n d"]
    tol: float = 1e-3
    max_steps: int = 1500
    starts: int = 64

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        found = self._search(V, above, seeds)
        norm = float(torch.linalg.vector_norm(V))
        W = V.cpu() / norm
        enough = max(above, found.bracket.lower) / (self._scaled.size * norm)
        bound = RegionRelaxation(SignRegion.whole(self._scaled.x), W.numpy()).run(enough, self.tol, self.max_steps)
        return found.with_upper(self._in_units_of(V, W, norm, bound))


class RegionRelaxation:
    r"""max |V^T (x u)_+| over a region, relaxed: 1 / min { 1/2 (tr U + tr W) : <V, P> = 1 } (:class:`MomentSplitting`).

    ``bound`` is the best proved upper bound so far, and ``N`` the multipliers that prove it.
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
        """Scale the multipliers from the splitting's own s V to V, and evaluate the bound that they prove."""
        scale = float(np.sum(self.splitting.V * self.V)) / float(np.sum(self.V * self.V))
        if scale == 0 or not np.isfinite(scale):
            return
        N = self.splitting.multipliers()[0] / scale**2
        bound = self.region.bound(self.V, N)
        if bound < self.bound:
            self.bound, self.N = bound, N

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


def elementary(region: SignRegion, V: Float[ndarray, "n c"]) -> float:
    """|V^T a| <= |V|_F |x|_F with only the rows that are not negative, rounded up."""
    rows = region.signs >= 0
    product = size_of(V[rows]) * size_of(region.x[rows])
    return rounded_up(product) if V[rows].any() and region.x[rows].any() else 0.0
