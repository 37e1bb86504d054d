import pytest
import torch
from torch import Tensor

from bidual.patterns import activations, distinct, sample_gates, with_constant
from bidual.testing import own_checks_only


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def data(n: int = 20, d: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=rng(seed), dtype=torch.float64)


def patterns(X: Tensor, count: int = 40, seed: int = 1, bias: bool = True, weight: Tensor | None = None) -> Tensor:
    gates = sample_gates(X, count, rng(seed), bias=bias, weight=weight)
    return activations(with_constant(X) if bias else X, gates)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n", [1, 2, 20])
def test_gates_have_distinct_patterns_and_none_is_off_everywhere(n: int, bias: bool) -> None:
    D = patterns(data(n), count=100, bias=bias)
    assert 1 <= len(D) <= 100
    assert len(torch.unique(D, dim=0)) == len(D)
    assert bool(D.any(1).all())


def test_distinct_keeps_first_occurrences_in_order() -> None:
    D = torch.tensor([[1, 0], [0, 0], [1, 1], [1, 0], [0, 1]], dtype=torch.bool)
    assert distinct(D).tolist() == [0, 2, 4]
    assert distinct(D[1:2]).tolist() == []


def test_in_the_plane_enough_gates_find_every_pattern() -> None:
    D = patterns(data(6, 2), count=5000, bias=False)
    assert len(D) == 12  # six lines through the origin cut the plane into twelve sectors, none all off unless all on is
    assert len(patterns(data(6, 2).abs(), count=20000, bias=False)) == 11


@pytest.mark.parametrize("seed", range(5))
def test_patterns_do_not_depend_on_units(seed: int) -> None:
    X = data(seed=seed)
    scale, shift = torch.tensor([1e-3, 1.0, 50.0], dtype=X.dtype), torch.tensor([3.0, -100.0, 7.0], dtype=X.dtype)
    assert torch.equal(patterns(X), patterns(X * scale + shift))
    assert torch.equal(patterns(X, bias=False), patterns(X * scale, bias=False))


@pytest.mark.parametrize("constant", [0.1, 0.3, 5.0, 1e6 / 3])
def test_a_constant_column_may_have_any_value(constant: float) -> None:
    X = data()
    zero, other = (torch.cat([X, torch.full((20, 1), value, dtype=X.dtype)], 1) for value in (0.0, constant))
    assert torch.equal(patterns(zero), patterns(other))


def test_weight_two_is_the_sample_twice() -> None:
    X, weight = data(), torch.ones(20, dtype=torch.float64)
    weight[:5] = 2
    assert torch.equal(patterns(X, weight=weight), patterns(torch.cat([X, X[:5]]))[:, :20])


def test_seeds_reproduce_and_differ_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (sample_gates(data(), 30, rng(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first[:, :5], other[:, :5])
    assert torch.equal(before, torch.get_rng_state())


def test_repeated_rows_share_their_activations() -> None:
    X = data()
    D = patterns(torch.cat([X, X]))
    assert torch.equal(D[:, :20], D[:, 20:])


def test_activations_count_the_boundary_as_on_and_refuse_other_widths() -> None:
    assert activations(torch.zeros(2, 3), torch.ones(3, 1)).tolist() == [[True, True]]
    with own_checks_only(), pytest.raises(ValueError, match=r"one row per feature \(3\), got 4"):
        activations(torch.zeros(2, 3), torch.ones(4, 1))
