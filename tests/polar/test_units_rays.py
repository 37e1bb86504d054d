"""Corners of activation cones: all of them, once, of norm one; and how many are expected before any work."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.memory import human_bytes
from bidual.norms import L1, LINF, Norm
from bidual.polar import rays
from bidual.polar.rays import _once, _rays, check_corners, corner_count, corner_directions

POLYHEDRAL = pytest.mark.parametrize("norm", [L1, LINF], ids=lambda norm: norm.name)


def normal(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def creases(d: int, norm: Norm) -> np.ndarray:
    eye = np.eye(d)
    return eye if norm is L1 else np.array([eye[j] + s * eye[k] for j, k in combinations(range(d), 2) for s in (1, -1)])


def null_directions(X: np.ndarray, norm: Norm) -> np.ndarray:
    """Where any d - 1 independent rows or creases vanish, of norm one, without repeats up to sign."""
    d, found = X.shape[1], list[np.ndarray]()
    for chosen in combinations(np.concatenate([X, creases(d, norm)]), d - 1):
        _, s, Vh = np.linalg.svd(np.array(chosen))
        u = Vh[-1] / np.linalg.norm(Vh[-1], 1 if norm is L1 else np.inf)
        if s[-1] > 1e-9 and not any(min(abs(u - v).max(), abs(u + v).max()) < 1e-9 for v in found):
            found.append(u)
    return np.array(found)


@POLYHEDRAL
@pytest.mark.parametrize("shape", [(3, 2), (4, 3), (1, 3), (2, 4)])
def test_corners_are_where_all_but_one_dimension_vanish(norm: Norm, shape: tuple[int, int]) -> None:
    X = normal(*shape)
    found, coarse = corner_directions(X, norm)
    expected = null_directions(X.numpy(), norm)
    assert 1e-13 <= coarse <= 1e-10
    np.testing.assert_allclose(norm.value(found).numpy(), 1.0, rtol=1e-14)
    either = [abs(found.numpy()[:, None] - sign * expected).max(2) for sign in (1, -1)]
    apart = np.minimum(*either)
    assert float(apart.min(1).max()) < 1e-9
    assert float(apart.min(0).max()) < 1e-9
    assert len(expected) <= len(found) <= 1.02 * len(expected)  # near-copies may be left


@POLYHEDRAL
def test_lengths_of_samples_do_not_matter(norm: Norm) -> None:
    X = normal(4, 3)
    scales = torch.tensor([[1e-200], [1e3], [1.0], [1e200]], dtype=torch.float64)
    plain, scaled = corner_directions(X, norm)[0], corner_directions(scales * X, norm)[0]
    aligned = (plain @ scaled.T / (plain.norm(dim=1)[:, None] * scaled.norm(dim=1))).abs()
    assert plain.shape == scaled.shape
    assert bool((aligned.amax(1) > 1 - 1e-9).all())  # every direction, up to its sign, is among the others
    assert plain.dtype == scaled.dtype == torch.float64


@POLYHEDRAL
def test_one_feature_has_one_corner_which_is_exact(norm: Norm) -> None:
    directions, coarse = corner_directions(normal(5, 1), norm)
    assert directions.tolist() == [[1.0]]
    assert directions.dtype == torch.float64
    assert coarse == 0.0


@POLYHEDRAL
@pytest.mark.parametrize("shape", [(3, 2), (4, 3), (2, 4), (6, 3)])
def test_the_count_is_that_of_rays_on_all_planes(norm: Norm, shape: tuple[int, int]) -> None:
    """Every d - 2 of the rows meet in a plane, on which each of the others has one ray."""
    n, d = shape
    rows = n + len(creases(d, norm))
    planes = len(list(combinations(range(rows), d - 2)))
    assert corner_count(n, d, norm) == planes * (rows - (d - 2))
    assert len(corner_directions(normal(n, d), norm)[0]) <= corner_count(n, d, norm)
    assert corner_count(n, 1, norm) == 1


@pytest.mark.parametrize(("n", "d", "norm"), [(10, 3, L1), (7, 4, LINF), (5, 2, L1)])
def test_corners_are_refused_only_where_memory_is_short(
    n: int, d: int, norm: Norm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A direction, its rounded copies and indices, and a flag and some numbers for every row of every plane."""
    rows = n + len(creases(d, norm))
    need = corner_count(n, d, norm) * 8 * (5 * d + 8) + comb(rows, d - 2) * 40 * rows
    asked = []
    monkeypatch.setattr(rays, "available_bytes", lambda device: asked.append(device.type) or need)
    check_corners(n, d, norm)
    assert asked == ["cpu"]
    monkeypatch.setattr(rays, "available_bytes", lambda device: need - 1)
    text = (
        f"{n} samples of {d} features have up to {corner_count(n, d, norm):,} corners under the {norm.name} norm, "
        f"whose enumeration would need {human_bytes(need)}, and {human_bytes(need - 1)} are free; use NormSearch."
    )
    with pytest.raises(ValueError, match=r"corners under the") as refused:
        corner_directions(normal(n, d), norm)
    assert str(refused.value) == text


def test_rays_of_a_plane_are_units_in_it_at_which_its_rows_vanish() -> None:
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 2)))[0]
    rows = np.random.default_rng(1).normal(size=(5, 2)) * np.array([[1e-3], [1], [10], [1e3], [2]])
    found = _rays(basis, rows)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose((found @ basis * rows).sum(1) / np.linalg.norm(rows, axis=1), 0.0, atol=1e-15)
    np.testing.assert_allclose(found @ basis @ basis.T, found, atol=1e-15)


def test_equal_and_opposite_directions_are_listed_once() -> None:
    U = torch.tensor([[0.0, 1.0], [1.0, 0.5], [0.0, -1.0], [-1.0, -0.5], [1.0, 0.5], [1.0, -0.5]], dtype=torch.float64)
    found = _once(U)
    assert sorted(tuple(u) for u in found.abs().tolist()) == [(0.0, 1.0), (1.0, 0.5), (1.0, 0.5)]
    assert all(any(torch.equal(u, v) for v in U) for u in found)


@pytest.mark.parametrize(("apart", "kept"), [(1e-15, 1), (1e-11, 2), (2e-13, 2)])
def test_directions_that_agree_to_thirteen_digits_are_one(apart: float, kept: int) -> None:
    U = torch.tensor([[1.0, 0.5], [1.0, 0.5 + apart]], dtype=torch.float64)
    assert len(_once(U)) == kept


def test_signs_of_what_rounds_to_zero_do_not_tell_directions_apart() -> None:
    U = torch.tensor([[1e-17, 1.0], [-1e-17, 1.0], [-0.0, -1.0], [1e-17, -1.0]], dtype=torch.float64)
    assert len(_once(U)) == 1
