"""Fewer sub-networks with the same predictions and no higher path norm."""

import pytest
import torch
from torch import Tensor

from bidual.architectures.modules import ParallelNetwork
from bidual.papers.methods.path_norm import path_norm_of
from bidual.papers.methods.pruning import prune, with_networks


def network(widths: list[int], c: int, k: int, seed: int = 0) -> ParallelNetwork:
    generator = torch.Generator().manual_seed(seed)
    module = ParallelNetwork(3, widths, c, k, constant=1)
    with torch.no_grad():
        for layer in module.layers:
            layer.copy_(torch.randn(layer.shape, generator=generator))
        module.bias.copy_(torch.randn(c, generator=generator))
        module.layers[-1][1] = 0.0
        module.layers[0][2] = 0.0
    return module


def samples(n: int) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(9)).double()


@pytest.mark.parametrize(("widths", "c"), [([3, 1], 1), ([2, 2], 2), ([2, 3, 2], 1)])
def test_empty_sub_networks_go_and_nothing_else_changes(widths: list[int], c: int) -> None:
    module, X = network(widths, c, 7), samples(20)
    small = prune(module)
    assert small.sizes["n_networks"] == 5
    torch.testing.assert_close(small(X), module(X))
    torch.testing.assert_close(path_norm_of(small), path_norm_of(module))


@pytest.mark.parametrize(("intercept", "most"), [(False, 8), (True, 6)])
def test_at_most_one_for_each_number_that_is_predicted(intercept: bool, most: int) -> None:
    module, X = network([3, 1], 2, 60), samples(4)
    small = prune(module, X, intercept=intercept)
    assert small.sizes["n_networks"] <= most
    difference = (small(X) - module(X)).detach()
    difference = difference - difference.mean(0) if intercept else difference
    assert float(difference.abs().max()) < 1e-9
    assert float(path_norm_of(small)) <= float(path_norm_of(module)) * (1 + 1e-9)


def test_sub_networks_that_are_off_on_all_samples_go() -> None:
    module, X = network([2, 1], 1, 3), samples(30)
    with torch.no_grad():
        module.layers[1][0] = -module.layers[1][0].abs()
    assert prune(module).sizes["n_networks"] == 1
    assert prune(module, X).n_neurons == 0
    torch.testing.assert_close(prune(module, X)(X), module(X))


def test_the_zero_network_keeps_an_empty_sub_network() -> None:
    module = ParallelNetwork(3, [2, 1], 2, 4)
    for small in (prune(module), prune(module, samples(5))):
        assert small.sizes["n_networks"] == 1
        assert not small(samples(5)).any()


def test_as_many_sub_networks_as_asked_for() -> None:
    module, X = network([3, 1], 1, 7), samples(10)
    for count in (5, 40):
        same = with_networks(module, count)
        assert same.sizes["n_networks"] == count
        torch.testing.assert_close(same(X), module(X))
        torch.testing.assert_close(path_norm_of(same), path_norm_of(module))
    with pytest.raises(ValueError, match="needs K = 5 sub-networks, got 4"):
        with_networks(module, 4)
