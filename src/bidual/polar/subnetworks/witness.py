"""Multipliers that prove a bound of the steepest sub-network with one output (docs/parallel.md)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.rounding import rounded_up
from bidual.operators.parallel import Widths, as_widths
from bidual.polar.base import Neurons, SteepestNeurons
from bidual.polar.products.witness import CellProof, Witness, bound_of_cells, is_tree
from bidual.polar.subnetworks.base import ParallelOracle
from bidual.polar.subnetworks.branches import Branch
from bidual.runtime.registry import Part


@dataclass(frozen=True, eq=False)
class BranchProof(Part):
    """The two questions of a branch, and what proves a bound of each, for rows of length one and a v of norm one.

    Attributes:
        side, rows, states: of the :class:`Branch`.
        weights: of its rows.
        first, second: proofs for the questions e and c, for output weights that are not negative.
    """

    side: int
    rows: tuple[int, ...]
    states: tuple[int, ...]
    weights: Float[Tensor, " n"]
    first: tuple[CellProof, ...]
    second: tuple[CellProof, ...]
    name = "branch_proof"

    @property
    def branch(self) -> Branch:
        return Branch(self.side, self.rows, self.states)

    def fits(self, X: Float[Tensor, "n d"]) -> bool:
        """Whether the numbers, which may come from a file, have the sizes of the branch, and make questions."""
        n, known = len(X), set(self.rows)
        if self.side not in (1, -1) or len(known) < len(self.rows) or not all(0 <= row < n for row in self.rows):
            return False
        if len(self.states) != len(self.rows) or not all(state in (1, -1) for state in self.states):
            return False
        if tuple(self.weights.shape) != (n,) or not self.branch.allows(self.weights.numpy()):
            return False
        return all(_covers(cells, X) for cells in (self.first, self.second))

    def bound(self, X: Float[Tensor, "n d"], v: Float[Tensor, " n"]) -> float:
        """Of both questions. The weights of open rows are shares; the others are in units of v."""
        norm = float(torch.linalg.vector_norm(v))
        weights = self.weights.numpy().copy()
        weights[list(self.rows)] *= norm
        questions = self.branch.questions(v.numpy(), weights)
        proofs = zip(questions, (self.first, self.second), strict=True)
        return max(_bound(X, cells, torch.from_numpy(q)[:, None], norm) for q, cells in proofs)


def _covers(cells: Sequence[CellProof], X: Float[Tensor, "n d"]) -> bool:
    """Whether cells cover all neurons whose output weight is not negative."""
    if not all(isinstance(one, CellProof) and one.signs == (1.0,) and one.fits(X, 1) for one in cells):
        return False
    return is_tree([one.fixed for one in cells])


def _bound(X: Float[Tensor, "n d"], cells: Sequence[CellProof], q: Float[Tensor, "n 1"], norm: float) -> float:
    """The most of q^T (X u)_+, nothing where no row is positive."""
    return bound_of_cells(X, cells, q, norm) if bool((q > 0).any()) else 0.0


@dataclass(eq=False)
class ParallelProof(ParallelOracle):
    """The bound that given multipliers prove at any V with one column: no search, and nothing but arithmetic to trust.

    Infinity where the branches do not cover all sub-networks of both sides. For more than three layers the input of
    the last hidden layer is itself made of units of signs, whose bound is that of the questions where no row is known
    (``polar/subnetworks/bound.py``), so that branches are for three layers.
    """

    X: Float[Tensor, "n d"]
    widths: Widths
    branches: Witness

    def __post_init__(self) -> None:
        self.widths = as_widths(self.widths)
        self._take(self.X)

    def _steepest(self, V: Tensor, above: float, seeds: Neurons | None) -> SteepestNeurons:
        return self._nothing(self._bound(self.X.cpu(), V.cpu()))

    def _bound(self, X: Float[Tensor, "n d"], V: Float[Tensor, "n c"]) -> float:
        branches = [one for one in self.branches if isinstance(one, BranchProof) and one.fits(X)]
        if V.shape[1] != 1 or len(branches) < len(self.branches) or not self._covered(branches):
            return math.inf
        bounds = [one.bound(X, V[:, 0]) for one in branches]
        top = math.inf if any(map(math.isnan, bounds)) else max(bounds)
        return rounded_up(self.slope * top)

    def _covered(self, branches: Sequence[BranchProof]) -> bool:
        if len(as_widths(self.widths)) > 1 and any(one.rows for one in branches):
            return False
        sides = [[one.branch.fixed for one in branches if one.side == side] for side in (1, -1)]
        return all(is_tree(cuts) for cuts in sides)
