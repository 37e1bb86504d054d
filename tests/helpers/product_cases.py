"""Random cells, multipliers and neurons."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from bidual.polar.products.cells import Cell, orthants
from bidual.polar.products.coordinates import Coordinates
from bidual.polar.products.multipliers import Multipliers

LABELS = torch.tensor([0, 0, 1, 2, 1, 2, 0, 3, 3])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def places(c: int, clustered: bool, seed: int = 0) -> Iterator[tuple[Coordinates, Tensor]]:
    """Coordinates at random multipliers with pairs, in cells with and without signs and fixed rows; and V."""
    X, V = draw(9, 3, seed=seed), draw(9, c, seed=seed + 1)
    X = X / torch.linalg.matrix_norm(X, 2)
    for cell in (*orthants(X, c, 2)[:2], Cell(X, c)):
        place = Coordinates.start(cell, V, LABELS if clustered else None)
        M = torch.eye(cell.size, dtype=torch.float64) / cell.size
        place = place if cell.signs is None else place.with_cones(V, M)
        place = place.with_pairs(V, M, 6)
        for row in (4, 0):
            moves = 0.3 * draw(len(place.vector), seed=seed + row) * (place.scales() > 0)
            place = replace(place, vector=place.vector + moves)
            yield place, V
            half, sign = place.cell.split(row)[row % 2], (1, -1)[row % 2]
            place = Coordinates.of(half, multipliers(place).inherited(place.cell, row, sign))


def multipliers(place: Coordinates) -> Multipliers:
    return place.multipliers(place.vector)


def neurons(cell: Cell, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pairs of output and hidden weights of length one in a cell: reflected into it where they are not."""
    U, W = draw(count, cell.X.shape[1], seed=seed), draw(count, cell.n_outputs, seed=seed + 1)
    U, W = U / U.norm(dim=1, keepdim=True), W / W.norm(dim=1, keepdim=True)
    if cell.signs is not None:
        W = W.abs() * cell.signs
    for _ in range(100):
        for row, sign in cell.fixed:
            x = sign * cell.X[row] / cell.X[row].norm()
            U = U - 2 * (U @ x).clamp(max=0)[:, None] * x
    inside = torch.ones(count, dtype=torch.bool)
    for row, sign in cell.fixed:
        inside &= sign * (U @ cell.X[row]) >= 0
    return W[inside], U[inside]
