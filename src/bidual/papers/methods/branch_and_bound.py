"""The steepest neuron for data of any rank, by branch and bound on the signs of rows."""

import heapq
import itertools
import math
import time
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.papers.methods.semidefinite import RegionRelaxation
from bidual.polar.base import SteepestNeurons
from bidual.polar.relaxations.reduction import ScaledOracle
from bidual.polar.relaxations.sign_regions import SignRegion
from bidual.polar.search import LocalSearch


@dataclass(eq=False)
class BranchAndBound(ScaledOracle):
    r"""max |V^T (X u)_+|, bracketed as tightly as ``max_nodes`` relaxations or ``max_time`` seconds allow.

    A node is a :class:`SignRegion`; its bound is the semidefinite one, whose multipliers start from its parent's. The
    node with the largest bound is split next, by the row that matters most; its relaxed solution starts a local search.
    It stops when the bracket is narrower than ``tol`` relatively, or when nothing can exceed ``above``. Whenever it
    stops, ``upper`` covers all regions.
    """

    X: Float[Tensor, "n d"]
    max_nodes: int = 200
    max_time: float = 30.0
    tol: float = 1e-3
    steps: int = 400
    starts: int = 256

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        norm = float(torch.linalg.vector_norm(V))
        W = V.cpu() / norm
        tree = _Tree(RegionRelaxation(SignRegion.whole(self._scaled.x), W.numpy()))
        found = self._search(V, above, seeds)
        unit, deadline = self._scaled.size * norm, time.perf_counter() + self.max_time
        quick = LocalSearch(self.X, starts=2)
        while tree.nodes < self.max_nodes and time.perf_counter() < deadline:
            enough = max(found.bracket.lower * (1 + self.tol), above) / unit
            node = tree.pop(enough)
            if node is None:
                break
            tree.expand(node, enough, self.tol, self.steps)
            more = quick._steepest(V, above, self._scaled.directions(node.splitting.directions()))
            neurons, values = torch.cat([found.neurons, more.neurons]), torch.cat([found.values, more.values])
            found = SteepestNeurons.ranked(neurons, values, above)
        return found.with_upper(max(self._in_units_of(V, W, norm, tree.bound), found.bracket.lower))


class _Tree:
    """Open nodes by bound, and the largest bound of closed ones."""

    def __init__(self, root: RegionRelaxation) -> None:
        self.count, self.nodes, self.closed = itertools.count(), 0, 0.0
        self.open: list[tuple[float, int, RegionRelaxation]] = [(-root.bound, next(self.count), root)]

    @property
    def bound(self) -> float:
        return max([self.closed, *(-key for key, _, _ in self.open[:1])])

    def pop(self, enough: float) -> RegionRelaxation | None:
        """The node with the largest bound, None if no bound exceeds ``enough``."""
        if not self.open or -self.open[0][0] <= enough:
            return None
        return heapq.heappop(self.open)[2]

    def expand(self, node: RegionRelaxation, enough: float, tol: float, steps: int) -> None:
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

    def _push(self, node: RegionRelaxation) -> None:
        if math.isfinite(node.bound):
            heapq.heappush(self.open, (-node.bound, next(self.count), node))
        else:
            self.closed = math.inf
