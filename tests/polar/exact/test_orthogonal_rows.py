"""The cheap bound of the polar: never below the real value, and above it by no more than its allowance."""

import math

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.polar.exact.orthogonal_rows import (
    _nonnegative_bound,
    _positive_part_bound,
    norm_bound,
    polar_bound_orthogonal_rows,
)
from bidual.testing import own_checks_only
from helpers.draws import normal

EPS = 2.0**-52


def orthogonal(n: int, d: int, seed: int = 0) -> Tensor:
    """Rows of length one that are orthogonal to a few roundings."""
    return torch.linalg.qr(normal(d, n, seed=seed))[0].T


def top_root(B: np.ndarray) -> np.longdouble:
    """sqrt(lambda_max) of a symmetric matrix >= 0, by power iteration in extended precision."""
    B, x = B.astype(np.longdouble), np.linalg.eigh(B.astype(float))[1][:, -1].astype(np.longdouble)
    for _ in range(60):
        x = B @ x
        x = x / np.sqrt(x @ x)
    return np.sqrt(x @ B @ x)


def operator_norm(A: Tensor) -> np.longdouble:
    wide = A.numpy().astype(np.longdouble)
    return top_root(wide @ wide.T if len(A) <= A.shape[1] else wide.T @ wide)


def positive_part(A: Tensor) -> np.longdouble:
    wide = A.numpy().astype(np.longdouble)
    return top_root(np.maximum(wide @ wide.T, 0))


def excess(bound: float, exact: np.longdouble | float) -> float:
    """How many machine epsilons a bound is above a number, relatively."""
    return float((np.longdouble(bound) - exact) / exact / EPS)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1), (2, 3), (3, 2)])
def test_no_numbers_and_zeros_have_norm_zero(shape: tuple[int, int]) -> None:
    assert norm_bound(torch.zeros(shape, dtype=torch.float64)) == 0.0
    assert _nonnegative_bound(torch.zeros(shape, dtype=torch.float64)) == 0.0


@pytest.mark.parametrize("shape", [(4, 12), (12, 4), (1, 5), (5, 1), (7, 7), (2, 3), (30, 40)])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_norms_are_bounded_from_above_to_their_allowance(shape: tuple[int, int], scale: float) -> None:
    n, k = min(shape), max(shape)
    for seed in range(4):
        A = scale * normal(*shape, seed=seed)
        assert 0 <= excess(norm_bound(A), operator_norm(A)) <= 2 * n * n + n * k + 30


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (6, 4), (9, 1), (4, 8), (1, 3), (9, 3)])
@pytest.mark.parametrize("signs", [1.0, 0.0])
def test_the_positive_part_is_bounded_from_above_to_its_allowance(shape: tuple[int, int], signs: float) -> None:
    n, k = shape
    for seed in range(4):
        A = signs * normal(*shape, seed=seed) + 1.0
        assert 0 <= excess(_positive_part_bound(A, steps=200), positive_part(A)) <= n * (k + 8) + 40


def test_opposite_rows_do_not_add_up() -> None:
    A = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    assert _positive_part_bound(A) == pytest.approx(1.0, abs=40 * EPS)
    assert _nonnegative_bound(A) == pytest.approx(1.0, abs=40 * EPS)
    assert norm_bound(A) == pytest.approx(math.sqrt(2), abs=40 * EPS)


def test_rows_far_smaller_than_others_leave_the_bound() -> None:
    A = torch.diag(torch.tensor([1.0, 1e-10, 1e-30], dtype=torch.float64))
    assert _positive_part_bound(A, steps=60) == pytest.approx(1.0, abs=40 * EPS)


@pytest.mark.parametrize("scale", [1e-200, 0.1, 1.0, 10.0, 1e140])
def test_the_better_of_norm_and_positive_part_is_taken_at_any_scale(scale: float) -> None:
    signs = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
    assert _nonnegative_bound(scale * signs) == pytest.approx(scale * math.sqrt(2), rel=1e-13)
    cross = torch.tensor([[2.0, 1.0], [2.0, -1.0], [-1.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
    assert _nonnegative_bound(scale * cross) <= scale * float(operator_norm(cross)) * (1 + 1e-13)


def test_squares_that_overflow_are_not_needed() -> None:
    assert _nonnegative_bound(torch.full((2, 2), 1e200, dtype=torch.float64)) == pytest.approx(2e200, rel=1e-13)
    assert _nonnegative_bound(torch.full((2, 2), 1e308, dtype=torch.float64)) == math.inf


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e160])
def test_squares_that_underflow_leave_the_bound(scale: float) -> None:
    """Zero came out of this once, of a polar of sqrt(3) scale."""
    eye, ones = torch.eye(3, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)
    for X, V in ((scale * eye, ones), (eye, scale * ones)):
        bound = polar_bound_orthogonal_rows(X, V) / scale
        assert math.sqrt(3) <= bound <= math.sqrt(3) * (1 + 1e-13)


def test_a_short_row_with_a_large_dual_counts_beside_a_long_one() -> None:
    for e in (1e-8, 1e-160, 1e-170, 1e-290):
        X = torch.diag(torch.tensor([1.0, e], dtype=torch.float64))
        V = torch.tensor([[e], [1.0]], dtype=torch.float64)
        assert math.sqrt(2) <= polar_bound_orthogonal_rows(X, V) / e <= math.sqrt(2) * (1 + 1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_white_data_in_real_arithmetic(seed: int) -> None:
    """Rows that are orthogonal up to rounding: some neuron is steeper than for orthogonal ones, by about 1e-16."""
    X, counts = orthogonal(12, 20, seed), torch.tensor([5, 4, 3])
    V = torch.eye(3, dtype=torch.float64).repeat_interleave(counts, 0) * (1 + 0.1 * normal(12, 1, seed=seed)).abs()
    wide, duals = X.numpy().astype(np.longdouble), V.numpy().astype(np.longdouble)
    u = wide.T @ duals
    hidden = np.maximum(wide @ u, 0)
    steep = np.sqrt(((hidden.T @ duals) ** 2).sum(1) / (u**2).sum(0)).max()
    assert steep <= polar_bound_orthogonal_rows(X, V) <= float(steep) * (1 + 1e-12)


@pytest.mark.parametrize("broken", [math.inf, math.nan])
def test_what_is_not_finite_bounds_nothing(broken: float) -> None:
    X, V = orthogonal(2, 3), torch.tensor([[1.0], [broken]], dtype=torch.float64)
    assert polar_bound_orthogonal_rows(X, V) == math.inf


def two_bounds(X: Tensor, V: Tensor) -> tuple[float, float]:
    """|T|_op min(|A|_op, sqrt(lambda_max((A A^T)_+))) for scales |x_i| and for one."""
    lengths = torch.linalg.vector_norm(X, dim=1, keepdim=True)
    found = []
    for scales in (lengths, torch.ones_like(lengths)):
        T = X / torch.where(scales > 0, scales, 1.0)
        A = scales * V
        found.append(float(operator_norm(T) * min(operator_norm(A), positive_part(A))))
    return found[0], found[1]


SETS = {
    "scales help": (torch.tensor([[1.0], [1e-3]]) * orthogonal(2, 3), torch.tensor([[1.0], [10.0]]).double()),
    "scales hurt": (torch.tensor([[1.0, 0.0], [0.1, 0.0]]).double(), torch.tensor([[1.0], [0.01]]).double()),
    "signs": (normal(5, 3), normal(5, 1, seed=1)),
    "outputs": (normal(4, 6), normal(4, 3, seed=1)),
}


@pytest.mark.parametrize("name", SETS)
def test_the_better_scales_are_taken(name: str) -> None:
    X, V = SETS[name]
    by_rows, plain = two_bounds(X, V)
    assert polar_bound_orthogonal_rows(X, V) == pytest.approx(min(by_rows, plain), rel=1e-5)
    if name.startswith("scales"):
        assert (by_rows < 0.95 * plain) == (name == "scales help")
        assert (plain < 0.95 * by_rows) == (name == "scales hurt")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_drawn_is_steeper(seed: int) -> None:
    X, V = normal(6, 2, seed=seed), normal(6, 2, seed=seed + 10)
    angles = torch.linspace(0, 2 * math.pi, 5000, dtype=torch.float64)
    U = torch.stack([angles.cos(), angles.sin()])
    best = torch.linalg.vector_norm(V.T @ (X @ U).clamp(min=0), dim=0).max()
    assert polar_bound_orthogonal_rows(X, V) >= float(best)


def test_orthogonal_rows_of_any_length_and_parallel_duals_are_exact() -> None:
    lengths, V = torch.tensor([[3.0], [0.5], [2.0]]).double(), torch.tensor([[1.0], [4.0], [2.0]]).double()
    exact = float(torch.linalg.vector_norm(lengths * V))
    bound = polar_bound_orthogonal_rows(lengths * orthogonal(3, 5), V)
    assert exact <= bound <= exact * (1 + 1e-13)


def test_zero_rows_and_zero_duals_cost_nothing() -> None:
    X, V = orthogonal(3, 5), normal(3, 2)
    padded = torch.cat([X, torch.zeros(2, 5, dtype=torch.float64)])
    more = torch.cat([V, 100 * normal(2, 2, seed=1)])
    assert polar_bound_orthogonal_rows(padded, more) == pytest.approx(polar_bound_orthogonal_rows(X, V), rel=1e-13)
    assert polar_bound_orthogonal_rows(X, 0 * V) == 0.0


def test_one_row_of_duals_per_sample_is_wanted() -> None:
    with own_checks_only(), pytest.raises(ValueError, match=r"^V must have one row per sample \(3\), got 2\.$"):
        polar_bound_orthogonal_rows(normal(3, 5), normal(2, 2))


@pytest.mark.parametrize(("x", "v", "more"), [([1e-100], 1e-200, 1e200), ([5e-324, 5e-324], 1e300, 0.0)])
def test_products_on_the_way_do_not_underflow(x: list[float], v: float, more: float) -> None:
    """One row counts, beside a zero row with a long dual."""
    X = torch.tensor([x, [0.0] * len(x)], dtype=torch.float64)
    bound = polar_bound_orthogonal_rows(X, torch.tensor([[v], [more]], dtype=torch.float64))
    with mpmath.workdps(40):
        exact = mpmath.norm(mpmath.matrix(x)) * mpmath.mpf(v)
        assert exact <= mpmath.mpf(bound) <= exact * (1 + mpmath.mpf(1e-6))
