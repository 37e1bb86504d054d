"""Ascent along ridges, against closed forms."""

import numpy as np
import pytest

from bidual.polar.search.ridges import _concave_step, _objective, ascend
from helpers.draws import normal


def test_the_objective_and_its_direction() -> None:
    values, g = _objective(np.eye(2), np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([[1.0, 1.0], [-1.0, 0.5], [-1, -1]]))
    assert values == pytest.approx([5, 2, 0])
    assert g == pytest.approx(np.array([[0.6, 0.8], [0, 1], [0, 0]]))


def test_a_concave_step_without_falling_rows_goes_along_the_slope() -> None:
    X, w, hidden = normal(5, 3).numpy(), np.abs(normal(2, 5, seed=1).numpy()), normal(2, 5, seed=2).numpy()
    slope = (w * (hidden > 0)) @ X
    assert _concave_step(X, w, hidden, 3) == pytest.approx(slope / np.linalg.norm(slope, axis=1, keepdims=True))


def test_a_concave_step_stops_on_the_ridge() -> None:
    """b = (1, 1) and theta (0, -3): the shortest has theta = 1/3, on the ridge where the second row vanishes."""
    X, w = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, -3.0]])
    assert _concave_step(X, w, np.array([[1.0, 1.0]]), 200) == pytest.approx(np.array([[1.0, 0.0]]), abs=1e-6)


@pytest.mark.parametrize("c", [1, 2])
def test_ascent_never_falls_and_keeps_directions_unit(c: int) -> None:
    X, V, U = normal(8, 3).numpy(), normal(8, c, seed=1).numpy(), normal(30, 3, seed=2).numpy()
    before, given = _objective(X, V, U / np.linalg.norm(U, axis=1, keepdims=True))[0], U.copy()
    found = ascend(X, V, U)
    assert np.all(_objective(X, V, found)[0] >= before * (1 - 1e-12))
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, rel=1e-12)
    assert np.array_equal(U, given)
