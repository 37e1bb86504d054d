"""Convolution, activation, pooling, linear layer."""

from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Self

import torch
from torch import Tensor, nn

from bidual.architectures.modules.base import (
    RebuildableModule,
    Sizes,
    check_gate_index,
    with_bias,
    zero_conv,
    zero_linear,
)
from bidual.architectures.modules.products import PatchProducts, PoolingMatrix, geometry_of
from bidual.architectures.modules.views import Picture, Units, filters_picture
from bidual.numerics.gate_margin import is_on


class ConvNetwork(RebuildableModule):
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
        return self.output(self.pool(self._activated(x)).flatten(1))

    @abstractmethod
    def _activated(self, x: Tensor) -> Tensor: ...


class LinearConvNetwork(ConvNetwork):
    """A convolutional network without a nonlinearity."""

    kind, words, always_on = "linear_cnn", "linear convolutional network", True
    rivals = "every linear convolutional network of this filter size and pooling"

    def _activated(self, x: Tensor) -> Tensor:
        return self.hidden(x)


class ReluConvNetwork(ConvNetwork):
    """A convolutional ReLU network."""

    kind, words = "relu_cnn", "convolutional ReLU network"
    rivals = "every convolutional ReLU network of this filter size and pooling, with any number of filters"

    def on(self, x: Tensor) -> Tensor:
        return self.hidden(x) > 0

    def _activated(self, x: Tensor) -> Tensor:
        return torch.relu(self.hidden(x))


class GatedConvNetwork(ConvNetwork):
    """Filters that are on where a constant gate is: 1{x * g_p(j) + h_p(j) >= 0} (x * u_j + a_j).

    Filter j uses gate ``gate_index[j]``.
    """

    kind, words = "gated_cnn", "convolutional gated-ReLU network"

    def __init__(self, channels: int, n_filters: int, n_gates: int, **sizes: int | list[int]) -> None:
        super().__init__(channels, n_filters, **sizes)  # type: ignore[arg-type]
        kernel_size = list(self.hidden.kernel_size)
        self.gates = zero_conv(channels, n_gates, kernel_size, **self.geometry).requires_grad_(False)
        self.gate_index: Tensor
        self.register_buffer("gate_index", torch.zeros(n_filters, dtype=torch.long))

    @property
    def sizes(self) -> Sizes:
        return super().sizes | {"n_gates": self.gates.out_channels}

    @classmethod
    def rebuild(cls, sizes: Sizes, state: dict[str, Tensor]) -> Self:
        module = super().rebuild(sizes, state)
        check_gate_index(module.gate_index, sizes["n_gates"])
        return module

    def _activated(self, x: Tensor) -> Tensor:
        return self.hidden(x) * self.on(x).to(x.dtype)

    def on(self, x: Tensor) -> Tensor:
        """Where a filter's gate is on; ties count as on."""
        sizes = self.sizes_of_gates(x.abs())
        return is_on(self.gates(x), sizes, self.gates.weight[0].numel() + 1)[:, self.gate_index]

    def sizes_of_gates(self, x: Tensor) -> Tensor:
        """The gates' layer with the absolute values of its weights."""
        weights = {"weight": self.gates.weight.abs(), "bias": self.gates.bias.abs()}  # type: ignore[union-attr]
        return torch.func.functional_call(self.gates, weights, (x,))
