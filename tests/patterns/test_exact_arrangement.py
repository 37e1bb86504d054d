"""Rows and hyperplanes in whole numbers; the patterns are judged in tests/polar/subnetworks/test_first_layer.py."""

from fractions import Fraction

import numpy as np
import torch

from bidual.patterns.exact_arrangement import distinct_hyperplanes, exact_patterns, kernels, whole
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


def test_rows_without_numbers_and_lines_have_whole_numbers_too() -> None:
    assert whole(np.zeros((3, 0))).shape == (3, 0)
    assert all(type(x) is int for part in kernels(whole(np.ones((2, 1)))) for x in part.ravel().tolist())
    assert [part.dtype for part in kernels(whole(np.ones((2, 1))))] == [np.dtype(object)]


def test_kernels_are_orthogonal_to_every_choice_of_rows_that_is_independent() -> None:
    """With entries of many digits, which no float holds."""
    rows = whole(normal(4, 3).numpy())
    found = distinct_hyperplanes(np.concatenate(list(kernels(rows))))
    assert len(found) == 6
    assert all(sum(not row @ u for row in rows) == 2 for u in found)
    flat = whole(np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 3.0]]))
    assert len(np.concatenate(list(kernels(flat)))) == 2  # the first two rows are one


def test_patterns_are_those_of_many_directions_and_of_no_others() -> None:
    for seed, (n, r) in enumerate([(3, 1), (4, 2), (4, 3), (3, 3)]):
        X = normal(n, r, seed=seed).numpy()
        X[-1] = X[0] if n > r else X[-1]
        drawn = {tuple(row) for row in (normal(3000, r, seed=9).numpy() @ X.T >= 0).tolist()}
        assert {tuple(row) for row in exact_patterns(X).tolist()} == drawn
    padded = np.concatenate([X, np.zeros((1, 3))])
    assert exact_patterns(padded)[:, -1].all()
    assert len(exact_patterns(padded)) == 8
