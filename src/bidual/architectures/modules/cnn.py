"""Convolution, activation, pooling, linear layer."""

from abc import abstractmethod
from typing import Self

import torch
from torch import Tensor, nn

from bidual.architectures.modules.base import RebuildableModule, Sizes, check_gate_index, zero_conv, zero_linear
from bidual.numerics.gate_margin import is_on


class PoolingMatrix(nn.Module):
    """x (n, filters, ...) -> P_a x (n, filters, a) for any constant matrix P_a."""

    def __init__(self, readouts: int, positions: int) -> None:
        super().__init__()
        self.matrix: Tensor
        self.register_buffer("matrix", torch.zeros(readouts, positions, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2) @ self.matrix.T


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

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.hidden.weight.dtype)
        return self.output(self.pool(self._activated(x)).flatten(1))

    @abstractmethod
    def _activated(self, x: Tensor) -> Tensor: ...


class LinearConvNetwork(ConvNetwork):
    """A convolutional network without a nonlinearity."""

    kind = "linear_cnn"

    def _activated(self, x: Tensor) -> Tensor:
        return self.hidden(x)


class ReluConvNetwork(ConvNetwork):
    """A convolutional ReLU network."""

    kind = "relu_cnn"

    def _activated(self, x: Tensor) -> Tensor:
        return torch.relu(self.hidden(x))


class GatedConvNetwork(ConvNetwork):
    """Filters that are on where a constant gate is: 1{x * g_p(j) + h_p(j) >= 0} (x * u_j + a_j).

    Filter j uses gate ``gate_index[j]``.
    """

    kind = "gated_cnn"

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
        on = is_on(self.gates(x), self.sizes_of_gates(x.abs()), self.gates.weight[0].numel() + 1)
        return self.hidden(x) * on.to(x.dtype)[:, self.gate_index]

    def sizes_of_gates(self, x: Tensor) -> Tensor:
        """The gates' layer with the absolute values of its weights."""
        weights = {"weight": self.gates.weight.abs(), "bias": self.gates.bias.abs()}  # type: ignore[union-attr]
        return torch.func.functional_call(self.gates, weights, (x,))
