"""Cells: what is known on them, and that they cover all neurons."""

import math

import pytest
import torch

from bidual.polar.products.cells import Cell, orthants
from helpers.product_cases import draw, neurons


@pytest.mark.parametrize(("c", "most", "count"), [(1, 3, 2), (2, 2, 4), (3, 3, 8), (3, 2, 1), (1, 0, 1)])
def test_orthants_are_all_signs_of_the_outputs_unless_there_are_too_many(c: int, most: int, count: int) -> None:
    X = draw(4, 2)
    cells = orthants(X, c, most)
    assert all(cell.X is X and cell.n_outputs == c and cell.fixed == () for cell in cells)
    signs = {None if cell.signs is None else tuple(cell.signs.tolist()) for cell in cells}
    assert len(cells) == len(signs) == count
    assert signs == {None} or all(abs(s) == 1 for one in signs for s in one)


@pytest.mark.parametrize("power", [-20, 0, 3])
def test_the_unit_of_a_row_is_a_power_of_two_near_its_length(power: int) -> None:
    X = draw(5, 3) * 2.0**power
    for row in range(5):
        unit = Cell(X, 1).unit(row)
        assert math.frexp(unit)[0] == 0.5
        assert 0.7 <= unit / float(X[row].norm()) <= 1.4143
    assert Cell(0 * X, 1).unit(0) == 1.0


def test_halves_fix_a_row_at_the_end_with_both_signs() -> None:
    on, off = orthants(draw(5, 3), 2, 3)[1].split(3)[1].split(0)
    assert (on.fixed, off.fixed) == (((3, -1), (0, 1)), ((3, -1), (0, -1)))
    assert on.free.tolist() == [1, 2, 4]
    assert (on.positive.tolist(), off.positive.tolist()) == ([0], [])


def test_forms_are_not_negative_on_the_cell_and_the_norm_form_is_at_least_the_length() -> None:
    cell = orthants(draw(6, 3), 2, 3)[1].split(2)[0].split(4)[1]
    W, U = neurons(cell, 300)
    z = torch.cat([W, U], 1)
    assert len(z) > 20
    assert float((z @ cell.forms.T).min()) >= 0
    assert float((z @ cell.norm_form).min()) >= 1 - 1e-12
    assert float((z.square() @ cell.balance).abs().max()) < 1e-12
