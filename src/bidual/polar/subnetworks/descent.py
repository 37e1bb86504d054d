"""The questions of all branches with their multipliers, descended on together with the dual point."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from bidual.polar.base import Neurons
from bidual.polar.products.cells import Cell
from bidual.polar.products.clusters import labels_of
from bidual.polar.products.coordinates import Coordinates, Vector
from bidual.polar.products.descent import Array, CellDescent, Workspace, slices
from bidual.polar.products.helper import Helper
from bidual.polar.products.oracle import ProductBound, in_clusters
from bidual.polar.products.soft_bound import Cells, Covering, Slopes, softened
from bidual.polar.search import LocalSearch
from bidual.polar.subnetworks.branches import Branch
from bidual.polar.subnetworks.witness import BranchProof
from bidual.types import Matrix

Rows = Float[Tensor, "n r"]
_RAW = 10.0  # how far one unit of the coordinate of a row's weight goes
_SMALL = 1e-3  # the root of a weight of zero, which may grow
_STARTS = 64  # of a search for the steepest neurons of a question


@dataclass(frozen=True, eq=False)
class Asked:
    """A branch with the multipliers of its two questions.

    Attributes:
        raw: of every row; weights are sigmoids of it where the row is open, squares where it is known.
        first, second: for the questions e and c.
    """

    branch: Branch
    raw: Vector
    first: Cells
    second: Cells

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.raw, self.first.vector, self.second.vector

    @property
    def cells(self) -> tuple[Cells, Cells]:
        return self.first, self.second

    def at(self, vector: Vector) -> Self:
        raw, first, second = vector.split([len(part) for part in self.parts])
        return replace(self, raw=raw, first=self.first.at(first), second=self.second.at(second))

    def weights(self, raw: Array) -> Array:
        found = _sigmoid(raw)
        rows = list(self.branch.rows)
        found[rows] = np.square(raw[rows])
        return found

    def slope_of_weights(self, raw: Array) -> Array:
        share = _sigmoid(raw)
        found = share * (1 - share)
        rows = list(self.branch.rows)
        found[rows] = 2 * raw[rows]
        return found

    def questions(self, W: Matrix) -> tuple[Matrix, Matrix]:
        e, c = self.branch.questions(W[:, 0].numpy(), self.weights(self.raw.numpy()))
        return torch.from_numpy(e)[:, None], torch.from_numpy(c)[:, None]

    def bounds(self, W: Matrix) -> tuple[list[float], list[float]]:
        e, c = self.questions(W)
        return self.first.bounds(e), self.second.bounds(c)

    def refreshed(self, W: Matrix, width: float, per_row: int) -> Self:
        e, c = self.questions(W)
        first, second = self.first.refreshed(e, width, per_row), self.second.refreshed(c, width, per_row)
        return replace(self, first=first, second=second)

    def halved(self, W: Matrix, row: int) -> tuple[Self, ...]:
        """The row is on, and off. Both halves begin with the bounds of the whole: see :func:`_lowered`."""
        v, before = W[:, 0].numpy(), torch.cat(self.questions(W), 1)
        halves = []
        for branch in self.branch.halved(row):
            raw = self.raw.clone()
            weight = self.branch.inherited(v, self.weights(self.raw.numpy()), row, branch.states[-1])
            raw[row] = max(weight**0.5, _SMALL)
            half = replace(self, branch=branch, raw=raw)
            less = (before - torch.cat(half.questions(W), 1))[row].clamp(min=0).tolist()
            first, second = (_lowered(cells, row, d) for cells, d in zip(self.cells, less, strict=True))
            halves.append(replace(half, first=first, second=second))
        return tuple(halves)

    def excess(self, W: Matrix, width: float) -> Array:
        """By how much the questions overstate every open row, at the mixture of neurons that they are about: a mixture
        h of +-f is worth t_i (h_i)_+, and t_i > 0 times the part of sign +1 is asked for."""
        bound = AskedBound([self])
        if bound(W.numpy(), torch.cat(self.parts).numpy(), width) is None:
            return np.zeros(len(W))
        found = np.maximum(self.branch.side * W[:, 0].numpy(), 0.0) * np.maximum(bound.met.min(0), 0.0)
        found[list(self.branch.rows)] = 0.0
        return found

    def split(self, W: Matrix, x: Rows, width: float, deep: bool) -> tuple[Self, ...]:
        """What is overstated more is refined: the sub-networks by the questions, or the questions by their bounds.

        The first is what a neuron that is steepest for a question is worth by its copies, and by :meth:`excess` at
        most; then the row with the largest excess is decided. Otherwise the cell with the largest bound is halved.
        """
        questions, bounds, excess = self.questions(W), self.bounds(W), self.excess(W, width)
        found = [LocalSearch(x, _STARTS).steepest(q) for q in questions]
        attained = max(one.bracket.lower for one in found)
        copied = max(float(_slopes(x, one.neurons, self.branch.side * W).max()) for one in found)
        if not deep and min(attained - copied, float(excess.sum())) > max(map(max, bounds)) - attained:
            return self.halved(W, int(excess.argmax()))
        k = int(max(bounds[1]) > max(bounds[0]))
        cells = self.cells[k].split(questions[k], [int(np.argmax(bounds[k]))], width)
        return (replace(self, second=cells) if k else replace(self, first=cells),)

    def proof(self, bound: ProductBound, norm: float) -> BranchProof:
        """For a v of norm one, from multipliers of a W of this norm."""
        weights = torch.from_numpy(self.weights(self.raw.numpy()))
        weights[list(self.branch.rows)] /= norm
        proofs = (bound.proofs(cells, norm) for cells in self.cells)
        return BranchProof(self.branch.side, self.branch.rows, self.branch.states, weights, *proofs)


def _lowered(cells: Cells, row: int, less: float) -> Cells:
    """The multipliers with the bounds that they had before an entry of the question fell by ``less``: that much more of
    the product of the output weight, whose sign is known, with twice the row's activation takes its place."""
    places = []
    for place in cells.places:
        cell, at = place.cell, place.multipliers(place.vector)
        if row in cell.free:
            on_plus = at.on_plus.clone()
            on_plus[int((cell.free == row).nonzero()[0, 0]), 0] += less
            at = replace(at, on_plus=on_plus)
        elif (row, 1) in cell.fixed:
            pairs = at.form_pairs.clone()
            pairs[cell.n_sign_forms + cell.fixed.index((row, 1)), 0] += 2 * cell.unit(row) * less
            at = replace(at, form_pairs=pairs)
        places.append(Coordinates.of(cell, at))
    return Cells(tuple(places))


def _slopes(x: Rows, neurons: Neurons, t: Matrix) -> Tensor:
    """t^T (x u)_+ of neurons of length one, and zero for none."""
    return torch.cat([((x @ neurons.T).clamp(min=0).T @ t)[:, 0], t.new_zeros(1)])


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(x, -500, 500)))


class AskedBound:
    """The smoothed largest bound of all questions, as a function of W and one vector."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self.asked, space = asked, Workspace()
        self.whole = slices([sum(map(len, one.parts)) for one in asked])
        self.inner = [slices([len(one.raw), *(len(place.vector) for place in _places(one))]) for one in asked]
        self.cells = [[CellDescent(place, space) for place in _places(one)] for one in asked]

    def __call__(self, W: Array, vector: Array, width: float) -> Slopes | None:
        with np.errstate(all="ignore"):  # what is not finite has no bound
            return self._value(W, vector, width)

    def _value(self, W: Array, vector: Array, width: float) -> Slopes | None:
        forms: list[Array] = []
        for one, cells, inner, whole in zip(self.asked, self.cells, self.inner, self.whole, strict=True):
            raw, *parts = (vector[whole][part] for part in inner)
            questions = one.branch.questions(W[:, 0], one.weights(raw))
            for k, (cell, part) in enumerate(zip(cells, parts, strict=True)):
                C = cell.form(questions[k >= len(one.first.places)][:, None], part)
                if C is None or not np.isfinite(C).all():
                    return None
                forms.append(C)
        soft = softened(forms, width)
        return self._slopes(W, vector, soft.value, soft.roots)

    def _slopes(self, W: Array, vector: Array, value: float, roots: list[Array]) -> Slopes:
        on_W, on_vector, taken = np.zeros_like(W), [], iter(roots)
        for one, cells, inner, whole in zip(self.asked, self.cells, self.inner, self.whole, strict=True):
            found = [cell.weighed(next(taken), W.shape) for cell in cells]
            self.met = np.zeros((2, len(W)))
            for k, (_, on_q) in enumerate(found):
                self.met[int(k >= len(one.first.places))] += on_q[:, 0]
            raw = vector[whole][inner[0]]
            on_v, on_weights = one.branch.pull(W[:, 0], one.weights(raw), *self.met)
            on_W[:, 0] += on_v
            on_vector += [on_weights * one.slope_of_weights(raw), *(on_part for on_part, _ in found)]
        return value, on_W, np.concatenate(on_vector)


def _places(asked: Asked) -> tuple[Coordinates, ...]:
    return asked.first.places + asked.second.places


@dataclass(frozen=True, eq=False)
class AskedBranches(Covering):
    """The branches of both sides.

    Attributes:
        asked: one part for every branch.
        x: the rows that the questions are about.
        deep: whether sub-networks have more than three layers, and branches cannot be halved.
    """

    asked: tuple[Asked, ...]
    x: Rows
    deep: bool = False

    @classmethod
    def start(cls, bound: ProductBound, W: Matrix, deep: bool = False) -> Self:
        """One branch for each side, for a W of norm one."""
        zero = W.new_zeros(len(W))
        begun = []
        for side in (1, -1):
            nothing = Cells(())
            one = Asked(Branch(side), zero, nothing, nothing)
            first, second = (_started(bound, q) for q in one.questions(W))
            begun.append(replace(one, first=first, second=second))
        found = cls(tuple(begun), torch.from_numpy(bound._scaled.x), deep)
        return found.refreshed(W, 0.1 * max(found.bounds(W)), bound.per_row)

    @cached_property
    def places(self) -> tuple[Coordinates, ...]:
        return tuple(place for one in self.asked for place in _places(one))

    @property
    def vector(self) -> Vector:
        return torch.cat([part for one in self.asked for part in one.parts])

    def scales(self) -> Vector:
        parts = ((torch.full_like(one.raw, _RAW), one.first.scales(), one.second.scales()) for one in self.asked)
        return torch.cat([part for several in parts for part in several])

    def at(self, vector: Vector) -> Self:
        parts = vector.split([sum(map(len, one.parts)) for one in self.asked])
        return replace(self, asked=tuple(one.at(part) for one, part in zip(self.asked, parts, strict=True)))

    def soft(self, helper: Helper | None = None) -> AskedBound:
        return AskedBound(self.asked)

    def bounds(self, V: Matrix) -> list[float]:
        return [max(map(max, one.bounds(V))) for one in self.asked]

    def refreshed(self, V: Matrix, width: float, per_row: int) -> Self:
        return replace(self, asked=tuple(one.refreshed(V, width, per_row) for one in self.asked))

    def only(self, which: Sequence[int]) -> Self:
        return replace(self, asked=tuple(self.asked[k] for k in which))

    def replaced(self, which: Sequence[int], by: Self) -> Self:
        new = dict(zip(which, by.asked, strict=True))
        return replace(self, asked=tuple(new.get(k, one) for k, one in enumerate(self.asked)))

    @property
    def is_split(self) -> bool:
        return any(one.branch.rows for one in self.asked) or any(place.cell.fixed for place in self.places)

    def split(self, V: Matrix, which: Sequence[int], width: float) -> Self:
        found: list[Asked] = []
        for k, one in enumerate(self.asked):
            found += one.split(V, self.x, width, self.deep) if k in which else (one,)
        return replace(self, asked=tuple(found))


def _started(bound: ProductBound, q: Matrix) -> Cells:
    x = torch.from_numpy(bound._scaled.x)
    labels = labels_of(x, q, bound.clusters) if in_clusters(bound, len(q), 1) else None
    return Cells((Coordinates.start(Cell(x, 1, x.new_ones(1)), q, labels),))
