"""Sparse matrices do what full ones do."""

import numpy as np
import pytest
import torch
from scipy import sparse

from bidual.numerics import sparse as rows
from bidual.patterns import activations, sample_gates, with_constant


def pair(n: int = 40, d: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    """The same numbers, full and sparse; columns from empty to full."""
    generator = torch.Generator().manual_seed(0)
    kept = torch.rand(n, d, generator=generator) < torch.linspace(0, 1.01, d)
    full = torch.randn(n, d, generator=generator, dtype=torch.float64) * kept
    full[:, -1] = 3.0
    return full, rows.from_scipy(sparse.csc_array(full.numpy()))


def test_entries_are_kept_once_and_in_order_and_the_given_matrix_as_it_was():
    given = sparse.csr_array((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    assert rows.written_out(rows.from_scipy(given)).tolist() == [[2.0, 0.0, 5.0]]
    assert given.nnz == 3
    assert given.indices.tolist() == [2, 0, 2]


@pytest.mark.parametrize("at_once", [1, 2**22])
def test_gram_matrices(monkeypatch, at_once):
    monkeypatch.setattr(rows, "_AT_ONCE", at_once)
    full, X = pair()
    weights = torch.linspace(-1, 1, len(full), dtype=torch.float64)[:, None]
    assert torch.allclose(rows.gram(X), full.T @ full, atol=1e-12)
    assert torch.allclose(rows.gram(X, weights), full.T @ (weights * full), atol=1e-12)
    assert torch.allclose(rows.row_gram(X), full @ full.T, atol=1e-12)
    assert rows.row_gram(X.float()).dtype == torch.float32


def test_rows_columns_and_transposes():
    full, X = pair()
    mask, index = full[:, 20] > 0, torch.tensor([3, 1, 1])
    for chosen in (mask, index, slice(2, 5)):
        assert torch.equal(rows.written_out(rows.take_rows(X, chosen)), full[chosen])
    assert torch.equal(rows.written_out(rows.transposed(X)), full.T)
    assert torch.equal(rows.written_out(with_constant(X)), with_constant(full))
    assert torch.allclose(rows.column_squares(X), full.square().sum(0))
    assert rows.values_of(rows.scaled_rows(mask, X)).numel() == int((full[mask] != 0).sum())


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_spread_of_columns_to_the_last_digits(centred, weighted):
    full, X = pair()
    share = torch.linspace(1, 5 if weighted else 1, len(full), dtype=torch.float64)
    found, same = (rows.column_spread(each, share / share.sum(), centred) for each in (X, full))
    for one, other in zip(found, same, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-14)
    assert not centred or found[1][-1] < 1e-14  # a constant column has no spread: its gates are not magnified


@pytest.mark.parametrize("bias", [True, False])
def test_gates_and_patterns_are_those_of_the_full_matrix(bias):
    full, X = pair()
    gates, same = (sample_gates(each, 50, torch.Generator().manual_seed(3), bias=bias) for each in (X, full))
    assert torch.allclose(gates, same, rtol=1e-12)
    if bias:
        full, X = with_constant(full), with_constant(X)
    assert torch.equal(activations(X, same), activations(full, same))
