"""Caps around cells, and the largest linear functions and forms on them, against plain formulas and longer numbers."""

import numpy as np
import pytest
from numpy import ndarray

from bidual.numerics.rounding import gamma
from bidual.polar.sphere.caps import Cap, apply, largest_square
from helpers.simplex_cases import SHAPES, UNIT, form_on_cap, narrow, on_caps, projected

Wide = np.longdouble


def wide_caps(cap: Cap, q: int = 200) -> ndarray:
    """(m, q, r) vectors of the caps that are of length one to 64 bits, the first half on their boundary."""
    m, r = cap.centre.shape
    rng = np.random.default_rng(1)
    centre = cap.centre.astype(Wide)
    centre /= np.sqrt((centre**2).sum(1, keepdims=True))
    t = rng.standard_normal((m, q, r)).astype(Wide)
    t -= (t * centre[:, None]).sum(2, keepdims=True) * centre[:, None]
    t /= np.sqrt((t**2).sum(2, keepdims=True))
    sine = cap.sine.astype(Wide)[:, None] * np.where(np.arange(q) < q // 2, 1, rng.random(q))
    return np.sqrt(1 - sine**2)[..., None] * centre[:, None] + sine[..., None] * t


@pytest.mark.parametrize(("r", "width"), [(2, 0.3), (3, 0.3), (4, 1e-3), (3, 1e-7), (2, 1e-12)])
def test_a_cap_is_the_smallest_around_the_mean_with_all_corners(r: int, width: float) -> None:
    corners = narrow(r, 1, 40, width).corners
    cap = Cap.around(corners)
    for k, cell in enumerate(corners.astype(Wide)):
        centre = cap.centre[k].astype(Wide)
        centre /= np.sqrt((centre**2).sum())
        lengths = np.sqrt((cell**2).sum(1))
        sine = max(
            np.sqrt(((p - (p @ centre) * centre) ** 2).sum()) / size for p, size in zip(cell, lengths, strict=True)
        )
        assert sine + 2 * r * UNIT <= cap.sine[k] <= sine + (10 * r + 36) * UNIT
        assert cap.cosine[k] == pytest.approx(float(np.sqrt(1 - sine**2)), rel=100 * r * UNIT)
        mean = cell.mean(0) / np.sqrt((cell.mean(0) ** 2).sum())
        assert np.abs(mean - centre).max() <= 8 * UNIT
        stretch = 1 / (cell @ centre).min()  # the largest sum of mu, which is at a corner
        assert stretch <= 1 / Wide(cap.cosine[k]) * (1 + Wide(gamma(r + 7)))


def test_cells_as_wide_as_a_right_angle_have_no_cap() -> None:
    wide = np.array([[[1.0, 0.0], [-0.6, 0.8]], [[1.0, 0.0], [-1.0, 1e-17]], [[1.0, 0.0], [0.0, 1.0]]])
    assert np.isnan(Cap.around(wide[1:2]).cosine).all()
    assert np.isfinite(Cap.around(wide[[0, 2]]).cosine).all()
    obtuse = np.array([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [-0.8, 0.6, 0.0]]])
    assert np.isnan(Cap.around(obtuse).cosine).all()


@pytest.mark.parametrize("r", [2, 3, 4])
def test_projection_to_the_cone_over_a_cap_leaves_an_obtuse_angle(r: int) -> None:
    rng = np.random.default_rng(r)
    cap = Cap.around(narrow(r, 1, 40, 0.8).corners)
    a = 2 * rng.standard_normal((40, r)) + rng.choice([-9, 0, 9], size=(40, 1)) * cap.centre
    p = cap.project(a)
    along, length = (p * cap.centre).sum(1), np.linalg.norm(p, axis=1)
    assert (along >= length * cap.cosine - 1e-12).all()
    assert np.allclose(((a - p) * p).sum(1), 0, atol=1e-11)
    assert ((on_caps(cap) @ (a - p)[:, :, None]) <= 1e-11).all()
    assert (length == 0).any()  # some a are in the polar cone
    assert (np.abs(p - a).max(1) == 0).any()  # some in the cone
    for k in range(40):
        b = np.arctan2(cap.sine[k], cap.cosine[k])
        assert np.allclose(p[k], projected(a[k], cap.centre[k], b), atol=1e-12)
    assert np.array_equal(cap.highest(a)[0], p)
    assert np.allclose(cap.highest(a)[1], length, rtol=1e-14)


def test_projection_of_the_axis_is_itself_and_of_its_negative_zero() -> None:
    cap = Cap.around(np.array([[[1.0, 0.0], [0.0, 1.0]]]))
    assert np.allclose(cap.project(3 * cap.centre), 3 * cap.centre, rtol=1e-15)
    assert np.array_equal(cap.project(np.array([[-1.0, -1.0]])), np.zeros((1, 2)))
    assert np.array_equal(cap.project(np.zeros((1, 2))), np.zeros((1, 2)))
    assert np.allclose(cap.project(np.array([[2.0, -1.0]])), [[2.0, 0.0]], atol=1e-13)
    assert np.allclose(cap.project(np.array([[-1.0, 0.5]])), [[0.0, 0.5]], atol=1e-13)
    assert cap.highest(np.array([[-1.0, -1.0]]))[1].tolist() == [0]


@pytest.mark.parametrize("width", [0.3, 1e-4, 1e-9])
@pytest.mark.parametrize("r", [2, 3, 5])
def test_linear_functions_are_right_to_the_rounding_that_is_said(r: int, width: float) -> None:
    """Slopes near to the boundary of the cap's cone, where one rounding decides between two formulas."""
    cap = Cap.around(narrow(r, 1, 50, width).corners)
    u = wide_caps(cap)
    a = (u[:, 0] * np.linspace(0.5, 2, 50)[:, None]).astype(float)
    for slope in (a, a + width * cap.centre, a - width * cap.centre, np.random.default_rng(0).standard_normal(a.shape)):
        found, size = cap.highest(slope)[1], np.linalg.norm(slope, axis=1)
        best = (u * slope[:, None]).sum(2).max(1)
        assert (best <= found + gamma(5 * r + 28) * size).all()
        nearest = [
            projected(s, m, b) for s, m, b in zip(slope, cap.centre, np.arctan2(cap.sine, cap.cosine), strict=True)
        ]
        assert np.allclose(found, np.linalg.norm(nearest, axis=1), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(("r", "c"), SHAPES)
@pytest.mark.parametrize("width", [0.3, 1e-3, 1e-8])
def test_a_form_on_a_cap_is_bounded_by_the_worst_angle(r: int, c: int, width: float) -> None:
    rng = np.random.default_rng(r + c)
    cap = Cap.around(narrow(r, c, 24, width).corners)
    G = rng.standard_normal((24, c, r)) * rng.choice([0.1, 1, 3], size=(24, c, 1))
    G[::3] -= (G[::3] @ cap.centre[::3, :, None]) * cap.centre[::3, None, :]  # nothing is left at the centre
    found, size = cap.square(G), np.linalg.norm(G, axis=(1, 2))
    at = (wide_caps(cap) @ G.swapaxes(1, 2).astype(Wide)) ** 2
    assert (np.sqrt(at.sum(2)).max(1) <= np.sqrt(found) + gamma(5 * r + 2 * c + 29) * size).all()
    want = [form_on_cap(A, m, b) for A, m, b in zip(G, cap.centre, np.arctan2(cap.sine, cap.cosine), strict=True)]
    loose = min(r, c) ** (1 / 16) if min(r, c) > 2 else 1  # of |R|^2 by three squarings
    assert (np.sqrt(found) >= np.sqrt(want) * (1 - 1e-12) - 1e-15 * size).all()
    assert (np.sqrt(found) <= np.sqrt(loose * np.array(want)) * (1 + 1e-12) + 1e-14 * size).all()


def test_a_form_of_zero_is_zero() -> None:
    assert Cap.around(narrow(3, 2, 2, 0.2).corners).square(np.zeros((2, 2, 3))).tolist() == [0, 0]


@pytest.mark.parametrize(("c", "r"), [(1, 3), (3, 1), (2, 4), (5, 2), (3, 3), (4, 6), (6, 5)])
def test_squares_of_spectral_norms_are_bounded_closely(c: int, r: int) -> None:
    rng = np.random.default_rng(c * r)
    A = rng.standard_normal((60, c, r)) * 10.0 ** rng.integers(-40, 40, size=(60, 1, 1))
    A[:20] = A[:20, :, :1] * A[:20, :1]  # of rank one
    A[20:24] = np.eye(c, r)
    A[24] = 0
    found, want = largest_square(A), np.linalg.norm(A, 2, axis=(1, 2)) ** 2
    k = min(c, r)
    assert (found[:24] >= want[:24]).all()
    assert (found >= want * (1 - 1e-15)).all()
    assert (found <= want * (1 + 1e-12) * (1 if k <= 2 else k ** (1 / 16))).all()
    assert np.allclose(found[:20], want[:20], rtol=1e-12)


@pytest.mark.parametrize(("c", "r"), [(2, 3), (3, 3), (4, 5)])
def test_squares_of_spectral_norms_hold_to_the_last_bit(c: int, r: int) -> None:
    """The quotient |A x|^2 / |x|^2 with 64 bits, at x of the top singular vector, is a lower bound."""
    A = np.random.default_rng(c).standard_normal((200, c, 1)) * np.random.default_rng(r).standard_normal((200, 1, r))
    x, found = np.linalg.svd(A)[2][:, 0].astype(Wide), largest_square(A)
    least = ((A.astype(Wide) * x[:, None]).sum(2) ** 2).sum(1) / (x**2).sum(1)
    assert (least <= found).all()
    assert (least > found * (1 - 100 * UNIT)).all()


def test_apply_multiplies_each_cell_by_its_own_vector() -> None:
    rng = np.random.default_rng(0)
    A, x = rng.standard_normal((4, 2, 3)), rng.standard_normal((4, 3))
    assert np.allclose(apply(A, x), [M @ v for M, v in zip(A, x, strict=True)], rtol=1e-15)
