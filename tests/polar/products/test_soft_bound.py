"""The smoothed largest eigenvalue, its slopes, and cells that are halved."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from bidual.polar.products.cells import orthants
from bidual.polar.products.coordinates import Coordinates
from bidual.polar.products.descent import slices
from bidual.polar.products.majorant import Majorant
from bidual.polar.products.oracle import ProductBound, minimised
from bidual.polar.products.soft_bound import Cells, SoftBound, _undecided, softened
from bidual.polar.products.witness import covering
from helpers.product_cases import draw, multipliers, neurons, places


def symmetric(size: int, seed: int) -> np.ndarray:
    A = draw(size, size, seed=seed).numpy()
    return A + A.T


@pytest.mark.parametrize("width", [1e-3, 0.1, 3.0])
def test_the_soft_maximum_is_the_log_of_a_sum_of_exponentials(width: float) -> None:
    Cs = [symmetric(3, 0), symmetric(4, 1)]
    values = np.concatenate([np.linalg.eigvalsh(C) for C in Cs])
    found = softened(Cs, width)
    assert found.value == pytest.approx(width * logsumexp(values / width), rel=1e-12)
    assert values.max() * (1 - 1e-12) <= found.value <= values.max() + width * math.log(7)
    assert sum(np.square(R).sum() for R in found.roots) == pytest.approx(1)


def test_moments_are_derivatives_of_the_soft_maximum() -> None:
    Cs, change = [symmetric(3, 0), symmetric(4, 1)], [symmetric(3, 2), symmetric(4, 3)]
    ahead, behind = (softened([C + s * D for C, D in zip(Cs, change, strict=True)], 0.5).value for s in (1e-6, -1e-6))
    slope = sum(float(((R @ R.T) * D).sum()) for R, D in zip(softened(Cs, 0.5).roots, change, strict=True))
    assert (ahead - behind) / 2e-6 == pytest.approx(slope, rel=1e-6)


def some(c: int = 1) -> tuple[Cells, torch.Tensor]:
    """Cells at random multipliers, not a cover."""
    made = list(places(c, False))
    return Cells(tuple(place for place, _ in made)), made[0][1]


def test_cells_are_one_vector() -> None:
    cells, _ = some()
    vector = cells.vector + 0.01 * draw(len(cells.vector), seed=4)
    again = cells.at(vector)
    assert torch.equal(again.vector, vector)
    assert torch.equal(cells.scales(), torch.cat([place.scales() for place in cells.places]))
    assert [place.cell for place in again.places] == [place.cell for place in cells.places]


def test_bounds_are_largest_eigenvalues_and_infinite_where_one_fails() -> None:
    cells, V = some()
    forms = [Majorant(place.cell, V, multipliers(place)).C for place in cells.places]
    expected = [float(torch.linalg.eigvalsh(C)[-1]) for C in forms]
    assert cells.bounds(V) == pytest.approx(expected)
    broken = cells.vector.clone()
    broken[0] = math.nan
    assert cells.at(broken).bounds(V) == [math.inf, *expected[1:]]
    assert SoftBound(cells.places)(V.numpy(), broken.numpy(), 0.1) is None


@pytest.mark.parametrize("c", [1, 2])
def test_slopes_of_the_soft_bound_are_differences(c: int) -> None:
    cells, V = some(c)
    soft, width = SoftBound(cells.places), 0.2 * max(cells.bounds(V))

    def value(V: torch.Tensor, vector: torch.Tensor) -> float:
        return soft(V.numpy(), vector.numpy(), width)[0]

    forms = [Majorant(place.cell, V, multipliers(place)).C.numpy() for place in cells.places]
    found, on_V, on_vector = soft(V.numpy(), cells.vector.numpy(), width)
    assert found == pytest.approx(softened(forms, width).value)
    dV, d = draw(*V.shape, seed=6), draw(len(cells.vector), seed=7) * (cells.scales() > 0)
    by_V = (value(V + 1e-6 * dV, cells.vector) - value(V - 1e-6 * dV, cells.vector)) / 2e-6
    along = (value(V, cells.vector + 1e-6 * d) - value(V, cells.vector - 1e-6 * d)) / 2e-6
    assert by_V == pytest.approx((on_V * dV.numpy()).sum(), rel=1e-5)
    assert along == pytest.approx(on_vector @ d.numpy(), rel=1e-5)


def test_cells_far_below_the_largest_have_no_slope() -> None:
    cells, V = some()
    bounds = cells.bounds(V)
    top, size = max(range(len(bounds)), key=bounds.__getitem__), len(cells.places[0].vector)
    on_vector = SoftBound(cells.places)(V.numpy(), cells.vector.numpy(), 1e-4 * max(bounds))[2]
    for k, part in enumerate(slices([len(place.vector) for place in cells.places])):
        assert bool(on_vector[part].any()) == (k == top)
    assert size < len(on_vector) == len(cells.vector)


@pytest.mark.parametrize("most_outputs", [0, 3])
def test_halved_cells_cover_and_are_no_worse(most_outputs: int) -> None:
    W = draw(9, 1, seed=1)
    W = W / W.norm()
    oracle = ProductBound(draw(9, 3), most_outputs=most_outputs, per_row=5)
    cells = oracle.start(W)
    halved = cells.split(W, [0], 0.1)
    assert len(halved.places) == len(cells.places) + 1
    assert covering(oracle.proofs(halved), 1)
    assert [place.cell for place in halved.places[2:]] == [place.cell for place in cells.places[1:]]
    (row, sign), (same_row, other) = (place.cell.fixed[0] for place in halved.places[:2])
    assert (row, sign, other) == (same_row, 1, -1)
    assert max(halved.bounds(W)[:2]) <= cells.bounds(W)[0] * (1 + 1e-9)


def test_a_row_of_known_sign_is_not_undecided() -> None:
    """Neurons near the first axis: rows along it are active, and rows across it may be either."""
    X = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]).double() / 2
    V = torch.tensor([[2.0], [2.0], [1.0]]).double() / 3
    place = ProductBound(X).start(V).places[0]
    at = multipliers(place)
    majorant = Majorant(place.cell, V, at)
    u = torch.from_numpy(ProductBound(X)._scaled.frame.T @ [1.0, 0.0])
    z = torch.cat([torch.ones(1, dtype=torch.float64), u])
    assert _undecided(majorant, torch.outer(z, z)) == 2


@pytest.mark.parametrize("seed", range(5))
def test_the_undecided_row_is_seen_farthest_on_both_sides_by_neurons(seed: int) -> None:
    """The largest |v_i| min(E a_i kappa, E b_i kappa), as means over neurons of a cell with a fixed row."""
    cell, V = orthants(draw(7, 3, seed=seed), 2, 2)[seed % 4].split(2)[1], draw(7, 2, seed=seed + 1)
    W, U = neurons(cell, 40, seed)
    z, h = torch.cat([W, U], 1), (U @ cell.X[cell.free].T).abs()
    Y = torch.linalg.lstsq(z, h).solution.T  # the best linear guess of h
    t, kappa = U @ cell.X[cell.free].T, W.abs().sum(1)[:, None]
    sides = torch.minimum(((z @ Y.T + t) * kappa).mean(0), ((z @ Y.T - t) * kappa).mean(0))
    best = cell.free[(V[cell.free].norm(dim=1) * sides).argmax()]
    majorant = Majorant(cell, V, multipliers(Coordinates.start(cell, V)))
    vars(majorant)["_solved"] = (torch.zeros(0), Y)
    assert _undecided(majorant, z.T @ z / len(z)) == int(best)


def test_cells_without_free_rows_or_majorants_are_not_cut() -> None:
    cells, V = some()
    assert cells.split(V, [], 0.1).places == cells.places
    broken = replace(cells.places[0], vector=cells.places[0].vector * math.nan)
    assert Cells((broken,)).split(V, [0], 0.1).places == (broken,)
    assert Cells((broken,)).refreshed(V, 0.1, 5).places == (broken,)


def test_refreshed_cells_have_pairs_and_cones_where_signs_are_known() -> None:
    W = draw(9, 1, seed=1)
    for most, any_cones in ((0, False), (3, True)):
        for place in ProductBound(draw(9, 3), most_outputs=most, per_row=5).start(W / W.norm()).places:
            assert sum(map(len, place.pairs.where)) > 0
            assert bool(multipliers(place).cone_plus.any()) is any_cones


def test_descent_lowers_the_soft_bound_and_can_be_stopped() -> None:
    W = draw(9, 1, seed=1)
    W = W / W.norm()
    cells = ProductBound(draw(9, 3), per_row=5).start(W)

    def soft(cells: Cells) -> float:
        return SoftBound(cells.places)(W.numpy(), cells.vector.numpy(), 0.05)[0]

    one, more = minimised(cells, W, 0.05, 1), minimised(cells, W, 0.05, 15)
    assert soft(more) < soft(one) < soft(cells)
    stopped = minimised(cells, W, 0.05, 15, go_on=lambda: False)
    assert soft(more) < soft(stopped)
