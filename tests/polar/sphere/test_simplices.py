"""Cones over simplices: how they cover the sphere, are cut, packed and joined."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy import ndarray

from bidual.numerics.rounding import gamma
from bidual.polar.sphere.simplices import Simplices, join


def cells(m: int, r: int, c: int, k: int, seed: int = 0) -> Simplices:
    rng = np.random.default_rng(seed)
    corners = rng.standard_normal((m, r, r))
    corners /= np.linalg.norm(corners, axis=2, keepdims=True)
    edges = [r * i + j for i in range(r) for j in range(i + 1, r)]
    return Simplices(
        corners,
        rng.standard_normal((m, c, r)),
        rng.integers(0, 9, (m, k)),
        rng.random(m),
        rng.choice(edges, m),
        rng.integers(0, 9, m),
    )


@pytest.mark.parametrize(("n", "r", "c"), [(4, 1, 2), (5, 3, 1), (0, 2, 3)])
def test_orthants_cover_the_sphere_once(n: int, r: int, c: int) -> None:
    found = Simplices.orthants(n, r, c)
    assert len(found) == 2**r
    signs = {tuple(np.diag(cell)) for cell in found.corners}
    assert len(signs) == 2**r
    assert np.array_equal(np.abs(found.corners), np.tile(np.eye(r), (2**r, 1, 1)))
    assert (found.corners[0] == np.eye(r)).all()
    assert found.fixed.shape == (2**r, c, r)
    assert not found.fixed.any()
    assert found.rows.tolist() == [list(range(n))] * 2**r
    assert found.bound.tolist() == [np.inf] * 2**r
    assert found.edge.tolist() == [0] * 2**r
    assert found.depth.tolist() == [0] * 2**r
    assert found.edge.dtype == found.depth.dtype == np.int64


def test_packing_keeps_the_rows_and_the_width_of_the_fullest_cell() -> None:
    whole = cells(3, 2, 1, 5)
    rows = np.array([[9, 4, 9, 9, 9], [9, 9, 7, 9, 2], [9, 9, 9, 9, 9]])
    packed = replace(whole, rows=rows).packed(9)
    assert packed.rows.tolist() == [[4, 9], [2, 7], [9, 9]]
    for name in ("corners", "fixed", "bound", "edge", "depth"):
        assert getattr(packed, name) is getattr(whole, name)


def test_packing_leaves_one_column_at_least() -> None:
    whole = cells(2, 2, 1, 3)
    full = replace(whole, rows=np.full((2, 3), 9)).packed(9)
    assert full.rows.tolist() == [[9], [9]]
    assert whole.take(slice(0)).packed(9).rows.shape == (0, 1)
    last = replace(whole, rows=np.array([[9, 8, 9], [9, 9, 9]])).packed(9)
    assert last.rows.tolist() == [[8], [9]]


@pytest.mark.parametrize("r", [2, 3, 4])
def test_halves_share_the_middle_of_the_edge(r: int) -> None:
    whole = cells(6, r, 2, 3)
    before = whole.corners.copy()
    halves = whole.halved()
    assert len(halves) == 12
    for k in range(6):
        i, j = divmod(int(whole.edge[k]), r)
        middle = whole.corners[k, i] + whole.corners[k, j]
        first, second = whole.corners[k].copy(), whole.corners[k].copy()
        first[i] = second[j] = middle / np.linalg.norm(middle)
        assert np.allclose(halves.corners[k], first, rtol=1e-15)
        assert np.allclose(halves.corners[6 + k], second, rtol=1e-15)
    for name in ("fixed", "rows", "bound", "edge"):
        assert np.array_equal(getattr(halves, name), np.concatenate([getattr(whole, name)] * 2))
    assert np.array_equal(halves.depth, np.concatenate([whole.depth + 1] * 2))
    assert np.array_equal(whole.corners, before)


def test_width_is_the_largest_difference_of_a_coordinate_from_the_first_corner() -> None:
    corners = np.array([[[1.0, 0.0], [1.0, 0.25]], [[1.0, 0.0], [0.5, 0.0]], [[0.0, -1.0], [0.0, -1.0]]])
    found = Simplices(corners, np.zeros((3, 1, 2)), np.zeros((3, 1), int), np.zeros(3), *np.zeros((2, 3), int))
    assert found.wider_than(0.1).tolist() == [True, True, False]
    assert found.wider_than(0.25).tolist() == [False, True, False]
    assert found.wider_than(0.0).tolist() == [True, True, False]


def test_joined_batches_keep_their_order_and_fill_rows_with_the_zero_row() -> None:
    a, b, c = cells(2, 3, 2, 1, 1), cells(3, 3, 2, 4, 2), cells(0, 3, 2, 2)
    both = join([a, b, c], 9)
    assert both.rows.shape == (5, 4)
    assert both.rows[:2].tolist() == [[int(row[0]), 9, 9, 9] for row in a.rows]
    assert np.array_equal(both.rows[2:], b.rows)
    for name in ("corners", "fixed", "bound", "edge", "depth"):
        assert np.array_equal(getattr(both, name), np.concatenate([getattr(a, name), getattr(b, name)]))


# what rounding leaves uncovered, in rational numbers


def rational(x: ndarray) -> list[Fraction]:
    return [Fraction(float(t)) for t in x]


def dot(x: list[Fraction], y: list[Fraction]) -> Fraction:
    return sum((s * t for s, t in zip(x, y, strict=True)), Fraction(0))


def followed(cell: Simplices, mu: list[Fraction]) -> tuple[Simplices, list[Fraction]]:
    """The half that has a point near sum_k mu_k p_k, and its coordinates there, all of them at least zero."""
    r = len(mu)
    i, j = divmod(int(cell.edge[0]), r)
    keep, leave = (i, j) if mu[i] >= mu[j] else (j, i)
    half = cell.halved().take(np.array([1 if keep == i else 0]))
    both = [s + t for s, t in zip(*(rational(cell.corners[0, k]) for k in (i, j)), strict=True)]
    t = dot(rational(half.corners[0, leave]), both) / dot(both, both)
    mu = list(mu)
    mu[keep], mu[leave] = mu[keep] - mu[leave], mu[leave] / t
    return half, mu


def point(cell: Simplices, mu: list[Fraction]) -> list[Fraction]:
    return [dot(mu, rational(column)) for column in cell.corners[0].T]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("r", [2, 3, 5])
def test_every_unit_vector_stays_as_near_to_a_cell_as_said(r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cell = Simplices.orthants(1, r, 1).take(slice(1))
    mu = rational(rng.exponential(size=r))
    u, edges = point(cell, mu), [r * i + j for i in range(r) for j in range(i + 1, r)]
    size = dot(u, u)
    for depth in range(1, 41):
        cell, mu = followed(replace(cell, edge=rng.choice(edges, 1)), mu)
        assert min(mu) >= 0
        off = [s - t for s, t in zip(u, point(cell, mu), strict=True)]
        assert dot(off, off) <= r * Fraction(gamma(2 * depth)) ** 2 * size
    assert cell.depth.tolist() == [40]
    assert dot(off, off) > 0  # no cell has u itself


@pytest.mark.parametrize("r", [2, 4])
def test_cells_stay_in_their_orthant(r: int) -> None:
    rng = np.random.default_rng(r)
    cells = Simplices.orthants(1, r, 1)
    for _ in range(60):
        cells = replace(cells, edge=rng.integers(0, r, len(cells)) * r + rng.integers(0, r, len(cells))).halved()
        cells = cells.take(rng.permutation(len(cells))[:64])
        assert (cells.corners @ cells.corners.transpose(0, 2, 1) >= 0).all()
        assert np.abs(np.linalg.norm(cells.corners, axis=2) - 1).max() <= gamma(r + 3)
