"""NormFaces is exact for every pair of norms, and NormSearch brackets it."""

from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.numerics.norms import L1, L2, LINF, NORMS, Norm
from bidual.polar import Faces, NormFaces, NormSearch
from bidual.polar.exact.rays import check_corners
from bidual.polar.relaxations.diagonal import DiagonalBound
from helpers.draws import normal
from helpers.polar_cases import CASES
from oracles.norm_oracle import planar_directions

PAIRS = list(product(NORMS.values(), NORMS.values()))
EVERY_PAIR = pytest.mark.parametrize(("hidden", "output"), PAIRS, ids=lambda norm: norm.name)
PLANAR = {
    "generic": (normal(7, 2), normal(7, 3, seed=1)),
    "one output": (normal(8, 2, seed=2), normal(8, 1, seed=3)),
    "on the axes": (
        torch.eye(2, dtype=torch.float64).repeat(3, 1) * normal(6, 1, seed=1).round(),
        normal(6, 2, seed=2),
    ),
    "ties": (normal(3, 2, seed=4).repeat(3, 1) * normal(9, 1, seed=5).sign(), normal(9, 2, seed=6)),
    "rank one": (normal(6, 1, seed=7) @ normal(1, 2, seed=8), normal(6, 2, seed=9)),
    "large and small": (1e6 * normal(6, 2) * 10 ** (3 * normal(6, 1, seed=3)), 1e-9 * normal(6, 2, seed=1)),
}


def values(X: Tensor, V: Tensor, U: np.ndarray, hidden: Norm, output: Norm) -> np.ndarray:
    """|V^T (X u)_+|_R* / |u|_C, without the package."""
    orders = {"l1": 1, "l2": 2, "linf": np.inf}
    dual = {"l1": np.inf, "l2": 2, "linf": 1}
    steep = np.maximum(X.numpy() @ U.T, 0).T @ V.numpy()
    return np.linalg.norm(steep, dual[output.name], axis=1) / np.linalg.norm(U, orders[hidden.name], axis=1)


@EVERY_PAIR
@pytest.mark.parametrize("case", PLANAR)
def test_agrees_with_going_all_around_the_plane(hidden: Norm, output: Norm, case: str) -> None:
    X, V = PLANAR[case]
    found = NormFaces(X, hidden, output).steepest(V)
    best = values(X, V, planar_directions(X.numpy(), 60_000), hidden, output).max()
    assert best * (1 - 1e-12) <= found.bracket.upper <= best * (1 + 1e-6)
    assert found.bracket.upper - found.bracket.lower <= 1e-8 * best
    np.testing.assert_allclose(hidden.value(found.neurons).numpy(), 1.0)
    listed = values(X, V, found.neurons.numpy(), hidden, output)
    np.testing.assert_allclose(listed, found.values.numpy(), rtol=1e-9, atol=1e-12 * best)


def spatial_rays(X: np.ndarray, hidden: Norm) -> np.ndarray:
    """Where any two rows of X, or creases of the norm, vanish in R^3."""
    eye = np.eye(3)
    diagonal = np.array([eye[j] + s * eye[k] for j, k in combinations(range(3), 2) for s in (1, -1)])
    rows = np.concatenate([X, eye if hidden is L1 else diagonal])
    rays = np.array([np.cross(a, b) for a, b in combinations(rows, 2)])
    rays = rays[np.linalg.norm(rays, axis=1) > 1e-9 * np.linalg.norm(X, axis=1).max() ** 2]
    return np.concatenate([rays, -rays])


@pytest.mark.parametrize("output", NORMS.values(), ids=lambda norm: norm.name)
@pytest.mark.parametrize("hidden", [L1, LINF], ids=lambda norm: norm.name)
@pytest.mark.parametrize("case", ["rank 3", "one output", "one sample", "all negative features"])
def test_agrees_with_all_rays_in_space(hidden: Norm, output: Norm, case: str) -> None:
    X, V = CASES[case]
    upper = NormFaces(X, hidden, output).steepest(V).bracket.upper
    assert upper == pytest.approx(values(X, V, spatial_rays(X.numpy(), hidden), hidden, output).max(), rel=1e-9)


@EVERY_PAIR
@pytest.mark.parametrize("case", sorted(set(CASES) - {"rank deficient", "wide", "large and small"}))
def test_nothing_drawn_is_steeper(hidden: Norm, output: Norm, case: str) -> None:
    X, V = CASES[case]
    U = np.concatenate([normal(20_000, X.shape[1], seed=11).numpy(), X.numpy()[X.numpy().any(1)]])
    found = NormFaces(X, hidden, output).steepest(V)
    assert values(X, V, U, hidden, output).max() <= found.bracket.upper
    assert found.bracket.upper <= found.bracket.lower * (1 + 1e-8)


@EVERY_PAIR
def test_search_brackets_the_exact_value(hidden: Norm, output: Norm) -> None:
    X, V = normal(12, 3), normal(12, 2, seed=1)
    exact = NormFaces(X, hidden, output).steepest(V).bracket
    for oracle, sure in ((Faces(X), True), (DiagonalBound(X, steps=10), True), (None, False)):
        found = NormSearch(X, hidden, output, oracle).steepest(V)
        assert 0.97 * exact.lower <= found.bracket.lower <= exact.upper
        assert found.bracket.upper >= exact.lower
        assert np.isfinite(found.bracket.upper) == sure


def test_search_climbs_from_seeds() -> None:
    X, V = normal(30, 6), normal(30, 2, seed=1)
    search = NormSearch(X, L1, LINF, starts=16)
    best = search.steepest(V)
    again = search.steepest(V, seeds=best.neurons[:1])
    assert again.bracket.lower >= best.bracket.lower
    assert len(search.steepest(V, above=0.5 * best.bracket.lower).neurons) > 1


@EVERY_PAIR
def test_only_what_exceeds_the_threshold_is_listed(hidden: Norm, output: Norm) -> None:
    X, V = PLANAR["generic"]
    oracle = NormFaces(X, hidden, output)
    top = oracle.steepest(V).bracket.lower
    listed = oracle.steepest(V, above=0.8 * top, seeds=normal(3, 2, seed=5))
    assert len(listed.values) >= 1
    assert bool((listed.values > 0.8 * top).all())
    assert float(listed.values[0]) == pytest.approx(top, rel=1e-12)


def test_euclidean_norms_are_faces() -> None:
    X, V = CASES["rank 3"]
    assert NormFaces(X, L2, L2).steepest(V).bracket.upper == pytest.approx(
        Faces(X).steepest(V).bracket.upper, rel=1e-12
    )


def test_more_signs_than_can_be_tried_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the linf norm on 13 outputs calls the exact oracle 4,096 times"):
        NormFaces(normal(5, 2), L2, LINF).steepest(normal(5, 13))


def test_more_corners_than_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="corners under the linf norm, whose enumeration would need"):
        check_corners(1000, 10, LINF)


def test_a_euclidean_bound_must_be_euclidean() -> None:
    X = normal(5, 2)
    with pytest.raises(ValueError, match="euclidean must be an oracle for l2 norms"):
        NormSearch(X, L1, L2, NormFaces(X, L1, L2))
