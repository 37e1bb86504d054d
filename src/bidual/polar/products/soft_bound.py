"""The largest eigenvalue over several cells, smoothed, and its slopes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from bidual.polar.products.coordinates import Coordinates, Vector
from bidual.polar.products.majorant import Majorant
from bidual.polar.products.multipliers import Workspace
from bidual.types import Matrix


class Soft(NamedTuple):
    """width * log sum exp(eigenvalues / width), and the moments M of every cell: its derivatives in C."""

    value: float
    moments: list[Tensor]


def softened(Cs: Sequence[Tensor], width: float) -> Soft:
    """The smoothed largest eigenvalue of several symmetric matrices, an upper bound of it."""
    spectra = [torch.linalg.eigh(C) for C in Cs]
    top = max(float(values[-1]) for values, _ in spectra)
    weights = [((values - top) / width).exp() for values, _ in spectra]
    total = sum(float(weight.sum()) for weight in weights)
    moments = [(Q * (weight / total)) @ Q.T for weight, (_, Q) in zip(weights, spectra, strict=True)]
    return Soft(top + width * math.log(total), moments)


@dataclass(frozen=True, eq=False)
class Cells:
    """The multipliers of cells that cover all neurons, as one vector."""

    places: tuple[Coordinates, ...]
    space: Workspace = field(default_factory=Workspace)

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

    def majorants(self, V: Matrix, vector: Vector) -> list[Majorant] | None:
        """Those of all cells; None where one does not exist."""
        parts = zip(self.places, self._split(vector), strict=True)
        found = [Majorant(place.cell, V, place.multipliers(part), self.space) for place, part in parts]
        return found if all(one.C is not None for one in found) else None

    def slopes(self, majorants: list[Majorant], vector: Vector, moments: list[Tensor]) -> tuple[Matrix, Vector]:
        """The derivatives of sum_k <C_k, M_k> in V and in the coordinates."""
        on_V, on_vector = torch.zeros_like(majorants[0].V), []
        for place, part, one, M in zip(self.places, self._split(vector), majorants, moments, strict=True):
            if float(M.trace()) < 1e-9:  # far below the largest eigenvalue
                on_vector.append(torch.zeros_like(part))
                continue
            slopes = one.slopes(M)
            on_V += slopes.V
            on_vector.append(place.gradient(part, one.at, slopes))
        return on_V, torch.cat(on_vector)

    def bounds(self, V: Matrix) -> list[float]:
        """The largest eigenvalue of every cell, not proved."""
        majorants = self.majorants(V, self.vector)
        if majorants is None:
            return [math.inf] * len(self.places)
        return [float(torch.linalg.eigvalsh(one.C)[-1]) for one in majorants if one.C is not None]

    def refreshed(self, V: Matrix, width: float, per_row: int) -> Self:
        """Pairs chosen anew in every cell; cones that have no direction yet get one."""
        places = []
        for place in self.places:
            majorant = Majorant(place.cell, V, place.multipliers(place.vector))
            if majorant.C is None:
                places.append(place)
                continue
            M = softened([majorant.C], width).moments[0]
            turned = place if place.cell.signs is None else place.with_cones(V, M)
            places.append(turned.with_pairs(V, M, per_row))
        return replace(self, places=tuple(places))

    def split(self, V: Matrix, which: Sequence[int], width: float) -> Self:
        """The cells listed are halved by the row whose sign matters most."""
        places: list[Coordinates] = []
        for index, place in enumerate(self.places):
            at = place.multipliers(place.vector)
            majorant = Majorant(place.cell, V, at)
            if index not in which or majorant.C is None or not len(place.cell.free):
                places.append(place)
                continue
            row = _undecided(majorant, softened([majorant.C], width).moments[0])
            for half, sign in zip(place.cell.split(row), (1, -1), strict=True):
                places.append(Coordinates.of(half, at.inherited(place.cell, row, sign)))
        return replace(self, places=tuple(places))


def _undecided(majorant: Majorant, M: Tensor) -> int:
    """The free row with the largest |v_i| min(E a_i |w|, E b_i |w|) in the moments."""
    cell = majorant.cell
    assert majorant.Y is not None
    w = torch.linalg.vector_norm(M[:, : cell.n_outputs], dim=1) if cell.signs is None else M @ cell.norm_form
    active, inactive = (majorant.Y + cell.pre) @ w, (majorant.Y - cell.pre) @ w
    size = torch.linalg.vector_norm(majorant.V[cell.free], dim=1)
    return int(cell.free[(size * torch.minimum(active, inactive)).argmax()])
