"""Ascent along ridges and the cheap bound's pieces, against closed forms."""

from math import inf

import numpy as np
import pytest
import torch

from bidual.polar.relaxations.aggregates import Aggregated, RowMultipliers
from bidual.polar.relaxations.diagonal import _elementary, _sums, diagonal_bound
from bidual.polar.search.ridges import RidgeSearch, _concave_step, _objective, ascend


def normal(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def test_the_objective_and_its_direction() -> None:
    values, g = _objective(np.eye(2), np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([[1.0, 1.0], [-1.0, 0.5], [-1, -1]]))
    assert values == pytest.approx([5, 2, 0])
    assert g == pytest.approx(np.array([[0.6, 0.8], [0, 1], [0, 0]]))


def test_a_concave_step_without_falling_rows_goes_along_the_slope() -> None:
    X, w, hidden = normal(5, 3), np.abs(normal(2, 5, 1)), normal(2, 5, 2)
    slope = (w * (hidden > 0)) @ X
    assert _concave_step(X, w, hidden, 3) == pytest.approx(slope / np.linalg.norm(slope, axis=1, keepdims=True))


def test_a_concave_step_stops_on_the_ridge() -> None:
    """b = (1, 1) and theta (0, -3): the shortest has theta = 1/3, on the ridge where the second row vanishes."""
    X, w = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, -3.0]])
    assert _concave_step(X, w, np.array([[1.0, 1.0]]), 200) == pytest.approx(np.array([[1.0, 0.0]]), abs=1e-6)


@pytest.mark.parametrize("c", [1, 2])
def test_ascent_never_falls_and_keeps_directions_unit(c: int) -> None:
    X, V, U = normal(8, 3), normal(8, c, 1), normal(30, 3, 2)
    before, given = _objective(X, V, U / np.linalg.norm(U, axis=1, keepdims=True))[0], U.copy()
    found = ascend(X, V, U)
    assert np.all(_objective(X, V, found)[0] >= before * (1 - 1e-12))
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, rel=1e-12)
    assert np.array_equal(U, given)


def test_a_search_over_ridges_proves_nothing_and_lists_the_best_first() -> None:
    X, V = torch.from_numpy(normal(8, 3)), torch.from_numpy(normal(8, 2, 1))
    peaks = RidgeSearch(X, starts=16).steepest(V)
    assert peaks.bracket.upper == inf
    assert peaks.bracket.lower == float(peaks.values[0])
    assert bool((peaks.values.diff() <= 0).all())
    assert RidgeSearch(X, starts=16).steepest(V, 1e9).values[0] == peaks.values[0]


def test_the_elementary_witness_has_the_elementary_bound() -> None:
    x, V = torch.from_numpy(normal(6, 3)), torch.from_numpy(normal(6, 2, 1))
    x, V = x / torch.linalg.matrix_norm(x, 2), V / V.norm()
    made = Aggregated(x, V, x.new_zeros(6, 0)).bound(RowMultipliers(_elementary(x, V), x.new_zeros(0, 0)))
    norms = [float(torch.linalg.matrix_norm(part, 2)) for part in (V.T @ x, V, x)]
    elementary = 0.5 * norms[0] + 0.5 * norms[1] * norms[2]
    assert made <= elementary * (1 + 1e-5)
    for sums in (False, True):
        assert diagonal_bound(x, V, sums, 10) <= made


def test_sums_are_the_unit_positive_and_negative_parts() -> None:
    V = torch.tensor([[3.0, 0.0], [4.0, -2.0]], dtype=torch.float64)
    assert _sums(V).tolist() == [[0.6, 0.0], [0.8, 1.0]]
    wide = torch.from_numpy(normal(5, 21))
    parts = torch.stack([wide.clamp(min=0).sum(1), (-wide).clamp(min=0).sum(1)], 1)
    assert torch.allclose(_sums(wide), parts / parts.norm(dim=0))
    assert _sums(wide[:, :20]).shape == (5, 40)
