"""The path regulariser (PR section 2.2) against a list of all paths."""

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor, nn

from bidual.architectures.modules import ParallelNetwork
from bidual.papers.methods.path_norm import path_norm, path_norm_of, rescaled

SHAPES = {
    "two layers": (3, 4, 1),
    "three layers": (3, 2, 3, 1),
    "four layers": (2, 3, 2, 2, 1),
    "outputs": (3, 2, 2, 4),
}


def layers_of(shape: tuple[int, ...], K: int = 3, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    pairs = pairwise(shape)
    return [torch.randn(K, a, b, generator=generator, dtype=torch.float64) for a, b in pairs]


def all_paths(layers: list[Tensor]) -> float:
    """sum_k sqrt(sum over index tuples of the squared product of weights), path by path."""
    total = 0.0
    for k in range(len(layers[0])):
        sizes = [layers[0].shape[1], *(layer.shape[2] for layer in layers)]
        squares = 0.0
        for path in product(*(range(size) for size in sizes)):
            weight = 1.0
            for layer, (i, j) in zip(layers, pairwise(path), strict=True):
                weight *= float(layer[k, i, j])
            squares += weight**2
        total += squares**0.5
    return total


def module_of(layers: list[Tensor], constant: bool = False) -> ParallelNetwork:
    widths = [layer.shape[2] for layer in layers[:-1]]
    features = layers[0].shape[1] - constant
    module = ParallelNetwork(features, widths, layers[-1].shape[2], len(layers[0]), int(constant))
    with torch.no_grad():
        for parameter, layer in zip(module.layers, layers, strict=True):
            parameter.copy_(layer)
    return module


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_path_is_counted_once(shape: tuple[int, ...]) -> None:
    layers = layers_of(shape)
    assert float(path_norm(layers)) == pytest.approx(all_paths(layers), rel=1e-12)
    assert float(path_norm_of(module_of(layers)).detach()) == pytest.approx(all_paths(layers), rel=1e-12)


def test_the_gradient_is_right_and_finite_at_zero() -> None:
    layers = [layer.requires_grad_() for layer in layers_of((2, 3, 2, 1), K=2)]
    assert torch.autograd.gradcheck(lambda *stack: path_norm(stack), layers)
    dead = [torch.zeros(1, 2, 3, dtype=torch.float64, requires_grad=True), torch.ones(1, 3, 1, dtype=torch.float64)]
    path_norm(dead).backward()
    assert not bool(dead[0].grad.any())


def test_modules_of_linear_layers() -> None:
    """Sub-networks as a user would write them, with biases as paths from a constant."""
    torch.manual_seed(0)
    parts = nn.ModuleList(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1)) for _ in range(2)
    ).double()
    expected = 0.0
    for part in parts:
        first, second, third = (layer for layer in part if isinstance(layer, nn.Linear))
        reach = (first.weight.square().sum(1) + first.bias.square()) @ second.weight.square().T + second.bias.square()
        expected += float((third.weight.square() @ reach).sum().sqrt())
    assert float(path_norm_of(parts)) == pytest.approx(expected, rel=1e-12)
    assert float(path_norm_of(parts[0]) + path_norm_of(parts[1])) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(TypeError, match="must be linear layers and ReLUs, got Tanh"):
        path_norm_of(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)))
    with pytest.raises(TypeError, match="expected a parallel network, got Linear"):
        path_norm_of(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="at least two layers"):
        rescaled(layers_of((2, 1)))


def test_a_residual_network_is_a_parallel_one() -> None:
    """PR A.2: non-negative inputs, one sub-network through two layers and one that passes them on."""
    generator = torch.Generator().manual_seed(0)
    W1, W2, W3 = (torch.randn(3, 3, generator=generator, dtype=torch.float64) for _ in range(3))
    w4 = torch.randn(3, 1, generator=generator, dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    layers = [torch.stack(pair) for pair in ((W1, eye), (W2, eye), (W3, W3), (w4, w4))]
    X = torch.rand(8, 3, generator=generator, dtype=torch.float64)
    block = torch.relu(torch.relu(X @ W1) @ W2)
    residual = torch.relu(block @ W3) @ w4 + torch.relu(X @ W3) @ w4
    torch.testing.assert_close(module_of(layers)(X), residual)


def test_tied_sub_networks_are_one_network_twice() -> None:
    """PR A.2 prints one where two equal sub-networks add up to twice the network."""
    layers = layers_of((3, 4, 2, 1), K=1)
    X = torch.randn(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    twice = module_of([layer.repeat(2, 1, 1) for layer in layers])
    torch.testing.assert_close(twice(X), 2 * module_of(layers)(X))


def test_storage_and_constant() -> None:
    module = module_of(layers_of((3, 2, 2, 1)), constant=True)
    again = ParallelNetwork.rebuild(module.sizes, module.state_dict())
    X = torch.randn(5, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    torch.testing.assert_close(again(X), module(X))
    assert module.n_neurons == 3
