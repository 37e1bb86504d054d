"""Scaled and rotated data: what is kept, what is lost, and that bounds allow for it."""

import mpmath
import numpy as np
import pytest
import torch

from bidual.numerics.eigenvalue_bounds import orthogonality_error
from bidual.patterns.reduction import Reduced, left_over, reduce_rank
from bidual.polar.base import steepness
from bidual.polar.relaxations.diagonal import DiagonalBound
from bidual.polar.relaxations.reduction import Scaled
from helpers.draws import normal

EPS = float(np.finfo(np.float64).eps)


CASES = {
    "full": 3 * normal(7, 3),
    "wide": normal(3, 8),
    "rank two": 100 * normal(6, 2) @ normal(2, 5, seed=1),
    "nearly rank two": normal(6, 2) @ normal(2, 5, seed=1) + 1e-12 * normal(6, 5, seed=2),
    "one number": torch.tensor([[-4.0]], dtype=torch.float64),
}


@pytest.mark.parametrize("name", CASES)
def test_data_are_size_times_reduced_data_up_to_the_leftover(name: str) -> None:
    X = CASES[name]
    made = Scaled.of(X)
    lost = float(np.linalg.norm(X.numpy() - made.size * made.x @ made.frame.T))
    assert np.linalg.norm(made.x, 2) == pytest.approx(1, rel=1e-12)
    assert made.size == pytest.approx(float(torch.linalg.matrix_norm(X, 2)), rel=1e-10)
    assert made.frame.T @ made.frame == pytest.approx(np.eye(made.x.shape[1]), abs=1e-13)
    assert lost <= made.leftover <= lost + 20 * sum(X.shape) * EPS * float(X.norm())
    assert (made.skew == 0) == (made.x.shape[1] == X.shape[1])


@pytest.mark.parametrize("shape", [(3, 2), (4, 0), (0, 3)])
def test_nothing_has_rank_zero_and_size_one(shape: tuple[int, int]) -> None:
    made = Scaled.of(torch.zeros(shape, dtype=torch.float64))
    assert made.x.shape == (shape[0], 0)
    assert made.frame.shape == (shape[1], 0)
    assert (made.size, made.leftover) == (1.0, 0.0)


def test_a_bound_is_scaled_and_rounded_up() -> None:
    made = Scaled(np.zeros((1, 1)), np.zeros((1, 1)), 3.0, 0.25)
    value = made.bound(2.0, 8.0)
    assert 8.002 * (1 + 6 * EPS) <= value <= 8.002 * (1 + 10 * EPS)
    assert made.bound(0.0, 0.0) == 0.0


@pytest.mark.parametrize("name", CASES)
def test_the_bound_of_the_data_follows_from_that_of_the_reduced(name: str) -> None:
    X = CASES[name]
    made, V = Scaled.of(X), normal(len(X), 2, seed=5)
    Z = torch.nn.functional.normalize(normal(200, made.x.shape[1], seed=6))
    inner = steepness(torch.from_numpy(made.x), V, Z)
    outer = steepness(X, V, made.directions(Z.numpy()))
    bounds = [made.bound(float(value), float(V.norm())) for value in inner]
    assert all(float(value) <= bound for value, bound in zip(outer, bounds, strict=True))
    assert made.directions(Z.numpy()).shape == (200, X.shape[1])
    assert torch.linalg.vector_norm(made.directions(Z.numpy()), dim=1) == pytest.approx(1, rel=1e-12)


def polar_factor(B: np.ndarray) -> mpmath.matrix:
    """The nearest matrix of orthonormal columns, to many digits."""
    U, _, V = mpmath.svd_r(mpmath.matrix(B.tolist()))
    return U * V


def spectral(A: mpmath.matrix) -> mpmath.mpf:
    return mpmath.svd_r(A, compute_uv=False)[0]


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("full", "one number")])
@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e170])
def test_the_remainder_holds_in_real_arithmetic_for_exactly_orthonormal_columns(name: str, scale: float) -> None:
    X = scale * CASES[name]
    reduced, scaled = reduce_rank(X.numpy()), Scaled.of(X)
    with mpmath.workdps(40):
        Q, data = polar_factor(reduced.basis), mpmath.matrix(X.tolist())
        lost = spectral(data - mpmath.matrix(reduced.samples.tolist()) * Q.T)
        left = spectral(data - scaled.size * mpmath.matrix(scaled.x.tolist()) * Q.T)
        assert spectral(mpmath.matrix(reduced.basis.tolist()) - Q) <= reduced.skew <= 1e-13
        assert lost <= reduced.remainder <= 2 * lost + 1e-13 * spectral(data)
        assert left <= scaled.leftover <= 2 * left + 1e-13 * spectral(data)


@pytest.mark.parametrize("off", [1e-12, 1e-6, 1e-2])
def test_a_basis_that_is_not_orthonormal_is_paid_for(off: float) -> None:
    """Whoever computed it: what is left over grows with it, as it must."""
    X = normal(6, 2) @ normal(2, 5, seed=1)
    reduced = reduce_rank(X.numpy())
    basis, samples = reduced.basis * (1 + off), reduced.samples / (1 + off)
    skew = orthogonality_error(torch.from_numpy(basis))
    with mpmath.workdps(40):
        exact = mpmath.matrix(X.tolist()) - mpmath.matrix(samples.tolist()) * polar_factor(basis).T
        assert off <= skew <= 4 * off
        assert 0.5 * off * float(torch.linalg.matrix_norm(X, 2)) <= spectral(exact)
        assert spectral(exact) <= left_over(X.numpy(), samples, basis, skew)


def test_data_of_full_rank_lose_nothing_but_their_scaling() -> None:
    X = normal(30, 4)
    assert (reduce_rank(X.numpy()).remainder, reduce_rank(X.numpy()).skew) == (0.0, 0.0)
    assert Scaled.of(X).leftover <= 12 * EPS * float(X.norm())


@pytest.mark.parametrize(("remainder", "order"), [(1e-13, "fro"), (0.5, 2)])
@pytest.mark.parametrize("c", [1, 2, 4])
def test_what_was_lost_is_paid_for_with_the_norm_of_the_dual(c: int, remainder: float, order: str | int) -> None:
    V, nothing = np.random.default_rng(c).standard_normal((6, c)), np.zeros((6, 0))
    lost = Reduced(nothing, np.zeros((3, 0)), remainder).lost(torch.from_numpy(V))
    assert remainder * np.linalg.norm(V, order) <= lost <= remainder * np.linalg.norm(V, order) * (1 + 1e-12)
    assert Reduced(nothing, np.zeros((3, 0)), 0.0).lost(torch.from_numpy(V)) == 0


@pytest.mark.parametrize("norm", [1e-3, 1.0, 1e5])
def test_units_are_put_back_with_a_rounding_of_every_entry(norm: float) -> None:
    made, W = Scaled.of(CASES["full"]), normal(7, 2, seed=3)
    value = made.in_units(2.0, norm, W)
    entry = float(W.norm()) * float(np.linalg.norm(made.x)) * EPS / 2  # of one rounding
    assert norm * (2.0 + 2 * entry) <= value <= norm * (2.0 + 3 * entry) * (1 + 40 * EPS)
    assert made.in_units(0.0, 1.0, 1e-320 * W) > 0  # underflows


def test_a_scaled_oracle_pays_for_scaling_and_for_what_is_left_over() -> None:
    X, V = CASES["nearly rank two"], normal(6, 2, seed=4)
    oracle = DiagonalBound(X, steps=0, starts=1)
    norm = float(V.norm())
    found = oracle._in_units_of(V, V / norm, norm, 3.0)
    scaled = oracle._scaled
    least = norm * (3.0 * scaled.size + scaled.leftover)
    assert least <= found <= least * (1 + 1e-3 * scaled.leftover + 1e-13)
    assert oracle._search(V, 0.0, None).bracket.lower > 0
    assert len(oracle._search(V, 1e9, None).neurons) == 1
