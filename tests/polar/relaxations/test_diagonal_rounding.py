"""What the cheap witness allows for rounding, where all rows are equal and norms of products are products of norms."""

from fractions import Fraction

import pytest
import torch

from bidual.numerics.rounding import UNIT
from bidual.polar.relaxations.diagonal import Aggregated, RowMultipliers

Sizes = tuple[int, int, int]  # rows, outputs, sums


def value(sizes: Sizes, terms: dict[str, float], a: Fraction, b: Fraction, half: Fraction) -> tuple[Fraction, Fraction]:
    """Phi and a row of R, for a = Y, b = Y - x and Y - x / 2 in every row."""
    n, c, m = sizes
    v, k, t = (Fraction(terms[name]) for name in ("V", "K", "t"))
    push = m * k * n * (a + b)
    return c * (n * v * a) ** 2 + m * n * (a + b) * push - n * t * a * b, c * v * n * v * a + 2 * m * push - t * half


def full(size: float, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.full(shape, size, dtype=torch.float64)


@pytest.mark.parametrize("largest", ["V", "K", "t"])
@pytest.mark.parametrize("scale", [2.0**-20, 1.0, 2.0**20])
@pytest.mark.parametrize("sizes", [(200, 1, 1), (2, 200, 1), (2, 1, 60), (1, 1, 1)])
@pytest.mark.parametrize("far", [0.01, 3.0])
def test_terms_are_paid_for_by_the_operations_they_go_through(
    largest: str, scale: float, sizes: Sizes, far: float
) -> None:
    """A sum of k operations is off by k roundings of the sum of its terms' sizes: half of that is there whatever the
    rounding was, and it is not exaggerated."""
    n, c, m = sizes
    terms = {name: scale ** (1 if name == "V" else 2) * (1.0 if name == largest else 1e-3) for name in ("V", "K", "t")}
    x, Y, V, P = (full(size, (n, k)) for size, k in ((0.3, 1), (0.3 * far, 1), (terms["V"], c), (1.0, m)))
    witness = RowMultipliers(full(terms["t"], (n,)), full(terms["K"], (2 * m, 2 * m)))
    level, rest = map(Fraction, Aggregated(x, V, P)._value(witness, Y))
    a, s = Fraction(0.3 * far), Fraction(0.3)
    phi, R = value(sizes, terms, a, a - s, a - s / 2)
    most, most_R = value(sizes, terms | {"t": -terms["t"]}, a, a + s, a + s / 2)  # all terms with a plus
    error = Fraction(UNIT) * (2 * n + 4 * m + c + 8) * most
    assert phi + error / 2 <= level <= phi + 10 * error
    error = Fraction(UNIT) * (n + 3 * m + c + 8) * most_R
    share = Fraction(n) / Fraction(terms["t"])
    assert share * (abs(R) + error / 2) ** 2 <= rest**2 <= share * (abs(R) + 10 * error) ** 2
