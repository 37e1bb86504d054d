"""Cells that cover all neurons, and the largest of their bounds, smoothed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from bidual.polar.products.coordinates import Coordinates, Vector
from bidual.polar.products.descent import Array, CellDescent, Workspace, slices
from bidual.polar.products.majorant import Majorant
from bidual.types import Matrix

_LIGHT = 1e-12  # an eigenvalue's share of the moments that is left out


class Soft(NamedTuple):
    """width * log sum exp(eigenvalues / width), and R of every cell with the moments R R^T: its derivatives in C."""

    value: float
    roots: list[Array]


def softened(Cs: Sequence[Array], width: float) -> Soft:
    """The smoothed largest eigenvalue of several symmetric matrices, an upper bound of it."""
    spectra = [np.linalg.eigh(C) for C in Cs]
    top = max(float(values[-1]) for values, _ in spectra)
    weights = [np.exp((values - top) / width) for values, _ in spectra]
    total = sum(float(weight.sum()) for weight in weights)
    shares = [np.sqrt(np.where(weight > _LIGHT * total, weight / total, 0.0)) for weight in weights]
    roots = [(Q * share)[:, share > 0] for share, (_, Q) in zip(shares, spectra, strict=True)]
    return Soft(top + width * float(np.log(total)), roots)


class SoftBound:
    """The smoothed largest bound of several cells, as a function of V and one vector."""

    def __init__(self, places: Sequence[Coordinates]) -> None:
        space = Workspace()
        self.cells = [CellDescent(place, space) for place in places]
        self.parts = slices([len(place.vector) for place in places])

    def __call__(self, V: Array, vector: Array, width: float) -> tuple[float, Array, Array] | None:
        """Value and slopes in V and in the vector; None where there is no bound."""
        with np.errstate(all="ignore"):  # what is not finite has no bound
            return self._value(V, [vector[part] for part in self.parts], width)

    def _value(self, V: Array, parts: list[Array], width: float) -> tuple[float, Array, Array] | None:
        Cs = [C for cell, part in zip(self.cells, parts, strict=True) if (C := cell.form(V, part)) is not None]
        if len(Cs) < len(parts) or not all(np.isfinite(C).all() for C in Cs):
            return None
        soft, on_V, on_vector = softened(Cs, width), np.zeros_like(V), []
        for cell, part, R in zip(self.cells, parts, soft.roots, strict=True):
            far_below = not R.size
            on_vector.append(np.zeros_like(part) if far_below else cell.slopes(R, on_V))
        return soft.value, on_V, np.concatenate(on_vector)


@dataclass(frozen=True, eq=False)
class Cells:
    """The multipliers of cells that cover all neurons, as one vector."""

    places: tuple[Coordinates, ...]

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
