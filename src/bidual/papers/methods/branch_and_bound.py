"""The steepest neuron for data of any rank, by branch and bound on the signs of rows."""

import heapq
import itertools
import math
import time
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.rounding import length
from bidual.papers.methods.semidefinite import CellRelaxation
from bidual.polar.base import NeuronOracle, SteepestNeurons
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_cells import Cell, in_units
from bidual.polar.search.local import LocalSearch


@dataclass(eq=False)
class BranchAndBound(NeuronOracle):
    r"""max |V^T (X u)_+|, bracketed as tightly as ``max_nodes`` relaxations or ``max_time`` seconds allow.

    A node is a cell of directions where the signs of some rows are known (:class:`Cell`); its bound is the
    semidefinite one, whose multipliers start from its parent's. The node with the largest bound is split next, by the
    row that matters most; its relaxed solution starts a local search. It stops when the bracket is narrower than
    ``tol`` relatively, or when nothing can exceed ``above``. Whenever it stops, ``upper`` covers all cells.
    """

    X: Float[Tensor, "n d"]
    max_nodes: int = 200
    max_time: float = 30.0
    tol: float = 1e-3
    steps: int = 400
    starts: int = 256
    _scaled: Scaled = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._take(self.X)
        self._scaled = Scaled.of(self.X)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        search, norm = LocalSearch(self.X, self.starts), float(torch.linalg.vector_norm(V))
        W, x = V.cpu() / norm, self._scaled.x
        tree = _Tree(CellRelaxation(Cell.whole(x), W.numpy()))
        found = search._steepest(V, above, seeds)
        unit, deadline = self._scaled.size * norm, time.perf_counter() + self.max_time
        quick = LocalSearch(self.X, starts=2)
        while tree.nodes < self.max_nodes and time.perf_counter() < deadline:
            enough = max(found.bracket.lower * (1 + self.tol), above) / unit
            node = tree.pop(enough)
            if node is None:
                break
            tree.expand(node, enough, self.tol, self.steps)
            found = _merged(found, quick._steepest(V, above, self._scaled.directions(node.directions())))
        bound = self._scaled.bound(in_units(tree.bound, norm, W, x), length(V))
        return SteepestNeurons(
            Bracket(found.bracket.lower, max(bound, found.bracket.lower)), found.neurons, found.values
        )


class _Tree:
    """Open nodes by bound, and the largest bound of all that was closed."""

    def __init__(self, root: CellRelaxation) -> None:
        self.count, self.nodes, self.closed = itertools.count(), 0, 0.0
        self.open: list[tuple[float, int, CellRelaxation]] = [(-root.bound, next(self.count), root)]

    @property
    def bound(self) -> float:
        return max([self.closed, *(-key for key, _, _ in self.open[:1])])

    def pop(self, enough: float) -> CellRelaxation | None:
        """The node with the largest bound, None if no bound exceeds ``enough``."""
        if not self.open or -self.open[0][0] <= enough:
            return None
        return heapq.heappop(self.open)[2]

    def expand(self, node: CellRelaxation, enough: float, tol: float, steps: int) -> None:
        """Relax a new node; split one that was relaxed already."""
        if not node.splitting.steps:
            self.nodes += 1
            node.run(enough, tol, steps)
            self._push(node)
            return
        halves = node.split()
        if not halves:
            self.closed = max(self.closed, node.bound)
        for half in halves:
            self._push(half)

    def _push(self, node: CellRelaxation) -> None:
        if math.isfinite(node.bound):
            heapq.heappush(self.open, (-node.bound, next(self.count), node))
        else:
            self.closed = math.inf


def _merged(old: SteepestNeurons, new: SteepestNeurons) -> SteepestNeurons:
    """Both lists of neurons, best first."""
    values = torch.cat([old.values, new.values])
    order = torch.argsort(values, descending=True)
    lower = max(old.bracket.lower, new.bracket.lower)
    return SteepestNeurons(Bracket(lower, math.inf), torch.cat([old.neurons, new.neurons])[order], values[order])
