"""All patterns of a few samples, and bounds of projections onto their cones, against fractions and 60 digits."""

from fractions import Fraction
from itertools import combinations

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf

from bidual.patterns import count_bound
from bidual.patterns.exact_arrangement import exact_patterns
from bidual.polar.subnetworks.first_layer import FirstLayer, _combined
from bidual.polar.subnetworks.pricing import ExactParallel

mpmath.mp.dps = 60


def rows(n: int, r: int, seed: int = 0, apart: float = 0.0) -> np.ndarray:
    """Rows of length one, in pairs that are so far apart if that is not zero."""
    X = np.random.default_rng(seed).standard_normal((n, r))
    if apart:
        X[n // 2 :] = X[: n - n // 2] + apart * X[n // 2 :]
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize(("n", "r"), [(1, 1), (6, 1), (7, 2), (6, 3), (6, 4)])
@pytest.mark.parametrize("apart", [0.0, 1e-3, 1e-9, 1e-15])
def test_as_many_patterns_as_rows_in_general_position_have(n: int, r: int, apart: float) -> None:
    X = rows(n, r, 1, apart)
    distinct = len({tuple(row) for row in (X * np.sign(X[:, :1])).tolist()})
    patterns = exact_patterns(X)
    assert len(patterns) == len(np.unique(patterns, axis=0)) == count_bound(distinct, r)


@pytest.mark.parametrize("seed", range(5))
def test_every_direction_of_whole_numbers_has_a_pattern_that_is_listed(seed: int) -> None:
    """Many rows that depend on each other, repeat, or are zero; signs of whole numbers are exact."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (10, 3)).astype(float)
    listed = {tuple(pattern) for pattern in exact_patterns(X).tolist()}
    values = rng.integers(-50, 51, (20_000, 3)) @ X.T
    inside = (values != 0)[:, X.any(1)].all(1)
    assert {tuple(pattern) for pattern in (values[inside] >= 0).tolist()} == listed


def exact_length(c: np.ndarray, K: np.ndarray) -> mpf:
    """|P(c)| on { w : K w >= 0 }, by all faces: the longest of the projections onto their spans that are in it."""
    point, normals = [mpf(x) for x in c.tolist()], [[mpf(x) for x in k] for k in K.tolist()]
    best = mpf(0)
    for count in range(len(point)):
        for face in combinations(normals, count):
            gram = mpmath.matrix([[mpmath.fdot(a, b) for b in face] for a in face]) if face else None
            try:
                share = mpmath.lu_solve(gram, mpmath.matrix([mpmath.fdot(a, point) for a in face])) if face else []
            except ZeroDivisionError:
                continue
            near = [x - sum(share[k] * a[j] for k, a in enumerate(face)) for j, x in enumerate(point)]
            if min(mpmath.fdot(a, near) for a in normals) >= -(mpf(10) ** -40):
                best = max(best, mpmath.norm(near))
    return best


@pytest.mark.parametrize("apart", [0.0, 1e-2, 1e-6, 1e-9])
@pytest.mark.parametrize("r", [1, 2, 3])
def test_no_projection_is_longer_than_its_bound(r: int, apart: float) -> None:
    layer = FirstLayer.of(rows(6, r, 2, apart))
    rng, signed = np.random.default_rng(3), (2 * layer.D - 1)[:, :, None] * layer.X
    cells = rng.integers(0, len(layer), 30)
    points = rng.standard_normal((30, r)) * 10.0 ** rng.integers(-8, 8, (30, 1))
    points[::3] = 1e-9 * points[::3] + layer.X[rng.integers(0, 6, 10)]  # near to rows, and so to borders
    _, bounds = layer.project(points, cells)
    for c, cell, bound in zip(points, cells, bounds.tolist(), strict=True):
        exact = exact_length(c, signed[cell])
        assert exact <= mpf(bound)
        assert mpf(bound) ** 2 <= exact**2 + mpf(2e-12) * mpmath.norm(c.tolist()) ** 2


def test_normals_are_rows_of_the_samples() -> None:
    layer = FirstLayer.of(rows(7, 3, 4))
    for normals, own in zip(layer.normals, (2 * layer.D - 1)[:, :, None] * layer.X, strict=True):
        assert {tuple(k) for k in normals.tolist() if any(k)} <= {tuple(k) for k in own.tolist()}
    assert layer.normals.shape[1] < 7


def exact_slope(X: torch.Tensor, v: torch.Tensor, units: torch.Tensor) -> Fraction:
    """|v^T f(X)|^2 / |units|^2 of a three-layer sub-network in fractions."""
    total = Fraction(0)
    for x, weight in zip(X.tolist(), v[:, 0].tolist(), strict=True):
        hidden = [
            [max(sum(Fraction(a) * Fraction(b) for a, b in zip(x, u, strict=True)), Fraction(0)) for u in side]
            for side in units.tolist()
        ]
        total += Fraction(weight) * max(sum(hidden[0]) - sum(hidden[1]), Fraction(0))
    return total**2 / sum(Fraction(x) ** 2 for x in units.flatten().tolist())


@pytest.mark.parametrize("apart", [0.0, 1e-13, 1e-8])
@pytest.mark.parametrize(("n", "d", "rank"), [(6, 2, 2), (4, 3, 3), (5, 4, 2)])
def test_no_sub_network_is_above_exact_pricing_in_fractions(n: int, d: int, rank: int, apart: float) -> None:
    """Also where duals of rows that nearly agree cancel, and samples are of lower rank."""
    basis = np.random.default_rng(7).standard_normal((rank, d))
    X = torch.from_numpy(rows(n, rank, 5, apart) @ basis)
    v = torch.from_numpy(np.random.default_rng(6).standard_normal((n, 1)))
    if apart:
        v[n // 2 :] = -v[: n - n // 2] * (1 + 1e-7)
    oracle = ExactParallel(X, 2)
    found = oracle.steepest(v)
    for units in found.neurons[:3]:
        assert exact_slope(X, v, units.reshape(2, 2, d)) <= Fraction(found.bracket.upper) ** 2
    assert found.bracket.upper - found.bracket.lower <= 1e-12 * float((v.abs() * X.norm(dim=1, keepdim=True)).sum())


@pytest.mark.parametrize("seed", [0, 2])
def test_cells_between_rows_that_nearly_agree_leave_the_bracket_narrow(seed: int) -> None:
    """Projections of length 1e-300 once counted as sub-networks of length 1e140."""
    generator = torch.Generator().manual_seed(seed)
    X, v = (torch.randn(2, k, generator=generator).double().repeat(2, 1) for k in (3, 1))
    X[2:] += 1e-13 * torch.randn(2, 3, generator=generator).double()
    v[2:] *= -(1 + 0.3 * torch.rand(2, 1, generator=generator).double())
    found = ExactParallel(X, 2).steepest(v)
    assert found.bracket.upper <= found.bracket.lower * (1 + 1e-8)
    torch.testing.assert_close(found.neurons.norm(dim=1), torch.ones(len(found.neurons), dtype=torch.float64))


def test_sums_that_overflow_are_replaced_by_the_point() -> None:
    c, K = np.ones((2, 2)), np.ones((2, 2, 2))
    with np.errstate(over="ignore", invalid="ignore"):
        found, spent = _combined(c, np.array([[1.0, 2.0], [1e308, 1e308]]), K)
    assert found.tolist() == [[4.0, 4.0], [1.0, 1.0]]
    assert 0 < spent[0] < 1e-29
    assert spent[1] == 0
