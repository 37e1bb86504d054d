"""The product bound at given dual points: above the exact maximum, better with more work, with a search below."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bidual.polar import Faces
from bidual.polar.products.cells import Cell
from bidual.polar.products.descent import Array
from bidual.polar.products.multipliers import Multipliers
from bidual.polar.products.oracle import ProductBound, minimised
from bidual.polar.products.proof import proved_bound
from bidual.polar.products.soft_bound import SoftBound
from bidual.polar.products.witness import ProductProof
from helpers.product_cases import draw

X, V = draw(6, 2), draw(6, 1, seed=1)
SMALL = ProductBound(X, steps=2, per_row=3, starts=8)


def upper(oracle: ProductBound, V: torch.Tensor = V) -> float:
    return oracle.steepest(V).bracket.upper


def test_descent_and_pairs_tighten_the_bound_and_never_below_the_maximum() -> None:
    exact = Faces(X).steepest(V).bracket
    bounds = [upper(replace(SMALL, X=X, steps=steps)) for steps in (0, 2, 10)]
    assert bounds[0] > bounds[1] > bounds[2] >= exact.lower
    assert bounds[2] <= 1.05 * exact.upper


@pytest.mark.parametrize("factor", [1e6])
def test_the_bound_scales_with_the_dual_point_and_the_samples(factor: float) -> None:
    assert upper(SMALL, factor * V) == pytest.approx(factor * upper(SMALL), rel=1e-6)
    assert upper(replace(SMALL, X=factor * X)) == pytest.approx(factor * upper(SMALL), rel=1e-6)


def test_clusters_take_the_place_of_rows_beyond_the_limit() -> None:
    W = V / V.norm()
    for dense, clustered in ((5, True), (6, False)):
        oracle = replace(SMALL, X=X, dense=dense, clusters=3)
        for place in oracle.start(W).places:
            assert (place.pairs.labels is not None) is clustered
            assert place.pairs.count == (3 if clustered else 6)
        assert upper(oracle) >= Faces(X).steepest(V).bracket.lower


@pytest.mark.parametrize(("most", "cells"), [(0, 1), (1, 2)])
def test_signs_of_outputs_are_distinguished_up_to_their_limit(most: int, cells: int) -> None:
    oracle = replace(SMALL, X=X, most_outputs=most)
    assert len(oracle.start(V / V.norm()).places) == cells
    assert upper(oracle) >= Faces(X).steepest(V).bracket.lower


def test_the_lower_end_is_that_of_a_search_with_seeds_and_a_threshold() -> None:
    exact = Faces(X).steepest(V)
    found = SMALL.steepest(V, above=0.5 * exact.bracket.lower, seeds=exact.neurons[:1])
    assert found.bracket.lower == pytest.approx(exact.bracket.lower, rel=1e-9)
    assert float(found.values.min()) > 0.5 * exact.bracket.lower
    assert len(SMALL.steepest(V, above=10 * exact.bracket.upper).neurons) < len(SMALL.steepest(V).neurons)


def test_multipliers_of_a_dual_point_of_another_norm() -> None:
    """Those of 5 W, scaled as if they were of norm one."""
    W = V * SMALL.lengths[:, None]
    W = W / W.norm()
    cells = SMALL.start(W)
    at = [place.multipliers(place.vector).scaled(5.0) for place in cells.places]
    five = tuple(type(place).of(place.cell, one) for place, one in zip(cells.places, at, strict=True))
    proofs = SMALL.proofs(replace(cells, places=five), 5.0)
    bounds = [ProductProof(X, one).bound(W) for one in (proofs, SMALL.proofs(cells))]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)


def test_what_is_proved_is_for_the_rows_of_the_oracle_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are scaled twice differ by roundings that nothing pays for."""
    assert not torch.equal(ProductBound(SMALL.X).X, SMALL.X)
    proved = list[torch.Tensor]()

    def watched(cell: Cell, V: torch.Tensor, at: Multipliers) -> float:
        proved.append(cell.X)
        return proved_bound(cell, V, at)

    monkeypatch.setattr("bidual.polar.products.witness.proved_bound", watched)
    upper(SMALL)
    assert len(proved) == 2
    assert all(torch.equal(rows, SMALL.X) for rows in proved)


def test_steps_that_leave_the_domain_are_turned_back(monkeypatch: pytest.MonkeyPatch) -> None:
    W = V / V.norm()
    cells = SMALL.start(W)
    before = max(cells.bounds(W))
    assert max(minimised(cells, W, 1e-3 * before, 5).bounds(W)) <= before * (1 + 1e-2)
    assert torch.equal(minimised(cells, W, 0.1, 0).vector, cells.vector)
    value, began = SoftBound.__call__, cells.vector.numpy()

    def fenced(soft: SoftBound, V: Array, vector: Array, width: float) -> tuple[float, Array, Array] | None:
        """No bound farther than a tenth from where it began."""
        return value(soft, V, vector, width) if np.linalg.norm(vector - began) < 0.1 else None

    monkeypatch.setattr(SoftBound, "__call__", fenced)
    inside = minimised(cells, W, 0.1 * before, 5)
    assert 0 < float((inside.vector - cells.vector).norm()) < 0.1
    assert max(inside.bounds(W)) < before
