"""The product bound at a given dual point."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.lbfgs import minimise
from bidual.polar.base import SteepestNeurons
from bidual.polar.products.cells import orthants
from bidual.polar.products.clusters import labels_of
from bidual.polar.products.coordinates import Coordinates
from bidual.polar.products.soft_bound import Cells, Covering
from bidual.polar.products.witness import CellProof, are_cells, bound_of_rows, covering, given_back, proof_of
from bidual.polar.relaxations.reduction import ScaledOracle
from bidual.runtime.crossovers import PROOFS
from bidual.runtime.registry import Part
from bidual.types import Matrix

_WIDTHS = (0.1, 0.03, 0.01)  # smoothing of the largest eigenvalue, as shares of it


@dataclass(eq=False)
class ProductBound(ScaledOracle):
    r"""An upper bound of max |V^T (X u)_+| from products of (X u)_+, (-X u)_+, output weights and cones
    (docs/product_bound.md), descended on its multipliers.

    Attributes:
        steps: of L-BFGS for each width of smoothing.
        per_row, dense, dense_without_signs, clusters, most_outputs: see :class:`ProofCrossovers`.
        starts: of the search for the lower end.
    """

    X: Float[Tensor, "n d"]
    steps: int = 60
    per_row: int = PROOFS.per_row
    dense: int = PROOFS.dense
    dense_without_signs: int = PROOFS.dense_without_signs
    clusters: int = PROOFS.clusters
    most_outputs: int = PROOFS.most_outputs
    starts: int = 64

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        W = V.cpu() / float(torch.linalg.vector_norm(V))
        cells = self._descended(self.start(W), W)
        return self._search(V, above, seeds).with_upper(bound_of_rows(self.X.cpu(), self.proofs(cells), V.cpu()))

    def start(self, W: Matrix) -> Cells:
        """Multipliers to begin with, for a dual point of norm one."""
        x = torch.from_numpy(self._scaled.x)
        labels = labels_of(x, W, self.clusters) if in_clusters(self, *W.shape) else None
        cells = Cells(tuple(Coordinates.start(cell, W, labels) for cell in orthants(x, W.shape[1], self.most_outputs)))
        return cells.refreshed(W, _WIDTHS[0] * max(cells.bounds(W)), self.per_row)

    def again(self, proofs: Sequence[Part], n_outputs: int, most: int) -> Cells | None:
        """The cells of earlier :meth:`proofs` with their multipliers; None if they are not of such rows and outputs, or
        more than ``most`` for every choice of signs."""
        X = self.X.cpu()
        if not are_cells(proofs) or len(proofs) > most * len({one.signs for one in proofs}):
            return None
        if not covering(proofs, n_outputs) or not all(one.fits(X, n_outputs) for one in proofs):
            return None
        return Cells(tuple(Coordinates.of(*given_back(X, self._scaled, one, n_outputs)) for one in proofs))

    def _descended(self, cells: Cells, W: Matrix) -> Cells:
        for width in _WIDTHS:
            soft = width * max(cells.bounds(W))
            cells = cells.refreshed(W, soft, self.per_row)
            cells = minimised(cells, W, soft, self.steps)
        return cells

    def proofs(self, cells: Cells, norm: float = 1.0) -> tuple[CellProof, ...]:
        """What :func:`bound_of_rows` needs of the multipliers, which are those of a W of this norm."""
        parts = ((place.cell, place.multipliers(place.vector).scaled(1 / norm)) for place in cells.places)
        return tuple(proof_of(self.X.cpu(), self._scaled, cell, at) for cell, at in parts)


def in_clusters(bound: ProductBound | type[ProductBound], rows: int, outputs: int) -> bool:
    """Whether products of clusters take the place of products of rows."""
    return rows > (bound.dense if outputs <= bound.most_outputs else bound.dense_without_signs)


C = TypeVar("C", bound=Covering)


def minimised(cells: C, W: Matrix, width: float, steps: int, go_on: Callable[[], bool] = lambda: True) -> C:
    """The multipliers after so many steps of L-BFGS at a given dual point, or when ``go_on`` says no."""
    scales, began, soft = cells.scales(), cells.vector, cells.soft()

    def slope(step: Tensor) -> tuple[float, Tensor]:
        found = soft(W.numpy(), (began + scales * step).numpy(), width)
        if found is None:
            return math.inf, torch.zeros_like(step)
        return found[0], scales * torch.from_numpy(found[2])

    return cells.at(began + scales * minimise(slope, torch.zeros_like(began), steps, go_on=go_on, pairs=torch.float32))
