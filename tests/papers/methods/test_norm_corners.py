"""Corners of activation cones: all of them, once, of norm one; and how many are expected before any work."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch

from bidual.numerics.norms import L1, LINF, Norm
from bidual.papers.methods.norm_oracles import corner_count, corner_directions
from helpers.draws import normal

POLYHEDRAL = pytest.mark.parametrize("norm", [L1, LINF], ids=lambda norm: norm.name)


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
    found = corner_directions(X, norm)
    expected = null_directions(X.numpy(), norm)
    np.testing.assert_allclose(norm.value(found).numpy(), 1.0, rtol=1e-14)
    either = [abs(found.numpy()[:, None] - sign * expected).max(2) for sign in (1, -1)]
    apart = np.minimum(*either)
    assert float(apart.min(1).max()) < 1e-9
    assert float(apart.min(0).max()) < 1e-9
    assert len(found) == len(expected)


@POLYHEDRAL
def test_lengths_of_samples_do_not_matter(norm: Norm) -> None:
    X = normal(4, 3)
    scales = torch.tensor([[1e-200], [1e3], [1.0], [1e200]], dtype=torch.float64)
    plain, scaled = corner_directions(X, norm), corner_directions(scales * X, norm)
    aligned = (plain @ scaled.T / (plain.norm(dim=1)[:, None] * scaled.norm(dim=1))).abs()
    assert plain.shape == scaled.shape
    assert bool((aligned.amax(1) > 1 - 1e-9).all())  # every direction, up to its sign, is among the others
    assert plain.dtype == scaled.dtype == torch.float64


@POLYHEDRAL
def test_one_feature_has_one_corner_which_is_exact(norm: Norm) -> None:
    directions = corner_directions(normal(5, 1), norm)
    assert directions.tolist() == [[1.0]]
    assert directions.dtype == torch.float64


@POLYHEDRAL
@pytest.mark.parametrize("shape", [(3, 2), (4, 3), (2, 4), (6, 3)])
def test_the_count_is_that_of_all_choices_of_hyperplanes(norm: Norm, shape: tuple[int, int]) -> None:
    n, d = shape
    assert corner_count(n, d, norm) == len(list(combinations(range(n + len(creases(d, norm))), d - 1)))
    assert len(corner_directions(normal(n, d), norm)) <= corner_count(n, d, norm)
    assert corner_count(n, 1, norm) == 1


def kernel(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """The line on which d - 1 rows vanish, by elimination in fractions; None where they are dependent."""
    d, free, reduced = len(rows[0]), list(range(len(rows[0]))), list[tuple[int, list[Fraction]]]()
    for row in rows:
        for pivot, other in reduced:
            row = [x - row[pivot] * y for x, y in zip(row, other, strict=True)]
        pivot = max(free, key=lambda j: abs(row[j]))
        if not row[pivot]:
            return None
        row = [x / row[pivot] for x in row]
        reduced = [(p, [y - o[pivot] * x for x, y in zip(row, o, strict=True)]) for p, o in reduced] + [(pivot, row)]
        free.remove(pivot)
    u = [Fraction(0)] * d
    u[free[0]] = Fraction(1)
    for pivot, row in reduced:
        u[pivot] = -row[free[0]]
    return u


@POLYHEDRAL
@pytest.mark.parametrize("apart", [0.0, 1e-15, 1e-13, 1e-10, 1e-5])
@pytest.mark.parametrize("d", [2, 3, 4])
def test_corners_of_rows_that_nearly_agree_are_right_to_their_last_digits(norm: Norm, apart: float, d: int) -> None:
    """Rows ``apart`` from each other meet far from where rounded rows would."""
    X = normal(2, d).repeat(2, 1)
    X[2:] += apart * normal(2, d, seed=1)
    found = corner_directions(X, norm).numpy()
    hyperplanes = [[Fraction(x) for x in row] for row in (*X.tolist(), *creases(d, norm).tolist())]
    kernels = {tuple(u) for rows in combinations(hyperplanes, d - 1) if (u := kernel(list(rows))) is not None}
    for u in kernels:
        size = sum(map(abs, u)) if norm is L1 else max(map(abs, u))
        exact = np.array([float(x / size) for x in u])
        errors = [np.abs(found - sign * exact) - (d + 4) * 2.0**-53 * np.abs(exact) for sign in (1, -1)]
        assert min(error.max(1).min() for error in errors) <= 1e-300
    assert len(found) <= len(kernels)


def test_samples_on_one_line_and_zeros_have_the_corners_of_one_sample() -> None:
    found = corner_directions(torch.tensor([[2.0, -4.0], [-3.0, 6.0], [0.0, 0.0]]), L1)
    assert sorted(found.tolist()) == [[0.0, 1.0], [pytest.approx(2 / 3), pytest.approx(1 / 3)], [1.0, 0.0]]
