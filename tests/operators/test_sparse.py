"""Operators on sparse samples keep the promises of all operators, and bound their own rounding."""

from fractions import Fraction

import pytest
import torch
from scipy import sparse

from bidual.gauges import Nuclear
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.sparse import from_scipy, written_out
from bidual.operators import GatedOperator, LinearOperator, SparseGatedOperator, gated
from bidual.problems.problem import Problem
from bidual.testing import check_operator


def samples(n: int = 17, d: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    full = torch.randn(n, d, generator=generator, dtype=torch.float64) * (torch.rand(n, d, generator=generator) < 0.4)
    return full, from_scipy(sparse.csr_array(full.numpy())), torch.rand(5, n, generator=generator) > 0.4


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("kept", [True, False])
def test_contract(monkeypatch, n_outputs, kept):
    monkeypatch.setattr(gated, "_KEPT_BYTES", 2**20 if kept else 0)
    monkeypatch.setattr(gated, "_AT_ONCE", 2 * 23 * n_outputs)  # two blocks at a time
    full, X, patterns = samples()
    operator = SparseGatedOperator(X, patterns, n_outputs)
    assert len(operator._chunks(torch.arange(5))) == 3
    check_operator(operator, torch.Generator().manual_seed(0))
    check_operator(LinearOperator(X, n_outputs), torch.Generator().manual_seed(0))
    same = GatedOperator(full, patterns, n_outputs)
    assert torch.allclose(operator.dense(), same.dense(), atol=1e-14)
    assert torch.equal(written_out(operator.design()), same.design())
    assert written_out(operator.rows(torch.tensor([3, 1])).X).equal(full[[3, 1]])


def test_the_design_keeps_no_zeros_and_counts_are_of_entries():
    full, X, patterns = samples()
    operator = SparseGatedOperator(X, patterns, 2)
    assert operator.design().values().numel() == int(GatedOperator(full, patterns, 2).design().ne(0).sum())
    assert operator.multiplications == 2 * 5 * int(full.ne(0).sum())


def test_rounding_is_within_its_bound():
    """Against sums of fractions, which are exact; entries over twelve orders of magnitude cancel."""
    full, _, patterns = samples()
    full = full * 10.0 ** torch.arange(-6, 6, 2)
    operator = SparseGatedOperator(from_scipy(sparse.csr_array(full.numpy())), patterns, 1)
    problem = Problem(operator, Datafit(Squared(), torch.ones(17, 1, dtype=torch.float64)), Nuclear(), 1.0)
    Z = torch.randn(operator.block_shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exact = [
        sum(
            Fraction(full[i, j].item()) * Fraction(Z[p, j, 0].item())
            for p in range(5)
            if patterns[p, i]
            for j in range(6)
        )
        for i in range(17)
    ]
    found = operator.forward(Z)[:, 0].tolist()
    error = sum(float(Fraction(one) - other) ** 2 for one, other in zip(found, exact, strict=True)) ** 0.5
    assert 0 < error <= problem.rounding_of_forward(Z) < 1e-7
