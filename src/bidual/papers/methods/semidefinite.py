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
from bidual.polar.relaxations.moments import ROUND, MomentSplitting, row_to_cut, stalled
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_cells import Cell, in_units, size_of
from bidual.polar.search.local import LocalSearch


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
        relaxed = CellRelaxation(Cell.whole(x), W.numpy())
        enough = max(above, found.bracket.lower) / (self._scaled.size * norm)
        upper = in_units(relaxed.run(enough, self.tol, self.max_steps), norm, W, x)
        return SteepestNeurons(
            Bracket(found.bracket.lower, self._scaled.bound(upper, length(V))), found.neurons, found.values
        )


class CellRelaxation:
    r"""max |V^T (x u)_+| over a cell, relaxed: 1 / min { 1/2 (tr U + tr W) : <V, E a w^T> = 1 } (see MomentSplitting).

    ``bound`` is the best proved upper bound so far, and ``N`` the multipliers that prove it; it only improves.
    """

    def __init__(self, cell: Cell, V: Float[ndarray, "n c"]) -> None:
        self.V, self.bound = V, elementary(cell, V)
        penalty = 5.0 / max(self.bound, 1e-9)
        self.cell, self.N = cell, np.zeros((2 * len(V), 2 * len(V)))
        self.splitting = MomentSplitting([cell], V.shape[1], 1.0, self._onto_unit, penalty)

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
        """Scale the multipliers from the splitting's own s V to V, and let the cell judge them."""
        scale = float(np.sum(self.splitting.V * self.V)) / float(np.sum(self.V * self.V))
        if scale == 0 or not np.isfinite(scale):
            return
        N = self.splitting.multipliers()[0] / scale**2
        bound = self.cell.bound(self.V, N)
        if bound < self.bound:
            self.bound, self.N = bound, N

    def directions(self) -> Float[ndarray, "q r"]:
        """Directions u that the relaxed solution points at."""
        return self.splitting.directions()

    def split(self) -> "list[CellRelaxation]":
        """The two halves by the sign of the row that matters most, which inherit the bound; none if all are known."""
        weight = np.linalg.norm(self.V, axis=1)
        row = row_to_cut(self.cell, self.splitting.moments[0], weight)
        return [] if row is None else [self._half(half) for half in self.cell.split(row)]

    def _half(self, cell: Cell) -> "CellRelaxation":
        half = CellRelaxation(cell, self.V)
        half.splitting.resume(self.splitting)
        half.bound = min(half.bound, self.bound)
        return half


def elementary(cell: Cell, V: Float[ndarray, "n c"]) -> float:
    """|V^T a| <= |V|_F |x|_F with only the rows that are not negative, rounded up."""
    rows = cell.signs >= 0
    product = size_of(V[rows]) * size_of(cell.x[rows])
    return rounded_up(product) if V[rows].any() and cell.x[rows].any() else 0.0
