"""Pairs of tokens and their readout against explicit loops (BM eq. 8, 133-136)."""

from itertools import product

import pytest
import torch

from bidual.operators import PooledOperator
from bidual.operators.patches import TokenPairs
from bidual.testing import check_operator
from helpers.draws import normal
from oracles.explicit_readouts import explicit_tokens

every_readout = pytest.mark.parametrize("average", [False, True], ids=["every token", "average"])
every_shape = pytest.mark.parametrize("shape", [(3, 3, 2), (2, 4, 3), (2, 1, 3), (3, 4, 1)], ids=str)


@every_shape
@every_readout
def test_rows_are_the_pairs_entry_by_entry(shape, average):
    X = normal(*shape)
    patches, explicit = TokenPairs(X, average), explicit_tokens(X, average)
    assert torch.equal(patches.rows(), explicit.rows)
    assert (patches.n_rows, patches.width) == tuple(explicit.rows.shape)
    assert (patches.n_predictions, patches.readouts) == tuple(explicit.readout.shape[:2])


@every_shape
def test_rows_times_stacked_columns_are_the_scores(shape):
    """(row) . vec_F(U) = (X_i U X_i^T)_pq, vec_F stacking columns (notes, section 2)."""
    X, U = normal(*shape), normal(shape[2], shape[2], seed=1)
    n, s, _ = shape
    found = (TokenPairs(X, False).rows() @ U.T.reshape(-1)).reshape(n, s, s)
    torch.testing.assert_close(found, X @ U @ X.mT, rtol=1e-12, atol=1e-12)


@every_shape
@every_readout
def test_pool_multiplies_by_the_tokens(shape, average):
    """L[H]_p = sum_q H_pq x_q, for every token p or averaged over p."""
    X = normal(*shape)
    patches, explicit = TokenPairs(X, average), explicit_tokens(X, average)
    H = normal(patches.n_rows, 4, seed=2)
    expected = torch.einsum("iar,rq->iqa", explicit.readout, H)
    torch.testing.assert_close(patches.pool(H), expected, rtol=1e-12, atol=1e-12)


@every_shape
@every_readout
def test_spread_is_the_adjoint_of_pool(shape, average):
    X = normal(*shape)
    patches, explicit = TokenPairs(X, average), explicit_tokens(X, average)
    V, H = normal(patches.n_predictions, 2, seed=3), normal(patches.n_rows, 4, seed=4)
    spread = patches.spread(V)
    expected = torch.einsum("iar,ic->rac", explicit.readout, V).flatten(1)
    torch.testing.assert_close(spread, expected, rtol=1e-12, atol=1e-14)
    through_pool = torch.einsum("iqa,ic->qac", patches.pool(H), V).flatten(1)
    torch.testing.assert_close(through_pool, H.T @ spread, rtol=1e-12, atol=1e-12)


@every_shape
@every_readout
def test_compress_is_the_papers_design(shape, average):
    """L[D_p X] = x_p kron sum_q D_pq x_q x_q^T (notes on BM eq. 135): by L itself, and by the formula in loops."""
    X = normal(*shape)
    patches, explicit = TokenPairs(X, average), explicit_tokens(X, average)
    D = (normal(patches.n_rows, 3, seed=6) >= 0).double()
    found = patches.compress(D)
    expected = torch.einsum("iar,rp,rh->ipha", explicit.readout, D, explicit.rows)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, by_formula(X, D, average), rtol=1e-12, atol=1e-12)


def by_formula(X, D, average):
    """Entry (e d + f, l) is x_p[f] sum_q D_pq x_q[e] x_q[l]."""
    n, s, d = X.shape
    design = torch.zeros(n, s, D.shape[1], d * d, d, dtype=torch.float64)
    for i, p, k, e, f, q in product(range(n), range(s), range(D.shape[1]), range(d), range(d), range(s)):
        design[i, p, k, e * d + f] += D[(i * s + p) * s + q, k] * X[i, p, f] * X[i, q, e] * X[i, q]
    return design.mean(1) if average else design.flatten(0, 1)


@every_shape
@every_readout
def test_reach_bounds_what_can_be_read(shape, average):
    X = normal(*shape)
    patches, explicit = TokenPairs(X, average), explicit_tokens(X, average)
    lengths = torch.linalg.vector_norm(explicit.rows, dim=1)
    torch.testing.assert_close(patches.reach(), explicit.readout.abs() @ lengths, rtol=1e-12, atol=0)
    D = (normal(patches.n_rows, 50, seed=1) >= 0).double()
    seen = torch.linalg.vector_norm(patches.compress(D), dim=2)
    assert bool((seen <= patches.reach()[:, None] * (1 + 1e-12)).all())


@every_shape
@every_readout
def test_lifted_operators_keep_their_contract(shape, average):
    patches = TokenPairs(normal(*shape), average)
    gates = normal(patches.width, 3, seed=3)
    check_operator(PooledOperator(patches, 2, gates=gates), torch.Generator().manual_seed(0))
    check_operator(PooledOperator(patches, 2), torch.Generator().manual_seed(0))


@every_readout
def test_some_samples_and_other_precisions(average):
    patches = TokenPairs(normal(3, 4, 2), average)
    part, single = patches.samples(slice(1, None)), patches.to(torch.float32)
    (rows, predictions), H = patches.per_sample, normal(patches.n_rows, 2)
    assert torch.equal(part.rows(), patches.rows()[rows:])
    torch.testing.assert_close(part.pool(H[rows:]), patches.pool(H)[predictions:])
    assert single.pool(H.float()).dtype is torch.float32
    torch.testing.assert_close(single.pool(H.float()).double(), patches.pool(H), rtol=1e-5, atol=1e-5)


def test_tokens_of_zeros_tell_no_patterns_apart():
    """A sequence that is padded with zero tokens has zero rows for every pair with one of them."""
    X = normal(2, 3, 2)
    X[:, 2] = 0
    assert len(TokenPairs(X, False).distinguishing_rows()) == 2 * 4


def test_same_pairs():
    X = normal(2, 3, 2)
    assert TokenPairs(X, True).is_same(TokenPairs(X.clone(), True))
    assert not TokenPairs(X, True).is_same(TokenPairs(X, False))
    assert not TokenPairs(X, True).is_same(TokenPairs(X + 1e-12, True))
    assert not TokenPairs(X[:, :1], True).is_same(TokenPairs(X, True))
