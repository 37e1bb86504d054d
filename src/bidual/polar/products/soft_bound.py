"""Cells that cover all neurons, and the largest of their bounds, smoothed."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from bidual.polar.products.coordinates import Coordinates, Vector
from bidual.polar.products.descent import Array, CellDescent, Workspace, slices
from bidual.polar.products.helper import Helper
from bidual.polar.products.majorant import Majorant
from bidual.polar.products.remote import RemoteCells
from bidual.runtime.helper_process import HelperLostError
from bidual.types import Matrix

Slopes = tuple[float, Array, Array]  # a value, and its slopes in V and in a vector
Soft = Callable[[Array, Array, float], Slopes | None]  # of V, a vector and a width; None where there is no bound
_LIGHT = 1e-12  # an eigenvalue's share of the moments that is left out


class Softened(NamedTuple):
    """width * log sum exp(eigenvalues / width), and R of every cell with the moments R R^T: its derivatives in C."""

    value: float
    roots: list[Array]


def softened(Cs: Sequence[Array], width: float) -> Softened:
    """The smoothed largest eigenvalue of several symmetric matrices, an upper bound of it."""
    spectra = [np.linalg.eigh(C) for C in Cs]
    top = max(float(values[-1]) for values, _ in spectra)
    weights = [np.exp((values - top) / width) for values, _ in spectra]
    total = sum(float(weight.sum()) for weight in weights)
    shares = [np.sqrt(np.where(weight > _LIGHT * total, weight / total, 0.0)) for weight in weights]
    roots = [(Q * share)[:, share > 0] for share, (_, Q) in zip(shares, spectra, strict=True)]
    return Softened(top + width * float(np.log(total)), roots)


class SoftBound:
    """The smoothed largest bound of several cells, as a function of V and one vector.

    Args:
        places: where the cells begin.
        helper: has a process that computes half of the cells, once it is ready.
    """

    def __init__(self, places: Sequence[Coordinates], helper: Helper | None = None) -> None:
        self.places, self.helper = places, helper
        self.remote: RemoteCells | None = None
        self.parts = slices([len(place.vector) for place in places])
        self.here: list[int] = []
        self.there: list[int] = []

    def _divide(self, here: list[int], there: list[int]) -> None:
        """Which cells are computed in this process, and which in the helper."""
        space = Workspace()
        self.here, self.there = here, there
        self.cells = [CellDescent(self.places[k], space) for k in here]

    def __call__(self, V: Array, vector: Array, width: float) -> Slopes | None:
        """Value and slopes in V and in the vector; None where there is no bound."""
        parts = [vector[part] for part in self.parts]
        with np.errstate(all="ignore"):  # what is not finite has no bound
            try:
                self._share()
                return self._value(V, parts, width)
            except HelperLostError as error:
                self._lost(error)
                return self._value(V, parts, width)

    def _share(self) -> None:
        """Give cells to the helper as soon as it is ready, for as long as that is faster."""
        if self.remote is not None:
            self.remote.check_gain()
        elif self.helper is not None and len(self.places) > 1 and (process := self.helper.ready()) is not None:
            costs = [_cost(place) for place in self.places]
            here, there = halves(costs)
            share = sum(costs[k] for k in there) / sum(costs[k] for k in here)
            self.remote = RemoteCells(process, [self.places[k] for k in there], share)
            self._divide(here, there)
        if not self.here:
            self._divide(list(range(len(self.places))), [])

    def _lost(self, error: HelperLostError) -> None:
        assert self.helper is not None
        self.helper.lost(error)
        self.remote = None
        self._divide(list(range(len(self.places))), [])

    def _value(self, V: Array, parts: list[Array], width: float) -> Slopes | None:
        Cs = self._forms(V, parts)
        if Cs is None or not all(np.isfinite(C).all() for C in Cs):
            return None
        soft = softened(Cs, width)
        slopes = self._slopes(soft.roots, V.shape)
        on_V = np.zeros_like(V)
        for _, one in slopes:
            on_V += one
        return soft.value, on_V, np.concatenate([on_vector for on_vector, _ in slopes])

    def _forms(self, V: Array, parts: list[Array]) -> list[Array] | None:
        if self.remote is not None:
            self.remote.begin_forms(V, [parts[k] for k in self.there])
        found = [cell.form(V, parts[k]) for k, cell in zip(self.here, self.cells, strict=True)]
        far = [] if self.remote is None else self.remote.end_forms()
        if far is None or any(C is None for C in found):
            return None
        return self._in_order(found, far)

    def _slopes(self, roots: list[Array], shape: tuple[int, ...]) -> list[tuple[Array, Array]]:
        if self.remote is not None:
            self.remote.begin_slopes([roots[k] for k in self.there])
        found = [cell.weighed(roots[k], shape) for k, cell in zip(self.here, self.cells, strict=True)]
        return self._in_order(found, [] if self.remote is None else self.remote.end_slopes())

    def _in_order(self, here: Sequence[Any], there: Sequence[Any]) -> list[Any]:
        found = dict(zip([*self.here, *self.there], [*here, *there], strict=True))
        return [found[k] for k in range(len(self.places))]


def _cost(place: Coordinates) -> int:
    """Of a form and its slopes: a factorisation and products with pairs, in proportion."""
    return place.pairs.count**2 * (place.pairs.count + 30 * place.cell.size) + len(place.vector)


def halves(costs: Sequence[int]) -> tuple[list[int], list[int]]:
    """Two parts of about the same sum: the largest first, to where less is."""
    parts: tuple[list[int], list[int]] = [], []
    sums = [0, 0]
    for k in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        side = int(sums[1] < sums[0])
        parts[side].append(k)
        sums[side] += costs[k]
    return parts


class Covering(ABC):
    """Multipliers that together bound all neurons of a kind, as one vector; parts of it may be moved alone."""

    @property
    @abstractmethod
    def places(self) -> tuple[Coordinates, ...]:
        """Of all cells."""

    @property
    @abstractmethod
    def vector(self) -> Vector: ...

    @abstractmethod
    def scales(self) -> Vector:
        """How far a step of one goes in every coordinate."""

    @abstractmethod
    def at(self, vector: Vector) -> Self:
        """The same with other coordinates."""

    @abstractmethod
    def soft(self, helper: Helper | None = None) -> Soft:
        """The smoothed largest bound."""

    @abstractmethod
    def bounds(self, V: Matrix) -> list[float]:
        """Of every part, not proved."""

    @abstractmethod
    def refreshed(self, V: Matrix, width: float, per_row: int) -> Self:
        """Pairs chosen anew; cones that have no direction yet get one."""

    @abstractmethod
    def split(self, V: Matrix, which: Sequence[int], width: float) -> Self:
        """The parts listed are halved where it matters most."""

    @abstractmethod
    def only(self, which: Sequence[int]) -> Self:
        """Some of the parts."""

    @abstractmethod
    def replaced(self, which: Sequence[int], by: Self) -> Self:
        """With other parts in their places."""

    @property
    @abstractmethod
    def is_split(self) -> bool: ...


@dataclass(frozen=True, eq=False)
class Cells(Covering):
    """The multipliers of cells that cover all neurons, as one vector."""

    places: tuple[Coordinates, ...] = ()

    @property
    def is_split(self) -> bool:
        return any(place.cell.fixed for place in self.places)

    def soft(self, helper: Helper | None = None) -> "SoftBound":
        return SoftBound(self.places, helper)

    def only(self, which: Sequence[int]) -> Self:
        return replace(self, places=tuple(self.places[k] for k in which))

    def replaced(self, which: Sequence[int], by: Self) -> Self:
        new = dict(zip(which, by.places, strict=True))
        return replace(self, places=tuple(new.get(k, place) for k, place in enumerate(self.places)))

    @property
    def vector(self) -> Vector:
        return torch.cat([place.vector for place in self.places])

    def scales(self) -> Vector:
        return torch.cat([place.scales() for place in self.places])

    def _split(self, vector: Vector) -> tuple[Tensor, ...]:
        return vector.split([len(place.vector) for place in self.places])

    def at(self, vector: Vector) -> Self:
        """The cells with other coordinates."""
        parts = zip(self.places, self._split(vector), strict=True)
        return replace(self, places=tuple(replace(place, vector=part) for place, part in parts))

    def _majorants(self, V: Matrix) -> list[Majorant]:
        return [Majorant(place.cell, V, place.multipliers(place.vector)) for place in self.places]

    def bounds(self, V: Matrix) -> list[float]:
        """The largest eigenvalue of every cell, not proved."""
        forms = [one.C for one in self._majorants(V)]
        return [math.inf if C is None else float(torch.linalg.eigvalsh(C)[-1]) for C in forms]

    def refreshed(self, V: Matrix, width: float, per_row: int) -> Self:
        """Pairs chosen anew in every cell; cones that have no direction yet get one."""
        places = []
        for place, majorant in zip(self.places, self._majorants(V), strict=True):
            if majorant.C is None:
                places.append(place)
                continue
            M = _moments(majorant.C, width)
            turned = place if place.cell.signs is None else place.with_cones(V, M)
            places.append(turned.with_pairs(V, M, per_row))
        return replace(self, places=tuple(places))

    def split(self, V: Matrix, which: Sequence[int], width: float) -> Self:
        """The cells listed are halved by the row whose sign matters most."""
        places: list[Coordinates] = []
        for index, (place, majorant) in enumerate(zip(self.places, self._majorants(V), strict=True)):
            if index not in which or majorant.C is None or not len(place.cell.free):
                places.append(place)
                continue
            row = _undecided(majorant, _moments(majorant.C, width))
            for half, sign in zip(place.cell.split(row), (1, -1), strict=True):
                places.append(Coordinates.of(half, majorant.at.inherited(place.cell, row, sign)))
        return replace(self, places=tuple(places))


def _moments(C: Tensor, width: float) -> Tensor:
    R = softened([C.numpy()], width).roots[0]
    return torch.from_numpy(R @ R.T)


def _undecided(majorant: Majorant, M: Tensor) -> int:
    """The free row with the largest |v_i| min(E a_i |w|, E b_i |w|) in the moments."""
    cell = majorant.cell
    assert majorant.Y is not None
    w = torch.linalg.vector_norm(M[:, : cell.n_outputs], dim=1) if cell.signs is None else M @ cell.norm_form
    active, inactive = (majorant.Y + cell.pre) @ w, (majorant.Y - cell.pre) @ w
    size = torch.linalg.vector_norm(majorant.V[cell.free], dim=1)
    return int(cell.free[(size * torch.minimum(active, inactive)).argmax()])
