"""Convolution, activation, pooling, linear layer."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from bidual.architectures.modules.base import (
    GatedUnits,
    HiddenUnits,
    LinearUnits,
    Picture,
    ReluUnits,
    Sizes,
    Units,
    filters_picture,
    with_bias,
    zero_conv,
    zero_linear,
)
from bidual.operators.patches import Convolution


class ConvNetwork(HiddenUnits):
    """x (n, channels, ...) -> sum_j V_j P_a act(x * u_j) + b, in one or two dimensions (BM eq. 22).

    Pooling is the average over windows where ``window`` is given, and else a matrix with ``positions`` columns.
    """

    def __init__(
        self,
        channels: int,
        n_filters: int,
        readouts: int,
        n_outputs: int,
        positions: int,
        kernel_size: list[int],
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        window: list[int],
    ) -> None:
        super().__init__()
        self.geometry = {"stride": stride, "padding": padding, "dilation": dilation}
        self.window, self.positions = window, positions
        self.hidden = zero_conv(channels, n_filters, kernel_size, **self.geometry)
        self.pool: nn.Module = PoolingMatrix(readouts, positions)
        if window:
            self.pool = nn.AvgPool1d(window) if len(window) == 1 else nn.AvgPool2d(window)  # type: ignore[arg-type]
        self.output = zero_linear(n_filters * readouts, n_outputs)

    @property
    def sizes(self) -> Sizes:
        hidden = self.hidden
        return {
            "channels": hidden.in_channels,
            "n_filters": hidden.out_channels,
            "readouts": self.output.in_features // hidden.out_channels,
            "n_outputs": self.output.out_features,
            "positions": self.positions,
            "kernel_size": list(hidden.kernel_size),
            **self.geometry,
            "window": self.window,
        }

    @property
    def n_neurons(self) -> int:
        weight = self.output.weight.detach()
        return int((weight.reshape(len(weight), self.hidden.out_channels, -1) != 0).any(2).any(0).sum())

    @property
    def units(self) -> Units:
        outputs = self.output.weight.unflatten(1, (self.hidden.out_channels, -1)).transpose(0, 1)
        return Units.of("filter", with_bias(self.hidden), outputs)

    def pictures(self, x: Tensor | None = None, names: Sequence[str] = ()) -> list[Picture]:
        return filters_picture(self.hidden, self.units.prices)

    def for_onnx(self, sample_shape: tuple[int, ...]) -> nn.Module:
        """The same network as gathers and matrix products: runtimes have convolutions in float32 only."""
        other, pooling = deepcopy(self), self._pooling(sample_shape)
        for name, layer in self.named_children():
            if isinstance(layer, nn.Conv1d | nn.Conv2d):
                setattr(other, name, PatchProducts(layer, sample_shape))
        other.pool = PoolingMatrix(*pooling.shape)
        other.pool.matrix.copy_(pooling)
        return other

    def _pooling(self, image_shape: tuple[int, ...]) -> Tensor:
        """P_a, for images of this shape."""
        if isinstance(self.pool, PoolingMatrix):
            return self.pool.matrix
        geometry = geometry_of(self.hidden)
        grid = [k // w for k, w in zip(geometry.map_of(image_shape), self.window, strict=True)]
        return geometry.pooled(tuple(grid)).pooling_for(image_shape, self.output.weight.detach()).matrix

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.hidden.weight.dtype)
        return self.output(self.pool(self.activated(x)).flatten(1))


class LinearConvNetwork(LinearUnits, ConvNetwork):
    """A convolutional network without a nonlinearity."""

    kind, words = "linear_cnn", "linear convolutional network"
    rivals = "every linear convolutional network of this filter size and pooling"


class ReluConvNetwork(ReluUnits, ConvNetwork):
    """A convolutional ReLU network."""

    kind, words = "relu_cnn", "convolutional ReLU network"
    rivals = "every convolutional ReLU network of this filter size and pooling, with any number of filters"


class GatedConvNetwork(GatedUnits, ConvNetwork):
    """Filters that are on where a constant gate is: 1{x * g_p(j) + h_p(j) >= 0} (x * u_j + a_j)."""

    kind, words = "gated_cnn", "convolutional gated-ReLU network"

    def __init__(self, channels: int, n_filters: int, n_gates: int, **sizes: int | list[int]) -> None:
        super().__init__(channels, n_filters, **sizes)  # type: ignore[arg-type]
        self._add_gates(n_filters, zero_conv(channels, n_gates, list(self.hidden.kernel_size), **self.geometry))


class PoolingMatrix(nn.Module):
    """x (n, filters, ...) -> P_a x (n, filters, a) for any constant matrix P_a."""

    def __init__(self, readouts: int, positions: int) -> None:
        super().__init__()
        self.matrix: Tensor
        self.register_buffer("matrix", torch.zeros(readouts, positions, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2) @ self.matrix.T


class PatchProducts(nn.Module):
    """A convolution as one product with the patches of images of a shape, for runtimes that have none in float64."""

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
