"""Gram matrices and spectral norms against exact arithmetic."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.numerics import gram
from bidual.numerics.gram import Gram, norm_bound, power_of_two, row_lengths
from helpers.draws import normal


def adversarial(n: int, k: int, seed: int) -> Tensor:
    """Rows that nearly cancel, repeat, or vanish beside others."""
    A = normal(n, k, seed=seed)
    A[1] = A[0]
    A[2] = -A[0] * (1 + 2.0**-50)
    A[3, : k // 2], A[3, k // 2 :] = A[0, : k // 2], -A[0, : k // 2].flip(0)[: k - k // 2]
    A[4] *= 1e-200
    return A / A.abs().max()


def exact(A: Tensor) -> list[list[Fraction]]:
    rows = [[Fraction(x) for x in row] for row in A.tolist()]
    return [[sum(map(lambda x, y: x * y, one, other), Fraction(0)) for other in rows] for one in rows]


def operator_norm(A: Tensor) -> mpmath.mpf:
    return mpmath.svd_r(mpmath.matrix(A.tolist()), compute_uv=False)[0]


@pytest.mark.parametrize("k", [2, 40, 600, 800])
def test_gram_matrices_are_off_by_less_than_their_error(k: int) -> None:
    A = adversarial(5, k, k)
    made, real = Gram.of(A), exact(A)
    off = [[abs(real[i][j] - Fraction(float(made.G[i, j]))) for j in range(5)] for i in range(5)]
    s = [Fraction(size) for size in made.sizes.tolist()]
    assert all(off[i][j] <= Fraction(made.error) * s[i] * s[j] for i in range(5) for j in range(5))
    assert all(real[i][i] <= s[i] ** 2 for i in range(5))
    assert sum(x * x for row in off for x in row) <= Fraction(made.spread) ** 2
    sums = [sum(map(abs, row), Fraction(0)) for row in real]
    assert max(sums) <= Fraction(made.largest_row_sum) <= max(sums) * (1 + Fraction(made.error) * 20)


def test_products_of_many_columns_are_taken_by_blocks() -> None:
    assert Gram.of(normal(2, 512)).error > Gram.of(normal(2, 600)).error
    assert Gram.of(normal(2, 10_000)).error == pytest.approx(gram.gamma(256 + 40 + 2))
    A = normal(3, 700)
    assert float((Gram.of(A).G - A @ A.T).abs().max()) <= 1e-11


@pytest.mark.parametrize("roundings", [1, 3])
def test_entries_that_were_rounded_before_are_allowed_for(roundings: int) -> None:
    """Every entry is larger by the most that so many roundings do."""
    A = normal(4, 5).abs()
    made, worst = (
        Gram.of(A, roundings),
        [[Fraction(x) * (1 + Fraction(1, 2**53)) ** roundings for x in row] for row in A.tolist()],
    )
    for i, row in enumerate(made.G.tolist()):
        for j, x in enumerate(row):
            value = sum((a * b for a, b in zip(worst[i], worst[j], strict=True)), Fraction(0))
            assert abs(value - Fraction(x)) <= Fraction(made.error) * Fraction(float(made.sizes[i] * made.sizes[j]))
    assert made.error > Gram.of(A).error


def test_lengths_of_rows_are_rounded_up_even_where_squares_underflow() -> None:
    A = torch.tensor([[3e-170, 4e-170], [0.6, 0.8], [0.0, 0.0]], dtype=torch.float64)
    lengths = row_lengths(A)
    assert bool((lengths >= torch.tensor([5e-170, 1.0, 0.0])).all())
    assert lengths[1] <= 1 + 1e-14
    assert lengths[0] <= 1e-150


@pytest.mark.parametrize(
    ("top", "unit"), [(1.0, 1.0), (1.9, 1.0), (-2.0, 2.0), (0.75, 0.5), (0.0, 2.0**-1022), (5e-324, 2.0**-1022)]
)
def test_units_are_powers_of_two_below_the_largest_entry(top: float, unit: float) -> None:
    assert power_of_two(torch.tensor([[0.0, top]], dtype=torch.float64)) == unit
    assert power_of_two(torch.zeros(0, 3)) == 2.0**-1022


def test_what_is_not_finite_has_no_norm() -> None:
    for broken in (math.inf, math.nan):
        assert norm_bound(torch.tensor([[1.0, broken]], dtype=torch.float64)) == math.inf
    assert norm_bound(torch.full((3, 3), 1e308, dtype=torch.float64)) == math.inf


KINDS = {
    "normal": normal(6, 9, seed=1),
    "tall": normal(9, 6, seed=1),
    "ones": torch.ones(5, 7, dtype=torch.float64),
    "repeated": normal(1, 8).repeat(5, 1),
    "two equal singular values": torch.diag(torch.tensor([1.0, 1.0, 0.5])).double(),
    "nearly orthogonal": torch.eye(4, 6).double() + 1e-9 * normal(4, 6),
    "orthogonal": torch.linalg.qr(normal(9, 5))[0].T.contiguous(),
    "cancelling": adversarial(6, 20, 2),
    "uneven": normal(5, 6) * torch.logspace(0, -14, 5).double()[:, None],
}


@pytest.mark.parametrize("scale", [1.0, 1e-200, 2.0**-1060, 1e200])
@pytest.mark.parametrize("kind", KINDS)
def test_norms_are_never_too_small_and_hardly_too_large(kind: str, scale: float) -> None:
    """At 1e-200 squares underflow, and a norm of zero came out of that once."""
    A = KINDS[kind] * scale
    with mpmath.workdps(40):
        exact_norm, bound = operator_norm(A), norm_bound(A)
        assert exact_norm <= bound
        assert bound <= exact_norm * (1 + 1e-12) + 2.3e-308


def test_the_norm_of_many_rows_is_tight() -> None:
    A = normal(120, 300)
    wide = A.numpy().astype(np.longdouble)
    x = np.linalg.svd(A.numpy())[0][:, 0].astype(np.longdouble)
    for _ in range(3):
        x = wide @ (wide.T @ x)
        x /= np.sqrt(x @ x)
    norm = np.sqrt(((wide.T @ x) ** 2).sum())
    assert norm * (1 - 1e-15) <= norm_bound(A) <= float(norm) * (1 + 1e-11)
