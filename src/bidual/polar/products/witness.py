"""Multipliers that prove a bound of the steepest neuron, for dual points near the one they were found for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.polar.base import NeuronOracle, SteepestNeurons
from bidual.polar.products.cells import Cell
from bidual.polar.products.multipliers import Multipliers
from bidual.polar.products.proof import proved_bound
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.search import LocalSearch
from bidual.runtime.registry import Part
from bidual.types import Matrix

Witness = tuple[Part, ...]  # what an oracle proves a bound with


@dataclass(frozen=True, eq=False)
class CellProof(Part):
    """The signs that make a cell, and its multipliers for rows of length one and a V of norm one, mostly in single
    precision."""

    signs: tuple[float, ...] | None
    rows: tuple[int, ...]
    row_signs: tuple[int, ...]
    at: Multipliers
    name = "cell_proof"

    @property
    def fixed(self) -> tuple[tuple[int, int], ...]:
        """The fixed rows with their signs, in the order of the cuts."""
        return tuple(zip(self.rows, self.row_signs, strict=True))

    def fits(self, X: Float[Tensor, "n d"], c: int) -> bool:
        """Whether the multipliers, which may come from a file, have the sizes of their cell."""
        n, d = X.shape
        if self.signs is not None and len(self.signs) != c:
            return False
        if len(set(self.rows)) < len(self.rows) or not all(0 <= row < n for row in self.rows):
            return False
        if not all(sign in (1, -1) for sign in self.row_signs) or not all(s in (1, -1) for s in self.signs or ()):
            return False
        if len(self.at.pairs.where) != 3 or len(self.at.pairs.values) != 3:
            return False
        m, k, at, pairs = n - len(self.rows), len(self.signs or ()) + len(self.rows), self.at, self.at.pairs
        shapes = [(at.omega, (m,)), (at.slack, (m,)), (at.on_plus, (m, k)), (at.on_minus, (m, k)), (at.balance, ())]
        shapes += [(at.cone_plus, (m, d)), (at.cone_minus, (m, d)), (at.form_pairs, (k, k)), (at.form_cones, (k, d))]
        shapes += [(w, tuple(v.shape)) for w, v in zip(pairs.where, pairs.values, strict=True)]
        inside = all(not len(w) or (int(w.min()) >= 0 and int(w.max()) < pairs.count**2) for w in pairs.where)
        inside = inside and all(len(w.unique()) == len(w) for w in pairs.where)
        if pairs.labels is None or pairs.shares is None:
            grouped = pairs.labels is pairs.shares and pairs.count == m
        else:
            shapes += [(pairs.labels, (m,)), (pairs.shares, (m,))]
            grouped = not m or (int(pairs.labels.min()) >= 0 and int(pairs.labels.max()) < pairs.count)
        return inside and grouped and all(tuple(t.shape) == shape for t, shape in shapes)

    def cell(self, X: Float[Tensor, "n d"], c: int) -> Cell:
        """The cell of these rows and so many outputs."""
        return Cell(X, c, None if self.signs is None else X.new_tensor(self.signs), self.fixed)


@dataclass(eq=False)
class ProductProof(NeuronOracle):
    """The bound that given multipliers prove at any V: no search, no descent, and nothing but arithmetic to trust.

    It is tight near the V that the multipliers were found for, and valid everywhere.
    """

    X: Float[Tensor, "n d"]
    cells: Witness
    starts: int = 0

    def __post_init__(self) -> None:
        self._take(self.X)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        bound = self.bound(V)
        if not self.starts:
            return self._nothing(bound)
        return LocalSearch(self.X, self.starts)._steepest(V, above, seeds).with_upper(bound)

    def bound(self, V: Matrix) -> float:
        """What is proved for the rows of length one that the oracle holds, whose scaling :meth:`steepest` pays for."""
        return bound_of_rows(self.X.cpu(), self.cells, V.cpu())


def bound_of_rows(X: Float[Tensor, "n d"], cells: Sequence[Part], V: Matrix) -> float:
    """The largest bound of all cells, for the rows of X to the last bit: they are of length one up to rounding, and to
    scale them once more would be another rounding. Infinity if cells do not cover all neurons with so many outputs."""
    c = V.shape[1]
    if not are_cells(cells) or not covering(cells, c) or not all(one.fits(X, c) for one in cells):
        return math.inf
    return bound_of_cells(X, cells, V, float(torch.linalg.vector_norm(V)))


def bound_of_cells(X: Float[Tensor, "n d"], cells: Sequence[CellProof], V: Matrix, norm: float) -> float:
    """The largest bound of given cells, whatever they cover, with their multipliers times ``norm``."""
    bounds = [proved_bound(one.cell(X, V.shape[1]), V, one.at.wide().scaled(norm)) for one in cells]
    return math.inf if any(map(math.isnan, bounds)) else max(bounds, default=math.inf)


def are_cells(witness: Sequence[Part]) -> TypeGuard[Sequence[CellProof]]:
    """Whether a witness is about neurons; those of other networks prove nothing about them."""
    return all(isinstance(one, CellProof) for one in witness)


def covering(cells: Sequence[CellProof], n_outputs: int) -> bool:
    """Whether cells cover all neurons: every choice of signs of the outputs, and both signs of every row cut."""
    by_signs: dict[tuple[float, ...] | None, list[tuple[tuple[int, int], ...]]] = {}
    for cell in cells:
        by_signs.setdefault(cell.signs, []).append(cell.fixed)
    if None in by_signs:
        return is_tree(by_signs[None])
    every = product((1.0, -1.0), repeat=n_outputs)
    return all(signs in by_signs and is_tree(by_signs[signs]) for signs in every)


def is_tree(cuts: list[tuple[tuple[int, int], ...]]) -> bool:
    """Whether lists of (row, sign) are the leaves of a tree of cuts."""
    if any(not cut for cut in cuts):
        return True
    halves: dict[tuple[int, int], list[tuple[tuple[int, int], ...]]] = {}
    for first, *rest in cuts:
        halves.setdefault(first, []).append(tuple(rest))
    rows = {row for row, _ in halves}
    return any(all((row, sign) in halves and is_tree(halves[row, sign]) for sign in (1, -1)) for row in rows)


def proof_of(X: Float[Tensor, "n d"], scaled: Scaled, cell: Cell, at: Multipliers) -> CellProof:
    r"""The multipliers of a cell of x, for a W of norm one, as those of the rows X = size x Q^T of length one.

    Where x is replaced by size x, a = h + t grows by the size, and its multipliers shrink by it; cones turn by the
    frame. What is bounded grows by the size too, so that all is multiplied by it once more.
    """
    size, frame = scaled.size, torch.from_numpy(scaled.frame).to(X)
    forms = _forms_between(cell, replace(cell, X=X), size)
    pairs = replace(at.pairs, values=tuple(value / size for value in at.pairs.values))
    turned = replace(
        at,
        slack=at.slack / size,
        pairs=pairs,
        on_plus=at.on_plus * forms,
        on_minus=at.on_minus * forms,
        cone_plus=at.cone_plus @ frame.T,
        cone_minus=at.cone_minus @ frame.T,
        balance=size * at.balance,
        form_pairs=size * forms[:, None] * at.form_pairs * forms,
        form_cones=size * forms[:, None] * (at.form_cones @ frame.T),
    )
    signs = None if cell.signs is None else tuple(cell.signs.tolist())
    rows, row_signs = tuple(row for row, _ in cell.fixed), tuple(sign for _, sign in cell.fixed)
    return CellProof(signs, rows, row_signs, turned.compact())


def _forms_between(cell: Cell, there: Cell, size: float) -> Float[Tensor, " k"]:
    """What the cell's forms are multiplied with where x becomes size x and its cell ``there``."""
    ratios = [there.unit(row) / (cell.unit(row) * size) for row, _ in cell.fixed]
    return there.X.new_tensor([1.0] * cell.n_sign_forms + ratios)


def given_back(X: Float[Tensor, "n d"], scaled: Scaled, proof: CellProof, c: int) -> tuple[Cell, Multipliers]:
    """Back from :func:`proof_of`: the cell of x with so many outputs, and its multipliers up to single precision."""
    size, frame, at = scaled.size, torch.from_numpy(scaled.frame).to(X), proof.at.wide()
    cell = proof.cell(torch.from_numpy(scaled.x), c)
    forms = _forms_between(cell, proof.cell(X, c), size).reciprocal()
    return cell, replace(
        at,
        slack=at.slack * size,
        pairs=replace(at.pairs, values=tuple(value * size for value in at.pairs.values)),
        on_plus=at.on_plus * forms,
        on_minus=at.on_minus * forms,
        cone_plus=at.cone_plus @ frame,
        cone_minus=at.cone_minus @ frame,
        balance=at.balance / size,
        form_pairs=forms[:, None] * at.form_pairs * forms / size,
        form_cones=forms[:, None] * (at.form_cones @ frame) / size,
    )
