"""Gated products in tiles, and what patterns may be."""

import pytest
import torch

from bidual.gauges import Nuclear
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, gated
from bidual.problems.problem import Problem


def arrays(n: int = 23, d: int = 3, patterns: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return X, torch.rand(patterns, n, generator=generator) > 0.4


@pytest.mark.parametrize("kept", [True, False])
def test_tiles_change_nothing(monkeypatch, kept):
    X, patterns = arrays()
    whole = GatedOperator(X, patterns, 2)
    Z, V = torch.randn(whole.block_shape, dtype=torch.float64), torch.randn(23, 2, dtype=torch.float64)
    expected = whole.forward(Z), whole.adjoint(V), whole.kernel()
    monkeypatch.setattr(gated, "_AT_ONCE", 5 * (7 + 6))  # five samples at a time
    monkeypatch.setattr(gated, "_KEPT_BYTES", 2**20 if kept else 0)
    tiled = GatedOperator(X, patterns, 2)
    assert len(list(tiled._tiles())) == 5
    for found, same in zip((tiled.forward(Z), tiled.adjoint(V), tiled.kernel()), expected, strict=True):
        assert torch.allclose(found, same, atol=1e-12)
    assert torch.allclose(tiled.select(torch.tensor([4, 1])).adjoint(V), expected[1][[4, 1]], atol=1e-12)


def test_patterns_take_one_byte_and_may_carry_signs():
    X, patterns = arrays()
    signed = GatedOperator(X, torch.cat([patterns.double(), -patterns.double()]), 1)
    assert signed.patterns.element_size() == 1
    half = torch.randn(7, 3, 1, dtype=torch.float64)
    assert torch.allclose(signed.forward(torch.cat([half, half])), torch.zeros(23, 1, dtype=torch.float64), atol=1e-12)


def test_patterns_of_other_numbers_are_refused():
    X, patterns = arrays()
    with pytest.raises(ValueError, match=r"patterns must be 0, 1 or -1"):
        GatedOperator(X, 0.5 * patterns.double(), 1)


def test_slopes_of_many_samples_are_no_noise_in_single_precision() -> None:
    """The bound on rounding, which certificates pay in double precision, exceeds the slopes themselves here."""
    generator = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(100_000, k, generator=generator) for k in (4, 1))
    single = Problem(GatedOperator(X, (X[:, :2] > 0).T, 1), Datafit(Squared(), Y), Nuclear(), 1.0)
    V = single.residual(single.operator.zeros())
    assert single.beta_max == pytest.approx(single.to(torch.float64).beta_max, rel=1e-3)
    assert single.likely_rounding_of_polar(V) < single.beta_max < single.rounding_of_polar(V)
