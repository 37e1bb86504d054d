"""The majorant as a function of a vector: the same matrix, and slopes that are its differences."""

import math

import numpy as np
import pytest
import torch

from bidual.polar.products.cells import Cell
from bidual.polar.products.coordinates import Coordinates
from bidual.polar.products.descent import CellDescent, Workspace, slices
from bidual.polar.products.majorant import Majorant
from helpers.product_cases import draw, multipliers, places

CASES = [(c, clustered) for c in (1, 2) for clustered in (False, True)]


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_it_is_the_majorant_whatever_was_computed_before(c: int, clustered: bool) -> None:
    space = Workspace()
    for place, V in places(c, clustered):
        descent = CellDescent(place, space)
        for seed in range(3):
            vector = place.vector + 0.2 * draw(len(place.vector), seed=seed) * (place.scales() > 0)
            expected = Majorant(place.cell, V, place.multipliers(vector)).C
            torch.testing.assert_close(torch.from_numpy(descent.form(V.numpy(), vector.numpy())), expected)


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_slopes_are_differences_of_the_majorant(c: int, clustered: bool) -> None:
    for place, V in places(c, clustered):
        A = draw(place.cell.size, place.cell.size, seed=7)
        M, step = A @ A.T, 1e-6
        descent, on_V = CellDescent(place, Workspace()), np.zeros(V.shape)
        descent.form(V.numpy(), place.vector.numpy())
        gradient = torch.from_numpy(descent.slopes(A.numpy(), on_V))
        direction = draw(len(place.vector), seed=8) * (place.scales() > 0)
        ahead, behind = (
            (Majorant(place.cell, V, place.multipliers(place.vector + s * direction)).C * M).sum()
            for s in (step, -step)
        )
        torch.testing.assert_close((ahead - behind) / (2 * step), gradient @ direction, rtol=1e-5, atol=1e-6)
        dV = draw(*V.shape, seed=9)
        ahead, behind = ((Majorant(place.cell, V + s * dV, multipliers(place)).C * M).sum() for s in (step, -step))
        slope = (torch.from_numpy(on_V) * dV).sum()
        torch.testing.assert_close((ahead - behind) / (2 * step), slope, rtol=1e-5, atol=1e-6)


def test_slopes_of_every_part_of_the_vector_are_differences() -> None:
    """One coordinate of each part, so that none hides behind the others."""
    for place, V in places(2, True):
        A = draw(place.cell.size, place.cell.size, seed=7)
        M = (A @ A.T).numpy()
        descent = CellDescent(place, Workspace())
        descent.form(V.numpy(), place.vector.numpy())
        gradient = descent.slopes(A.numpy(), np.zeros(V.shape))
        for part in slices(place.sizes):
            if part.stop == part.start or not bool(place.scales()[part].any()):
                continue
            step = np.zeros(len(gradient))
            step[part.start + (part.stop - part.start) // 2] = 1e-6
            ahead, behind = ((descent.form(V.numpy(), place.vector.numpy() + s * step) * M).sum() for s in (1.0, -1.0))
            assert (ahead - behind) / 2e-6 == pytest.approx(gradient @ step / 1e-6, rel=1e-4, abs=1e-7)


def test_there_is_no_form_where_a_number_is_not_finite() -> None:
    for clustered in (False, True):
        place, V = next(iter(places(1, clustered)))
        broken = place.vector.clone()
        broken[0] = math.nan
        assert CellDescent(place, Workspace()).form(V.numpy(), broken.numpy()) is None


def test_a_cell_whose_rows_are_all_fixed() -> None:
    X, V = draw(2, 2) / 3, draw(2, 1, seed=1)
    cell = Cell(X, 1, torch.ones(1, dtype=torch.float64), ((0, 1), (1, -1)))
    place = Coordinates.start(cell, V)
    descent, on_V = CellDescent(place, Workspace()), np.zeros(V.shape)
    found = torch.from_numpy(descent.form(V.numpy(), place.vector.numpy()))
    torch.testing.assert_close(found, Majorant(cell, V, multipliers(place)).C)
    assert len(descent.slopes(np.eye(3), on_V)) == len(place.vector)
