"""The path regulariser of any parallel module, and the rescaling that leaves it unchanged."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.modules import ParallelNetwork
from bidual.architectures.parallel import Stack, squared_paths

_PLAIN = (nn.ReLU, nn.Identity, nn.Flatten)  # modules without weights


def path_norm(layers: Sequence[Stack]) -> Float[Tensor, ""]:
    r"""R = sum_k sqrt( sum over paths of |w_1k|^2 w_2k^2 ... w_Lk^2 ) of layers W_l (K, in, out) (PR section 2.2).

    Layer by layer it is a product of squared weights, so no path is listed. With several outputs the paths to all of
    them are under one root (PR A.11). Zero sub-networks have gradient zero, one of the subgradients.
    """
    return root(squared_paths(layers).sum(1)).sum()


def root(x: Tensor) -> Tensor:
    """The square root, with derivative zero at zero."""
    alive = x > 0
    return torch.where(alive, torch.where(alive, x, 1.0).sqrt(), 0.0)


def rescaled(layers: Sequence[Stack]) -> list[Tensor]:
    """The same function with squared_paths(W_1, ..., W_(L-1)) = 1 for every live unit: PR Lemma 1.

    The path norm is then sum_k |W_Lk|_F. Units without a path to them get zero weights.
    """
    if len(layers) < 2:
        raise ValueError(f"a rescaling needs at least two layers, got {len(layers)}.")
    *before, last, output = layers
    size = squared_paths([*before, last]).sqrt()
    inverse = torch.where(size > 0, 1 / torch.where(size > 0, size, 1.0), 0.0)
    return [*before, last * inverse[:, None, :], output * size[:, :, None]]


def path_norm_of(module: nn.Module) -> Float[Tensor, ""]:
    """The path norm of a :class:`ParallelNetwork`, an ``nn.Sequential`` of linear layers and ReLUs, or a module whose
    children are such sub-networks, to add to a loss of one's own.

    A bias is the weight of a path that begins at a constant 1 in its layer; output biases are not counted.
    """
    if isinstance(module, ParallelNetwork):
        return path_norm(list(module.layers))
    return torch.stack([_root_of_one(part) for part in _sub_networks(module)]).sum()


def _sub_networks(module: nn.Module) -> Iterator[list[nn.Linear]]:
    children = list(module.children())
    if isinstance(module, nn.Sequential) and not any(isinstance(child, nn.Sequential) for child in children):
        yield _linear_layers(module, children)
        return
    if not children:
        raise TypeError(f"expected a parallel network, got {type(module).__name__} without sub-networks.")
    for child in children:
        if not isinstance(child, _PLAIN):
            yield from _sub_networks(child)


def _linear_layers(module: nn.Module, children: Iterable[nn.Module]) -> list[nn.Linear]:
    layers = [child for child in children if not isinstance(child, _PLAIN)]
    wrong = [type(layer).__name__ for layer in layers if not isinstance(layer, nn.Linear)]
    if wrong or not layers:
        raise TypeError(f"sub-networks must be linear layers and ReLUs, got {', '.join(wrong) or 'none'} in {module}.")
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


def _root_of_one(layers: Sequence[nn.Linear]) -> Tensor:
    squares = layers[0].weight.new_zeros(layers[0].in_features)
    for index, layer in enumerate(layers):
        arriving = layer.weight.square().sum(1) if index == 0 else layer.weight.square() @ squares
        counted = layer.bias is not None and index < len(layers) - 1
        squares = arriving + layer.bias.square() if counted else arriving
    return root(squares.sum())
