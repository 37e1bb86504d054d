"""Convolutions as gathers and matrix products, for runtimes that have none in float64."""

import torch
from torch import Tensor, nn

from bidual.operators.patches import Convolution


class PoolingMatrix(nn.Module):
    """x (n, filters, ...) -> P_a x (n, filters, a) for any constant matrix P_a."""

    def __init__(self, readouts: int, positions: int) -> None:
        super().__init__()
        self.matrix: Tensor
        self.register_buffer("matrix", torch.zeros(readouts, positions, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2) @ self.matrix.T


class PatchProducts(nn.Module):
    """A convolution layer as one product with the patches of images of a given shape."""

    def __init__(self, layer: nn.Conv1d | nn.Conv2d, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        assert layer.bias is not None
        self.weight, self.bias = nn.Parameter(layer.weight.detach().flatten(1)), nn.Parameter(layer.bias.detach())
        places = torch.arange(1, torch.Size(image_shape).numel() + 1, dtype=torch.float64).reshape(1, *image_shape)
        self.index: Tensor
        self.register_buffer("index", geometry_of(layer).unfold(places)[0].T.long())  # 0 is padding

    def forward(self, x: Tensor) -> Tensor:
        padded = nn.functional.pad(x.flatten(1), (1, 0))
        return (padded[:, self.index] @ self.weight.T + self.bias).mT


def geometry_of(layer: nn.Conv1d | nn.Conv2d) -> Convolution:
    """The geometry of a layer, without pooling."""
    assert not isinstance(layer.padding, str)
    return Convolution(layer.kernel_size, layer.stride, layer.padding, layer.dilation)
