"""Rows and hyperplanes in whole numbers; the patterns are judged in tests/polar/subnetworks/test_first_layer.py."""

from fractions import Fraction

import numpy as np
import torch

from bidual.patterns.exact_arrangement import distinct_hyperplanes, whole
from helpers.draws import normal


def test_whole_numbers_are_rows_at_any_scale() -> None:
    scales = torch.tensor([[1.0], [1e-300], [1e300], [5e-324], [1e-5], [0.0]], dtype=torch.float64)
    X = normal(6, 3) * scales * torch.tensor([1, 1e-9, 1], dtype=torch.float64)
    for row, numbers in zip(X.tolist(), whole(X.numpy()).tolist(), strict=True):
        ratios = {Fraction(n) / Fraction(x) for x, n in zip(row, numbers, strict=True) if x}
        assert len(ratios) == any(row)
        assert [n for x, n in zip(row, numbers, strict=True) if not x] == [0] * row.count(0.0)


def test_equal_opposite_and_zero_rows_are_one_hyperplane_or_none() -> None:
    rows = np.array([[2, -4], [-3, 6], [0, 0], [0, 5], [1, 1]], dtype=object)
    assert distinct_hyperplanes(rows).tolist() == [[1, -2], [0, 1], [1, 1]]
