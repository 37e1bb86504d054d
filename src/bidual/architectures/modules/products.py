"""Convolutional networks as gathers and matrix products, for runtimes that have no convolution in float64."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from bidual.architectures.modules.cnn import ConvNetwork, PoolingMatrix
from bidual.operators.patches import Convolution


class PatchProducts(nn.Module):
    """A convolution layer as one product with the patches of images of a given shape."""

    def __init__(self, layer: nn.Conv1d | nn.Conv2d, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        assert layer.bias is not None
        self.weight, self.bias = nn.Parameter(layer.weight.detach().flatten(1)), nn.Parameter(layer.bias.detach())
        geometry = _geometry(layer)
        places = torch.arange(1, torch.Size(image_shape).numel() + 1, dtype=torch.float64).reshape(1, *image_shape)
        self.index: Tensor
        self.register_buffer("index", geometry.unfold(places)[0].T.long())  # 0 is padding

    def forward(self, x: Tensor) -> Tensor:
        padded = nn.functional.pad(x.flatten(1), (1, 0))
        return (padded[:, self.index] @ self.weight.T + self.bias).mT


def as_products(network: ConvNetwork, image_shape: tuple[int, ...]) -> ConvNetwork:
    """A network with the same predictions for images of this shape, without convolutions."""
    other = deepcopy(network)
    pooling = _pooling(network, image_shape)
    for name, layer in network.named_children():
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            setattr(other, name, PatchProducts(layer, image_shape))
    other.pool = PoolingMatrix(*pooling.shape)
    other.pool.matrix.copy_(pooling)
    return other


def _geometry(layer: nn.Conv1d | nn.Conv2d) -> Convolution:
    assert not isinstance(layer.padding, str)
    return Convolution(layer.kernel_size, layer.stride, layer.padding, layer.dilation)


def _pooling(network: ConvNetwork, image_shape: tuple[int, ...]) -> Tensor:
    if isinstance(network.pool, PoolingMatrix):
        return network.pool.matrix
    geometry = _geometry(network.hidden)
    grid = [k // w for k, w in zip(geometry.map_of(image_shape), network.window, strict=True)]
    return geometry.pooled(tuple(grid)).pooling_for(image_shape, network.output.weight.detach()).matrix
